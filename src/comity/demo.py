"""`comity demo`: write the starter of every method, simulate it, and show all results on one page.

A starter is what `comity new` writes. The noise is drawn as for a release, without a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

import comity
from comity.artefacts.artefact import Artefact
from comity.artefacts.section import Panels, Plot
from comity.federation.coordinator.parties import Progress
from comity.files import make_folder, make_private, write_atomically
from comity.methods import entries, load_object, method_of
from comity.report.card import describe_presented
from comity.report.overview import describe_plan
from comity.report.page import draw_quality, format_spent, list_warnings, render
from comity.report.plots import draw_plot
from comity.report.sentences import describe_quality
from comity.study.results.result import Result

Starter = Callable[[Path], None]
"""Writes a study, its schema and its records into a folder."""


def run_demo(
    out: Path, progress: Progress | None = None, *, starters: Mapping[str, Starter] | None = None
) -> dict[str, Any]:
    """Write report.html, and for each method studies/NAME/, runs/NAME/ and NAME.svg, into `out`.

    Returns a table of errors and the paths. Tests pass smaller `starters`.
    """
    say = progress or (lambda words: None)
    starters = starters or {name: load_object(entry.starter) for name, entry in entries().items()}
    results = {name: _run_starter(out, name, write, say) for name, write in starters.items()}
    say("writing the page")
    stories = [_story(name, result) for name, result in results.items()]
    write_atomically(out / "report.html", render("demo.html.jinja", stories=stories, version=comity.__version__))
    plots = {story["name"]: str(story["errors"]) for story in stories if story["errors"]}
    for name, plot in plots.items():
        write_atomically(out / f"{name}.svg", _standalone(plot))
    return {
        "tables": {name: [_row(result)] for name, result in results.items()},
        "report": str(out / "report.html"),
        "pages": {name: str(out / "runs" / name / "report.html") for name in results},
        "plots": {name: str(out / f"{name}.svg") for name in plots},
        "runs": {name: str(out / "runs" / name) for name in results},
    }


def _run_starter(out: Path, name: str, write: Starter, say: Progress) -> Result:
    say(f"{name}: writing its study")
    study = out / "studies" / name
    make_folder(study)
    write(study)
    make_private(study)
    result = comity.simulate(study / "study.toml", progress=lambda words: say(f"{name}: {words}"))
    result.save(out / "runs" / name)
    return result


def _story(name: str, result: Result) -> dict[str, Any]:
    """What the page says of one method."""
    own = [result.presented.section(result.model_noise)] if isinstance(result.presented, Artefact) else []
    plots = [plot for section in (*result.assessment.sections, *own) for plot in section.plots]
    overview, plan = describe_plan(result.plan), result.plan
    purpose = plan.about.purpose or _first_sentence(method_of(name).__doc__ or "")
    interval = result.assessment.interval
    within = "" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}, measured "
    return {
        "name": name,
        "title": purpose[:1].upper() + purpose[1:],
        "who": _who(result),
        "hold": "; ".join(overview.reads),
        "protects": overview.protects,
        "error": "not measured" if result.error is None else f"{within}{result.error:.3f}",
        "baselines": {one.name: f"{one.error:.3f}" for one in result.baselines},
        "learned": describe_presented(result),
        "verdict": describe_quality(result),
        "errors": draw_quality(result),
        "picture": Markup(draw_plot(_shortened(plots[0]), name)) if plots else "",
        "spent": format_spent(result),
        "warnings": list_warnings(result),
        "result": result,
    }


def _shortened(plot: Plot) -> Plot:
    """A plot that is no longer than its neighbours on the page."""
    return replace(plot, panels=plot.panels[:_MAX_PANELS]) if isinstance(plot, Panels) else plot


_MAX_PANELS = 4


def _who(result: Result) -> str:
    """The parties, a few by name."""
    names = [one.party for one in result.accounts][:_NAMED]
    more = result.parties - len(names)
    if result.parties > _MANY:
        return f"{result.parties:,} parties"
    return f"{result.parties} parties: {', '.join(names)}" + (f" and {more} more" if more > 0 else "")


_NAMED, _MANY = 6, 50


def _first_sentence(docstring: str) -> str:
    """What a method is. The rest of its docstring is for programmers."""
    return " ".join(docstring.partition("\n\n")[0].split())


def _row(result: Result) -> dict[str, Any]:
    baselines = {baseline.name.replace(" ", "_"): baseline.error for baseline in result.baselines}
    return {
        "protocol": result.protocol,
        "dataset": result.study,
        "epsilon": result.settings["privacy.epsilon"],
        "error": result.error,
        **baselines,
    }


def _standalone(plot: str) -> str:
    """The plot as an SVG file, which needs the namespace that a page does without."""
    return plot.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)

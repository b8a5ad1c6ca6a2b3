"""`comity demo`: for every method a page with a table of error against ε and one run with noise as released."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from markupsafe import Markup

from comity.artefacts.writing import write_text
from comity.demo.shown import DELTA, EPSILONS, Shown
from comity.federation.coordinator.parties import Progress
from comity.methods import entries
from comity.methods.entry import found
from comity.report.figures import curves_plot
from comity.report.page import render
from comity.report.versions import versions

REPEATS = 20


def run_demo(out: Path, progress: Progress | None = None, *, repeats: int = REPEATS) -> dict[str, Any]:
    """Write report.html, and for each method NAME.html, NAME.svg and runs/NAME/, into `out`; returns table and paths.

    The tables come from seeded repeats, which protect nobody; the saved runs have no seed.
    """
    said = progress or (lambda words: None)
    out = Path(out)
    shown = [demonstrate(out / "runs" / name, said, repeats) for name, demonstrate in demonstrations().items()]
    said("writing the pages")
    for one in shown:
        plots = [curves_plot(case.curves(one.methods), f"{one.name} {case.name}") for case in one.cases]
        page = render(
            "demo_method.html.jinja",
            one=one,
            cases=list(zip(one.cases, map(Markup, plots))),
            result=one.result,
            epsilons=EPSILONS,
            delta=DELTA,
            versions=versions(),
        )
        write_text(out / f"{one.name}.html", page)
        write_text(out / f"{one.name}.svg", _standalone(plots[0]))
    write_text(
        out / "report.html",
        render("demo.html.jinja", shown=shown, epsilons=EPSILONS, delta=DELTA, versions=versions()),
    )
    return {
        "tables": {one.name: [asdict(row) for row in one.rows] for one in shown},
        "report": str(out / "report.html"),
        "pages": {one.name: str(out / f"{one.name}.html") for one in shown},
        "plots": {one.name: str(out / f"{one.name}.svg") for one in shown},
        "runs": {one.name: str(out / "runs" / one.name) for one in shown},
    }


def demonstrations() -> dict[str, Callable[[Path, Progress, int], Shown]]:
    """What shows each method that has a demonstration."""
    return {name: found(entry.demo) for name, entry in entries().items() if entry.demo is not None}


def _standalone(plot: str) -> str:
    """A plot as a file of its own needs the namespaces that a page does without."""
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return plot.replace("<svg", f"<svg {names}", 1)

"""The page of a run: four answers first, details below. It is one file that loads nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from comity.artefacts.artefact import Artefact
from comity.artefacts.section import Grid, Section
from comity.federation.coordinator.transcript import Transcript
from comity.federation.declare.declaration import DISCLOSING, is_unproven
from comity.privacy.loss import format_small, format_up
from comity.report.card import describe_presented
from comity.report.overview import describe_view
from comity.report.plots import Amount, Mark, draw_amounts, draw_errors, draw_marks, draw_plot
from comity.report.sentences import (
    describe_evaluation,
    describe_quality,
    explain_guarantee,
    left_exceeds_difference,
)
from comity.study.study import DRAFT
from comity.untrusted.text import escape_lines

if TYPE_CHECKING:
    from comity.federation.evaluation.subgroups import Subgroup
    from comity.study.results.result import Result

# A page shows so many lines of the transcript and so many names; the files beside it have the rest.
MAX_LINES, MAX_NAMES = 60, 3
# Subgroups in a picture, and in a table.
MAX_DRAWN, MAX_LISTED = 24, 200


@dataclass(frozen=True)
class Cost:
    """Parties whose ledgers have the same figures after the run."""

    parties: int
    names: str
    spent: str
    granted: str
    left: str


@dataclass(frozen=True)
class Traffic:
    """Bytes of one step over the whole run, in both directions."""

    step: str
    rounds: int
    parties: int
    down: int
    up: int


@dataclass(frozen=True)
class Part:
    """A section with its plots drawn."""

    heading: str
    sentences: tuple[str, ...]
    plots: tuple[Markup, ...]
    tables: tuple[Grid, ...]


def render(template: str, **values: Any) -> str:
    """A page from one of this package's templates. Every value is escaped, except for plots."""
    return _environment().get_template(template).render(**values)


def render_block(template: str, block: str, **values: Any) -> str:
    """One block of a template, for a page that shows it inside a layout of its own."""
    found = _environment().get_template(template)
    return "".join(found.blocks[block](found.new_context(values)))


def render_result(result: Result, *, audit: str | None = None) -> str:
    """The page of a run. `audit` is the name of a file beside it: the page of an audit of its study."""
    return render("report.html.jinja", **result_values(result, audit=audit))


def result_values(result: Result, *, audit: str | None = None) -> dict[str, Any]:
    """What the template of the page shows."""
    presented, assessment = result.presented, result.assessment
    first, parts = Markup(""), list[Part]()
    notes: tuple[str, ...] = ()
    if isinstance(presented, Artefact):
        own = draw_section(presented.section(result.model_noise))
        first = own.plots[0] if own.plots else first
        if first and not own.plots[1:] and not own.tables:
            # They are about the picture, and there is nothing else in the section.
            notes, own = own.sentences, replace(own, sentences=())
        parts.append(replace(own, plots=own.plots[1:]))
    parts = [*draw_subgroups(result), *parts]
    parts += [draw_section(artefact.section()) for artefact in result.beside.values()]
    parts += map(draw_section, assessment.sections)
    return {
        "result": result,
        "audit": audit,
        "learned": describe_presented(result),
        "learned_notes": notes,
        "saw": [(view.participant, describe_view(view, result.plan)) for view in result.views],
        "verdict": describe_quality(result),
        "private": describe_evaluation(result),
        "warnings": list_warnings(result),
        "costs": group_costs(result),
        "budget": draw_budget(result),
        "squares": left_exceeds_difference(result),
        "meaning": explain_guarantee(result.guarantee),
        "errors": draw_quality(result),
        "interval": result.assessment.interval,
        "first": first,
        "parts": [part for part in parts if part.sentences or part.plots or part.tables],
        "spent": format_spent(result),
        "took": f"{result.seconds:.1f} s" if result.seconds else "",
        "traffic": count_traffic(result.transcript),
        "lines": result.transcript.lines[:MAX_LINES],
        "caveats": list_caveats(result),
        "cells": format_setting,
    }


def draw_quality(result: Result) -> Markup:
    """The error beside its baselines; empty where no error was measured."""
    assessment = result.assessment
    return Markup(
        "" if assessment.error is None else draw_errors(assessment.error, assessment.baselines, assessment.measure)
    )


def draw_subgroups(result: Result) -> list[Part]:
    """The error of each subgroup of the test records, one part for each grouping."""
    parts, error = [], result.assessment.error
    for by in dict.fromkeys(one.by for one in result.assessment.subgroups):
        groups = [one for one in result.assessment.subgroups if one.by == by]
        told = [one for one in groups if one.low is not None]
        drawn = sorted(told, key=lambda one: -one.records)[:MAX_DRAWN]
        marks = [
            Mark(one.group, one.error, one.low, one.high, faint=one.verdict == "not different")
            for one in told
            if one in drawn
        ]
        levels = {} if error is None else {"all test records": error}
        about = f"Error by {by}"
        axis = "error, with 95 % intervals\n(hollow: no different from all, as far as the records tell)"
        plots = (Markup(draw_marks(about, axis, marks, levels)),) if marks else ()
        rows = tuple((one.group, one.records, one.words, one.verdict) for one in groups[:MAX_LISTED])
        grid = Grid(("group", "test records", "error (95 %)", "beside all test records"), rows, _note(groups, drawn))
        parts.append(Part(about, (_summarise(by, groups),), plots, (grid,)))
    return parts


def _summarise(by: str, groups: Sequence[Subgroup]) -> str:
    worse = [one.group for one in groups if one.verdict == "worse"]
    better = [one.group for one in groups if one.verdict == "better"]
    few = sum(one.low is None for one in groups)
    found = [f"worse for {_few(worse)}"] if worse else []
    found += [f"better for {_few(better)}"] if better else []
    said = " and ".join(found) or "not different between groups, as far as the test records tell"
    rest = f" {few} of {len(groups)} groups have too few test records to tell." if few else ""
    return f"By {by}, the error is {said}.{rest}"


def _note(groups: Sequence[Subgroup], drawn: Sequence[Subgroup]) -> str:
    left = sum(one.low is not None for one in groups) - len(drawn)
    return (
        "Exact figures of a simulation, which no guarantee covers. A group is called worse or better where chance "
        "would say so of any group of this column in at most 5 % of cases."
        + (f" The picture has the {len(drawn)} groups with the most records." if left else "")
        + (f" {len(groups) - MAX_LISTED:,} further groups are in result.json." if len(groups) > MAX_LISTED else "")
    )


def draw_section(section: Section) -> Part:
    plots = tuple(Markup(draw_plot(plot, f"{section.heading} {at}")) for at, plot in enumerate(section.plots))
    return Part(section.heading, section.sentences, plots, section.tables)


def list_warnings(result: Result) -> list[tuple[str, str]]:
    """What a reader must know first: headings with their sentences."""
    warnings = []
    if result.guarantee.seeded:
        warnings.append(
            (
                "Simulation with a seed: not a private result",
                f"The noise comes from seed {result.seed}: anyone who knows it can remove the noise. The losses below "
                "are what the same run would cost without a seed.",
            )
        )
    if result.guarantee.claim != "private":
        warnings.append((_heading(result.guarantee.claim), _about_claim(result)))
    # Notices of the study come with what was found in the records; none of them is a count.
    notices = [one for one in result.findings if DRAFT in one]
    counts = [one for one in result.findings if DRAFT not in one]
    if notices:
        warnings.append(("The schema is a draft", " ".join(map(_as_sentence, notices))))
    if counts:
        exact = "These counts are exact: no guarantee covers them."
        warnings.append(("Look at the records again", " ".join([*(one.rstrip(".") + "." for one in counts), exact])))
    return warnings


def _as_sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _heading(claim: str) -> str:
    if claim == DISCLOSING:
        return "Exact values leave their owners"
    return "Simulation only" if claim.startswith("simulation only") else "Not private as claimed"


def _about_claim(result: Result) -> str:
    claim, exposed = result.guarantee.claim, result.plan.exposed
    if not is_unproven(claim):
        return claim
    nothing = f" Nothing is bounded against {exposed}." if exposed else ""
    charged = "Ledgers were charged the loss on this page, which is never below a true loss that has a bound."
    return f"{claim}. {charged}{nothing}"


def list_caveats(result: Result) -> list[str]:
    caveats = ["Simulated on one machine, which held the records of every party."] if result.simulated else []
    uncovered = result.not_covered
    if uncovered is not None:
        caveats.append(uncovered)
    if not result.masks:
        caveats.append(
            "Parties ran as stacks, as they do above 1,000 parties or without hosts: masks are left out, because they "
            "cancel, and the same quantised contributions are added up. Bytes count the contributions alone."
        )
    if result.guarantee.unit == "a whole party":
        caveats.append(
            "The unit is a whole party: the loss bounds what can be learned about all records of one party together."
        )
    if not result.guarantee.seeded:
        caveats.append("The noise was drawn as for a release, without a seed, so another run gives another result.")
    return caveats + list(result.plan.notes)


def group_costs(result: Result) -> list[Cost]:
    """One line for all ledgers with the same figures: a thousand owners who paid alike are one line."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for account in result.accounts:
        groups.setdefault((account.spent, account.granted, account.left), []).append(account.party)
    # A simulation of very many parties has one ledger for all of them.
    alike = len(groups) == 1
    return [
        Cost(
            result.parties if alike else len(names),
            "all parties" if alike and result.parties > MAX_NAMES else _few(names),
            spent,
            granted,
            left,
        )
        for (spent, granted, left), names in groups.items()
    ]


def draw_budget(result: Result) -> Markup:
    """What the largest payer granted, what this run took, and what is left; empty where a ledger has no limit."""
    costs = group_costs(result)
    found = [_epsilon(text) for text in (costs[0].granted, costs[0].spent, costs[0].left)] if costs else []
    if len(found) < 3 or None in found or costs[0].granted == "no limit":
        return Markup("")
    named = zip(("granted", "spent in all", "left"), found, (False, True, False))
    amounts = [Amount(label, float(value or 0), f"epsilon {value}", ours) for label, value, ours in named]
    return Markup(draw_amounts("Budget after the run, as epsilon", amounts, most=max(one.value for one in amounts)))


def _epsilon(text: str) -> str | None:
    """The epsilon in the text of a loss. A result that was read from a folder may have any text."""
    found = re.search(r"eps ([0-9]{1,9}(?:\.[0-9]{1,9})?)", text)
    return None if found is None else found[1]


def count_traffic(transcript: Transcript) -> list[Traffic]:
    """Bytes and rounds by step; repeated asks of a step are summed."""
    steps: dict[str, list[int]] = {}
    for line in transcript:
        sums = steps.setdefault(line.path.partition("[")[0], [0, 0, 0, 0])
        down = line.direction == "to parties"
        sums[0] += down
        sums[1] = max(sums[1], line.parties)
        sums[2 if down else 3] += line.bytes
    return [Traffic(step, *sums) for step, sums in steps.items()]


def format_spent(result: Result) -> str:
    """The ε of the run for a headline, rounded up as every loss is."""
    return f"eps {format_up(Decimal(repr(result.guarantee.epsilon)), decimals=2)}"


def format_setting(value: object) -> str:
    """A setting or a figure as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {format_setting(one)}" for key, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(format_setting, value))
    return "-" if value is None else str(value)


def format_cell(value: object) -> str:
    """A cell of a table; numbers have four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)


def format_figure(value: float) -> str:
    """A figure with three decimals; a count without any."""
    return f"{value:,.0f}" if abs(value) >= 1 and float(value).is_integer() else f"{value:.3f}"


def format_code(text: str) -> Markup:
    """A text in which parts between backticks are commands or files."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(escape_lines(text)))))


def format_sentence(text: str) -> str:
    """A text that begins as a sentence does, unless it begins with a name of the program."""
    word = text.split(" ")[0].rstrip(":,")
    return text[:1].upper() + text[1:] if word.isalpha() else text


def format_bytes(count: float) -> str:
    """Bytes in a unit that leaves at most four digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else "")


def _without_hidden(value: Any) -> Any:
    """A text that others may have written, without characters that hide or reorder it. Plots are made here."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else escape_lines(value)


@cache
def _environment() -> Environment:
    return make_environment(PackageLoader("comity.report", "templates"))


def make_environment(loader: BaseLoader) -> Environment:
    """Templates in which every value is escaped, and characters that hide or reorder text are written out."""
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_hidden,
    )
    environment.filters["size"] = format_bytes
    environment.filters["figure"] = format_figure
    environment.filters["sentence"] = format_sentence
    environment.filters["code"] = format_code
    environment.filters["cell"] = format_cell
    environment.filters["delta"] = lambda value: format_small(Decimal(repr(value)))
    return environment

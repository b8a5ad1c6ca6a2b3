"""The page of a run: four answers first, details below. One file; it asks no other machine for anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from comity.artefacts.artefact import Artefact
from comity.artefacts.section import Grid, Section
from comity.federation.coordinator.transcript import Transcript
from comity.federation.declare.declaration import DISCLOSING, is_unproven
from comity.privacy.loss import shown, shown_small
from comity.report.card import what_it_is
from comity.report.meaning import meaning
from comity.report.plots import errors_plot, plotted
from comity.report.quality import measured_privately, not_covered, verdict

if TYPE_CHECKING:
    from comity.report.result import Result

# More lines of a transcript, or names, than a reader takes in; the rest is in the files beside the page.
LINES, NAMES = 60, 3


@dataclass(frozen=True)
class Cost:
    """Parties whose ledgers read alike after the run."""

    parties: int
    names: str
    spent: str
    granted: str
    left: str


@dataclass(frozen=True)
class Traffic:
    """One step over the whole run, both directions."""

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
    """A page from one of this package's templates; every value is escaped unless it was made by `plots`."""
    return _environment().get_template(template).render(**values)


def render_result(result: Result) -> str:
    presented, assessment = result.presented, result.assessment
    first, parts = "", []
    if isinstance(presented, Artefact):
        own = drawn(presented.section(result.model_noise))
        first = own.plots[0] if own.plots else ""
        parts.append(replace(own, plots=own.plots[1:]))
    parts += [drawn(artefact.section()) for artefact in result.beside.values()]
    parts += map(drawn, assessment.sections)
    return render(
        "report.html.jinja",
        result=result,
        learned=what_it_is(result),
        verdict=verdict(result),
        private=measured_privately(result),
        warnings=warnings(result),
        costs=costs(result),
        meaning=meaning(result.guarantee),
        errors=quality_plot(result),
        first=first,
        parts=[part for part in parts if part.sentences or part.plots or part.tables],
        spent=spent(result),
        took=f"{result.seconds:.1f} s" if result.seconds else "",
        traffic=traffic(result.transcript),
        lines=result.transcript.lines[:LINES],
        caveats=caveats(result),
        cells=cells,
    )


def quality_plot(result: Result) -> Markup:
    """The error beside its baselines; empty where none was measured."""
    found = result.assessment
    return Markup("" if found.error is None else errors_plot(found.error, found.baselines, found.measure))


def drawn(section: Section) -> Part:
    plots = tuple(Markup(plotted(plot, f"{section.heading} {at}")) for at, plot in enumerate(section.plots))
    return Part(section.heading, section.sentences, plots, section.tables)


def warnings(result: Result) -> list[tuple[str, str]]:
    """What a reader must know before anything else: heading and sentence."""
    found = []
    if result.guarantee.seeded:
        found.append(
            (
                "Simulation with a seed: not a private result",
                f"The noise comes from seed {result.seed} and can be taken off again by whoever knows it. The losses "
                "below are what the same run would cost without a seed.",
            )
        )
    if result.guarantee.claim != "private":
        found.append((_heading(result.guarantee.claim), _about_claim(result)))
    if result.findings:
        counted = " These counts are exact: no guarantee covers them."
        found.append(("Look at the records again", " ".join(result.findings) + counted))
    return found


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


def caveats(result: Result) -> list[str]:
    found = ["Simulated on one machine, which held the records of every party."] if result.simulated else []
    uncovered = not_covered(result)
    if uncovered is not None:
        found.append(uncovered)
    if not result.masks:
        found.append(
            "Parties ran as stacks, as above 1,000 of them or without hosts: masks are left out, because they cancel, "
            "and the same quantised contributions are added up. Bytes are those of the contributions alone."
        )
    if result.guarantee.unit == "a whole party":
        found.append(
            "The unit is a whole party: the loss bounds what can be told of all records of one party together."
        )
    if not result.guarantee.seeded:
        found.append("The noise was drawn as for a release, without a seed, so another run gives another result.")
    return found + list(result.plan.notes)


def costs(result: Result) -> list[Cost]:
    """Equal ledgers share a line: a thousand owners who paid alike are one."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for account in result.accounts:
        groups.setdefault((account.spent, account.granted, account.left), []).append(account.party)
    # A simulation of very many parties keeps one ledger for all of them.
    alike = len(groups) == 1
    return [
        Cost(
            result.parties if alike else len(names),
            "all parties" if alike and result.parties > NAMES else _few(names),
            spent,
            granted,
            left,
        )
        for (spent, granted, left), names in groups.items()
    ]


def traffic(transcript: Transcript) -> list[Traffic]:
    """Bytes and rounds by step; labels of repeated asks are summed."""
    steps: dict[str, list[int]] = {}
    for line in transcript:
        sums = steps.setdefault(line.path.partition("[")[0], [0, 0, 0, 0])
        down = line.direction == "to parties"
        sums[0] += down
        sums[1] = max(sums[1], line.parties)
        sums[2 if down else 3] += line.bytes
    return [Traffic(step, *sums) for step, sums in steps.items()]


def spent(result: Result) -> str:
    """The ε of the run for a headline, rounded up like every loss."""
    return f"eps {shown(Decimal(repr(result.guarantee.epsilon)), decimals=2)}"


def cells(value: object) -> str:
    """A setting or a figure as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {cells(one)}" for key, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(cells, value))
    return "-" if value is None else str(value)


def cell(value: object) -> str:
    """A cell of a table: numbers with the digits that a reader takes in."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)


def size(count: float) -> str:
    """Bytes in the unit that leaves at most four digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMES]) + (f" and {len(names) - NAMES:,} more" if len(names) > NAMES else "")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("comity.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = size
    environment.filters["cell"] = cell
    environment.filters["delta"] = lambda value: shown_small(Decimal(repr(value)))
    return environment

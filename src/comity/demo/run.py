"""`comity demo`: error against ε for the default and the published methods, and one run with noise as released."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from markupsafe import Markup

from comity.artefacts.section import Curve, Curves, Dot
from comity.artefacts.writing import write_text
from comity.demo.consortia import DEFAULT, L2, SmallConsortium, clinic_consortium, tumour_consortium
from comity.federation.consortium import Consortium
from comity.federation.parties import Progress
from comity.federation.protection import Entrusted
from comity.federation.protocol import spec_of
from comity.federation.released import Total
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.randomness import SeededNoise
from comity.protocols.softlabel import PublishedSoftLabel, SoftLabel
from comity.report.page import render
from comity.report.plots import curves_plot
from comity.report.result import Result
from comity.report.versions import versions
from comity.runtime.local.cohort import Cohort
from comity.runtime.simulate import simulate, stacks

METHODS = (DEFAULT, "avg", "soft", "vote")
EPSILONS = (0.3, 1.0, 3.0, 10.0)
DELTA = 1e-6
REPEATS = 20
# In the default every party draws a part of the noise, so that a repeat is a whole run.
WHOLE_RUNS = 8
# The run that is saved has real hosts, with a grant that leaves room for more.
SAVED_PARTIES, SAVED_EPSILON, GRANT = 150, 2.0, 5.0


@dataclass(frozen=True)
class Row:
    """Mean test error of a method at an ε over seeded repeats, beside what it is compared with."""

    dataset: str
    method: str
    epsilon: float
    error: float
    spread: float
    repeats: int
    constant: float
    own_data: float
    pooled: float
    without_noise: float | None


def run_demo(out: Path, progress: Progress | None = None, *, repeats: int = REPEATS) -> dict[str, Any]:
    """Write report.html, error.svg and run/ into `out`; returns the table and their paths.

    The table comes from seeded repeats, which protect nobody; the saved run has no seed.
    """
    said = progress or (lambda words: None)
    out = Path(out)
    said("generating records")
    consortia = (clinic_consortium(), tumour_consortium())
    rows: list[Row] = []
    cells = len(consortia) * len(METHODS)
    for one in consortia:
        for method in METHODS:
            said(f"error against epsilon {len(rows) // len(EPSILONS)}/{cells}")
            rows += measured(one, method, repeats)
    said("one run without a seed")
    result = saved_run(consortia[0], out / "run")
    said("writing the report")
    plots = [curves_plot(_curves(rows, one.name, repeats), one.name) for one in consortia]
    page = render(
        "demo.html.jinja",
        consortia=list(zip(consortia, map(Markup, plots), (_of(rows, one.name) for one in consortia))),
        result=result,
        epsilons=EPSILONS,
        methods=METHODS,
        repeats=repeats,
        whole_runs=min(repeats, WHOLE_RUNS),
        l2=L2,
        delta=DELTA,
        versions=versions(),
    )
    write_text(out / "report.html", page)
    write_text(out / "error.svg", _standalone(plots[0]))
    return {
        "table": [asdict(row) for row in rows],
        "report": str(out / "report.html"),
        "plot": str(out / "error.svg"),
        "run": str(out / "run"),
    }


def measured(one: SmallConsortium, method: str, repeats: int) -> Iterator[Row]:
    """The rows of one method: its steps on stacks of parties, with noise from seeds 0, 1, 2 …"""
    protocol = one.protocol(method)
    repeats = min(repeats, WHOLE_RUNS) if method == DEFAULT else repeats
    compared = {found.name: found.error for found in protocol.compare(list(one.parties.values()), one.test)}
    sums: dict[str, Total] = {}
    for epsilon in EPSILONS:
        errors = [seeded_error(one, protocol, epsilon, seed, sums) for seed in range(repeats)]
        yield Row(
            dataset=one.name,
            method=method,
            epsilon=epsilon,
            error=fmean(errors),
            spread=pstdev(errors),
            repeats=repeats,
            constant=compared["constant"],
            own_data=compared["own data"],
            pooled=compared["pooled"],
            without_noise=compared.get("without noise"),
        )


class Repeated(Cohort):
    """A cohort whose entrusted sums are taken from an earlier one: they carry no noise of the parties, so that repeats
    differ in the coordinator's noise alone."""

    def __init__(self, *arguments: Any, sums: dict[str, Total], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sums = sums

    def sum(self, step: Callable[..., Any], **values: Any) -> Total:
        name, sends = spec_of(step).name, spec_of(step).sends
        if sends is None or not isinstance(self.declaration[sends].protection, Entrusted):
            return super().sum(step, **values)
        if name not in self._sums:
            self._sums[name] = super().sum(step, **values)
        return self._sums[name]


def seeded_error(
    one: SmallConsortium, protocol: SoftLabel | PublishedSoftLabel, epsilon: float, seed: int, sums: dict[str, Total]
) -> float:
    who = Consortium(parties=tuple(one.parties), loss=Approx(epsilon, DELTA))
    cohort = Repeated(
        protocol,
        who,
        blocks=lambda most: stacks(list(one.parties.values()), most),
        noise=SeededNoise(seed),
        ledger=Ledger.in_memory(unit=who.unit, neighbours=who.neighbours),
        study="demo",
        run=f"{epsilon}-{seed}",
        sums=sums,
    )
    released = cohort.released()
    return protocol.score(protocol.present(released, who), one.test)


def saved_run(one: SmallConsortium, folder: Path) -> Result:
    """One run with real hosts, ledgers and noise as released."""
    outcome = simulate(
        one.protocol(DEFAULT),
        parties=dict(list(one.parties.items())[:SAVED_PARTIES]),
        epsilon=SAVED_EPSILON,
        delta=DELTA,
        test=one.test,
        grant=GRANT,
        study=f"demo {one.name}",
        settings={
            "privacy.unit": "party",
            "privacy.neighbours": "replace",
            "privacy.epsilon": SAVED_EPSILON,
            "privacy.delta": DELTA,
            "softlabel.statistic": "auto",
            "softlabel.records_per_party": one.records_per_party,
            "softlabel.rows": "normalised",
        },
    )
    result = Result.of(outcome)
    result.save(folder)
    return result


def _of(rows: Sequence[Row], dataset: str) -> list[Row]:
    return [row for row in rows if row.dataset == dataset]


def _curves(rows: Sequence[Row], dataset: str, repeats: int) -> Curves:
    of = _of(rows, dataset)
    return Curves(
        dataset,
        "epsilon spent by each party (more is less private)",
        f"test error, mean of {repeats} ± spread",
        tuple(
            Curve(
                method,
                tuple(row.epsilon for row in found),
                tuple(row.error for row in found),
                tuple(row.spread for row in found),
            )
            for method in METHODS
            if (found := [row for row in of if row.method == method])
        ),
        (Dot("constant", of[0].constant), Dot("own data", of[0].own_data), Dot("pooled", of[0].pooled)),
        logarithmic=True,
    )


def _standalone(plot: str) -> str:
    """A plot as a file of its own needs the namespaces that a page does without."""
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return plot.replace("<svg", f"<svg {names}", 1)

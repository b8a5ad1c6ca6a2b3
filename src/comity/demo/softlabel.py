"""Soft labels in the demonstration: the default and the published methods, error against ε on two consortia."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, Literal

from comity.demo.shown import DELTA, EPSILONS, Case, Row, Shown
from comity.demo.softlabel_consortia import DEFAULT, L2, SmallConsortium, clinic_consortium, tumour_consortium
from comity.federation.coordinator.parties import Progress
from comity.federation.coordinator.released import Total
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.protection import Entrusted
from comity.federation.step import spec_of
from comity.methods.softlabel import PublishedSoftLabel, SoftLabel
from comity.methods.softlabel.published.protocol import Method
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.randomness import SeededNoise
from comity.report.result import Result
from comity.study.local.cohort import Cohort, stacks
from comity.study.simulation.simulate import simulate

NAME = "softlabel"
METHODS: tuple[Literal["default"] | Method, ...] = (DEFAULT, "avg", "soft", "vote")
# In the default every party draws a part of the noise, so that a repeat is a whole run.
WHOLE_RUNS = 8
# The run that is saved has real hosts, with a grant that leaves room for more.
SAVED_PARTIES, SAVED_EPSILON, GRANT = 150, 2.0, 5.0


def demonstrate(folder: Path, said: Progress, repeats: int) -> Shown:
    """Both consortia, every method, and one run without a seed in `folder`."""
    said("softlabel: generating records")
    consortia = (clinic_consortium(), tumour_consortium())
    cases, done = [], 0
    for one in consortia:
        rows: list[Row] = []
        for method in METHODS:
            said(f"softlabel: error against epsilon {done}/{len(consortia) * len(METHODS)}")
            rows += measured(one, method, repeats)
            done += 1
        cases.append(Case(one.name, one.about, tuple(rows)))
    said("softlabel: one run without a seed")
    return Shown(
        NAME,
        "Soft-label transfer",
        f"ours and as published (Hamm, Cao, Belkin 2016) · regularisation {L2} for every published method and epsilon",
        "a whole party, replaced",
        METHODS,
        tuple(cases),
        NOTES,
        f"{repeats} draws of the noise (default: {min(repeats, WHOLE_RUNS)} whole runs)",
        saved_run(consortia[0], folder),
    )


NOTES = (
    "default sums one statistic of all parties securely and opens it with shared noise: no coordinator is trusted, and "
    "which statistic it is follows from public figures. The other three are the published methods: avg averages the "
    "parties' local models; soft trains on the shares of their votes on public records; vote on the majority. A "
    "trusted coordinator adds the noise. The sensitivities are those that we derive; the printed ones are larger.",
    "The noise of soft shrinks with the number of parties times the regularisation, that of vote does not shrink with "
    "the number of parties at all, and that of avg shrinks with the number of parties and only the root of the "
    "regularisation.",
)


def measured(one: SmallConsortium, method: Literal["default"] | Method, repeats: int) -> Iterator[Row]:
    """The rows of one method: its steps on stacks of parties, with noise from seeds 0, 1, 2 …"""
    protocol = one.protocol(method)
    repeats = min(repeats, WHOLE_RUNS) if method == DEFAULT else repeats
    compared = {found.name: found.error for found in protocol.compare(list(one.parties.values()), one.test)}
    sums: dict[str, Total] = {}
    for epsilon in EPSILONS:
        errors = [seeded_error(one, protocol, epsilon, seed, sums) for seed in range(repeats)]
        yield Row(
            protocol=NAME,
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
        sends = spec_of(step, self.consortium).sends
        if sends is None or not isinstance(self.declaration[sends].protection, Entrusted):
            return super().sum(step, **values)
        if sends not in self._sums:
            self._sums[sends] = super().sum(step, **values)
        return self._sums[sends]


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

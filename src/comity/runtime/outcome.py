"""What a run gives back: plain values, the same wherever it ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from comity.federation.baseline import Baseline
from comity.federation.consortium import Consortium
from comity.federation.declaration import Declaration
from comity.federation.evaluation.figures import Figures
from comity.federation.plan import Plan
from comity.federation.transcript import Transcript


@dataclass(frozen=True)
class Guarantee:
    """What the run cost each party, in which unit, against whom. A seeded run is no private result."""

    loss: str
    epsilon: float
    delta: float
    unit: str
    neighbours: str
    adversary: str
    claim: str
    seeded: bool

    @property
    def private(self) -> bool:
        return self.claim == "private" and not self.seeded

    def __str__(self) -> str:
        text = f"{self.loss} per party; unit: {self.unit}, {self.neighbours}; against {self.adversary}"
        if self.claim != "private":
            text += f"; {self.claim}"
        return text + ("; made with a seed: a simulation, not a private release" if self.seeded else "")


@dataclass(frozen=True)
class Account:
    """One party's ledger after the run, as text rounded to the unsafe-looking side."""

    party: str
    granted: str
    spent: str
    left: str


@dataclass(frozen=True, eq=False)
class Outcome:
    study: str
    study_hash: str
    run: str
    protocol: str
    model: Any
    released: Mapping[str, Any]
    guarantee: Guarantee
    plan: Plan
    declaration: Declaration
    consortium: Consortium
    transcript: Transcript
    accounts: tuple[Account, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    error: float | None = None
    seconds: float = 0.0
    parties: int = 0
    masks: bool = True
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Measured under privacy on records that were set aside, where the study has an evaluation.
    evaluation: Figures | None = None
    # What is odd about the records, in sentences with exact counts: for the researcher, who holds all of them.
    findings: tuple[str, ...] = ()

    def baseline(self, name: str) -> Baseline | None:
        return next((b for b in self.baselines if b.name == name), None)

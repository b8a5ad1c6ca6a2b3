"""What a run gives back: plain values, the same wherever it ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from comity.artefacts.artefact import Artefact
from comity.federation.assessment import Assessment
from comity.federation.baseline import Baseline
from comity.federation.coordinator.delivery import Received
from comity.federation.coordinator.transcript import Transcript
from comity.federation.declaring.consortium import Consortium
from comity.federation.declaring.declaration import Declaration
from comity.federation.declaring.payers import Payer, in_words
from comity.federation.declaring.plan import Plan
from comity.federation.evaluation.figures import Figures


@dataclass(frozen=True)
class Guarantee:
    """What the run cost, in which unit, against whom. A seeded run is no private result.

    `loss` and `epsilon` are the most that it cost a party; `payers` are all that paid differently, the largest first.
    """

    loss: str
    epsilon: float
    delta: float
    unit: str
    neighbours: str
    adversary: str
    claim: str
    seeded: bool
    payers: tuple[Payer, ...] = ()

    @property
    def losses(self) -> dict[str, str]:
        """What each distinct payer lost, by what it is called."""
        return {payer.name: payer.loss for payer in self.payers} or {"each party": self.loss}

    @property
    def private(self) -> bool:
        return self.claim == "private" and not self.seeded

    def __str__(self) -> str:
        paid = in_words(self.payers) if len(self.payers) > 1 else f"{self.loss} per party"
        text = f"{paid}; unit: {self.unit}, {self.neighbours}; against {self.adversary}"
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
    """`presented` is what the method makes of its releases, `beside` further artefacts by the folder they belong in."""

    study: str
    study_hash: str
    run: str
    protocol: str
    presented: Any
    released: Mapping[str, Any]
    guarantee: Guarantee
    plan: Plan
    declaration: Declaration
    consortium: Consortium
    transcript: Transcript
    accounts: tuple[Account, ...] = ()
    assessment: Assessment = field(default_factory=Assessment)
    beside: Mapping[str, Artefact] = field(default_factory=dict)
    # What each party has of the run, where parties are few or somebody asked; and what the method makes of it for each.
    received: Mapping[str, Received] = field(default_factory=dict)
    presented_to: Mapping[str, Any] = field(default_factory=dict)
    # What the method makes of the values that each party's own steps left with it: nobody else's.
    kept: Mapping[str, Mapping[str, Artefact]] = field(default_factory=dict)
    seconds: float = 0.0
    parties: int = 0
    masks: bool = True
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Measured under privacy on records that were set aside, where the study has an evaluation.
    evaluation: Figures | None = None
    # What is odd about the records, in sentences with exact counts: for the researcher, who holds all of them.
    findings: tuple[str, ...] = ()

    @property
    def model(self) -> Any:
        """What was presented, by the name that it has where it predicts."""
        return self.presented

    @property
    def error(self) -> float | None:
        return self.assessment.error

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        return self.assessment.baselines

    def baseline(self, name: str) -> Baseline | None:
        return next((b for b in self.baselines if b.name == name), None)

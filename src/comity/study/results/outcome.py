"""What a run gives back: plain values, the same wherever it ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR
from typing import Any

from comity.artefacts.artefact import Artefact
from comity.federation.agreement import Agreement
from comity.federation.coordinator.transcript import Transcript
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.payers import Payer, delta_of, format_payers, format_spent, largest_cost, payers
from comity.federation.evaluation.assessment import Assessment, Baseline
from comity.federation.evaluation.figures import Figures
from comity.federation.messages.received import Received
from comity.federation.plan import Plan, plan
from comity.privacy.ledger import Account as LedgerAccount
from comity.privacy.ledger import format_rounded
from comity.privacy.loss import float_above
from comity.representation import NamedValues, short_repr
from comity.untrusted.text import escape_line


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
        paid = format_payers(self.payers) if len(self.payers) > 1 else f"{self.loss} per party"
        text = f"{paid}; unit: {self.unit}, {self.neighbours}; against {self.adversary}"
        if self.claim != "private":
            text += f"; {self.claim}"
        # It is printed, and a result that was read from a folder may claim anything.
        return escape_line(text + ("; made with a seed: a simulation, not a private release" if self.seeded else ""))


@dataclass(frozen=True)
class Account:
    """One party's ledger after the run, as text, rounded so that no budget looks larger than it is."""

    party: str
    granted: str
    spent: str
    left: str

    @classmethod
    def of(cls, party: str, summary: LedgerAccount, consortium: Consortium) -> Account:
        """As its owner reads it."""
        unlimited = "no limit"
        return cls(
            party,
            granted=unlimited if summary.granted is None else str(summary.granted),
            spent=format_spent(summary.spent, delta_of(consortium)),
            left=unlimited if summary.left is None else f"eps {format_rounded(summary.left, ROUND_FLOOR)}",
        )


@dataclass(frozen=True, eq=False)
class Outcome:
    """`presented` is what the method makes of its releases, `beside` further artefacts by the folder they belong in."""

    __repr__ = short_repr

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
    assessment: Assessment = field(default_factory=Assessment, repr=False)
    beside: Mapping[str, Artefact] = field(default_factory=dict)
    # What each party has of the run, where parties are few or somebody asked; and what the method makes of it for each.
    received: Mapping[str, Received] = field(default_factory=dict)
    presented_to: Mapping[str, Any] = field(default_factory=dict)
    # What the method makes of the values that each party's own steps left with it: nobody else's.
    kept: Mapping[str, Mapping[str, Artefact]] = field(default_factory=dict, repr=False)
    seconds: float = 0.0
    parties: int = 0
    masks: bool = True
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Measured under privacy on records that were set aside, where the study has an evaluation.
    evaluation: Figures | None = None
    # Whether one machine had the records of every party, or each owner its own.
    simulated: bool = True
    # What is odd about the records, in sentences with exact counts: for the researcher, who holds all of them.
    findings: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        agreed: Agreement,
        released: Mapping[str, Any],
        transcript: Transcript,
        *,
        run: str,
        kept: Mapping[str, Any] | None = None,
        accounts: tuple[Account, ...] = (),
        seed: int | None = None,
        partly: bool = False,
    ) -> Outcome:
        """Wherever it ran, from what its coordinator has at its end: what was `released`, and `kept` on the way. Or,
        `partly`, from what a party has, which may not have been released what the rest takes."""

        def made(make: Callable[[], Any]) -> Any:
            try:
                return make()
            except KeyError:
                if partly:
                    return None
                raise

        protocol, consortium = agreed.protocol, agreed.consortium
        declaration = protocol.accepted(consortium)
        spent, delta, shown = (
            largest_cost(declaration, consortium),
            delta_of(consortium),
            plan(agreed.title, protocol, consortium),
        )
        return cls(
            study=agreed.title,
            study_hash=agreed.study,
            run=run,
            protocol=protocol.name,
            presented=made(lambda: protocol.present(released, consortium)),
            beside=made(lambda: protocol.beside(released, consortium, study=agreed.study, run=run)) or {},
            released=NamedValues({**(kept or {}), **released}),
            guarantee=Guarantee(
                loss=format_spent(spent, delta),
                epsilon=float_above(spent.epsilon_at(delta)),
                delta=float(delta),
                unit=shown.unit,
                neighbours=shown.neighbours,
                adversary=declaration.adversary,
                claim=declaration.claim,
                seeded=seed is not None,
                payers=payers(declaration, consortium),
            ),
            plan=shown,
            declaration=declaration,
            consortium=consortium,
            transcript=transcript,
            accounts=accounts,
            parties=consortium.size,
            seed=seed,
            evaluation=None
            if consortium.evaluation is None
            else made(lambda: protocol.model_evaluation(consortium).figures(released, consortium)),
        )

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

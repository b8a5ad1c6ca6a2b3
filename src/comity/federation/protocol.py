"""Protocol and step: how a method is written.

A protocol declares its releases, coordinates steps, and holds the steps that run at the sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from comity.artefacts.artefact import Artefact
from comity.data import LocalRecords, Records
from comity.errors import StudyError
from comity.federation.constraints import check_fields
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration, TrueLoss
from comity.federation.declare.evaluation import Evaluation
from comity.federation.evaluation.assessment import Assessment, Baseline, Figure, assess_predictor
from comity.federation.evaluation.own_score import OwnScore, score_predictor
from comity.federation.evaluation.protocol import ModelEvaluation, RecordEvaluation
from comity.federation.evaluation.score_card import PredictionTask
from comity.federation.messages.received import Received
from comity.federation.part import Part, step
from comity.privacy.unit import Unit
from comity.representation import short_repr

if TYPE_CHECKING:
    from comity.federation.coordinator.parties import Parties

__all__ = ["Protocol", "presented_to", "step"]


class Protocol(Part):
    """A whole method. Subclasses are frozen dataclasses whose fields are the study's parameters."""

    version: ClassVar[int] = 2
    variant: ClassVar[str] = "default"
    """The form of the method, as an owner's policy names it: `published` is that of the paper."""
    roles: ClassVar[tuple[str, ...]] = ()
    """What its releases call the parties, where these do not all do the same."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:
            # Before the decorator of a dataclass writes one with every array and every column.
            cls.__repr__ = short_repr  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Every field holds what its type says; a method that has more to check does so after this."""
        check_fields(self)

    @property
    def stackable(self) -> bool:
        """Whether the coordinator asks for sums alone, so that very many parties can be simulated in stacks."""
        return True

    @property
    def scratch(self) -> int:
        """How many numbers a step holds for one party, where these are more than its contribution: stacks are sized by
        it."""
        return 0

    def accepted(self, consortium: Consortium) -> Declaration:
        """What it declares in this consortium, with its parts; or the refusal of whatever public figures rule out."""
        declaration = self.declared(consortium).accept(consortium)
        for part in self.parts.values():
            part.declare(consortium).accept(consortium, beside=declaration)
        return declaration

    def declared(self, consortium: Consortium) -> Declaration:
        """Everything that a run declares: the method's releases, and those of its evaluation where the study has one.

        Only releases that are added here, for the evaluation, are of the set-aside part; a method that claims it of its
        own is refused.
        """
        own = self.declare(consortium)
        if own.holdout:
            raise StudyError(
                f"{self.name} declares {own.holdout[0]} as being of records that it does not see", key="evaluation"
            )
        if consortium.evaluation is None:
            return own
        names = {release.name for release in own.releases}
        measured = self.model_evaluation(consortium).declare(consortium).releases
        clash = [r.name for r in measured if r.name in names and r not in own.releases]
        if clash:
            raise StudyError(f"{self.name} and its evaluation both release {clash[0]!r}", key="evaluation")
        added = tuple(release for release in measured if release.name not in names)
        holdout = tuple(release.name for release in added if release.loss is not None)
        return replace(own, releases=(*own.releases, *added), holdout=holdout)

    @property
    def prediction_task(self) -> PredictionTask | None:
        """What the presented model answers about a record; None where it answers nothing that a label could check."""
        return None

    def on_training_part(self, terms: Evaluation) -> Protocol:
        """The same method, laid out for the records that its study's evaluation leaves to it."""
        return self

    def model_evaluation(self, consortium: Consortium) -> ModelEvaluation:
        """How the presented model is measured on records that were set aside."""
        if self.prediction_task is None:
            raise StudyError(
                f"[evaluation] measures a model that predicts; {self.title_in(consortium)} releases none: leave it out",
                key="evaluation",
            )
        return RecordEvaluation(self)

    def streams(self, consortium: Consortium) -> bool:
        """Whether all that its steps take from an owner's records is `site.total`, so that they may come in blocks."""
        return False

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        """Ask for steps and return the released values by the name of their release."""
        raise NotImplementedError(f"{type(self).__name__} coordinates nothing")

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> Any:
        """What a consumer works with, from released values alone: an artefact (`comity.artefacts`), which saves, loads,
        describes and draws itself; without one, the values by their names.

        A receiver that was not released what it takes has nothing to work with: KeyError says so.
        """
        return dict(released)

    def present_received(self, found: Received, consortium: Consortium) -> Any:
        """What a party works with of what it has of a run; KeyError where it was not released what that takes."""
        return self.present(found.releases, consortium)

    def present_own(self, own: Mapping[str, Any], consortium: Consortium) -> Mapping[str, Artefact]:
        """What an owner works with of the values that its own steps delivered to it, by their names: written into its
        folder, beside the values, and nowhere else."""
        return {}

    def beside(
        self, released: Mapping[str, Any], consortium: Consortium, *, study: str, run: str
    ) -> Mapping[str, Artefact]:
        """Further artefacts of a run of the study with this hash, by the name of the folder that each belongs in."""
        return {}

    def assess(self, presented: Any, train: Sequence[Records] | None, test: Records) -> Assessment:
        """Simulation only: how good what was presented is, on test records. `train` are the parties' own records, or
        None where nobody asked for comparisons. This is for models that predict; a method whose quality is not one
        number has its own."""
        compared = [] if train is None else self.compare(train, test)
        return assess_predictor(presented, test, self.score(presented, test), compared)

    def clipped_fractions(
        self, opened: Mapping[str, Any], train: Sequence[Records], consortium: Consortium
    ) -> tuple[Figure, ...]:
        """Simulation only: what share of the records, or of the parties where these are the unit, each of the method's
        bounds cuts. It is found by exact records and by what a run opened on its way, and so it is no release."""
        return ()

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        """Simulation only: what a constant, the parties alone, and all records pooled would reach on test records."""
        return []

    def score(self, model: Any, test: Records) -> float | None:
        """Simulation only: the error of a presented model on test records."""
        return None

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        """How good what an owner was presented is on its own records, which never leaves it; None where they can't say.
        This is for models that predict from whole records."""
        return score_predictor(presented, records, self.prediction_task) if hasattr(presented, "predict") else None

    def expectation(self, consortium: Consortium) -> str:
        """One line for the plan: how much noise to expect, from public quantities; empty if there is no estimate."""
        return ""

    @property
    def charged_once(self) -> str:
        """Why several ledgers are charged for what is one and the same loss. Empty where each charge is a loss of its
        own: then a person with records at several parties loses more than any one of them is charged."""
        return ""

    def declared_units(self, consortium: Consortium) -> int | None:
        """How many units the study declares, in all; None where it declares no number."""
        return consortium.size if consortium.unit is Unit.PARTY else None

    def true_losses(self, consortium: Consortium) -> tuple[TrueLoss, ...]:
        """Of a published method: what it loses in truth, to whom, beside what its paper claims. Every published
        variant states it; a method whose declared loss is its own claim has nothing to compare."""
        return ()

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        """What nobody should overlook in the plan, beyond the claim."""
        return ()

    def title_in(self, consortium: Consortium) -> str:
        """The method as it runs in this consortium, in a few words."""
        return str(getattr(self, "title", self.name))

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        """Further lines for the plan: what a reader should know that no release says by itself."""
        return ()


def presented_to(protocol: Protocol, found: Received, consortium: Consortium) -> Any:
    """What a receiver works with, or None where it was not released what that takes."""
    try:
        return protocol.present_received(found, consortium)
    except KeyError:
        return None

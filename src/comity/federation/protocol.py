"""Protocol and step: how a method is written.

A protocol declares its releases, coordinates steps, and holds the steps that run at the sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from comity.artefacts.artefact import Artefact
from comity.compiled import require_compiler
from comity.data import Records
from comity.errors import StudyError
from comity.federation.constraints import check_fields
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration, TrueLoss
from comity.federation.declare.evaluation import Evaluation
from comity.federation.evaluation.adaptation import Adaptation
from comity.federation.evaluation.assessment import Assessment, Baseline, Figure, assess_predictor
from comity.federation.evaluation.own_score import OwnScore, score_predictor
from comity.federation.evaluation.protocol import ModelEvaluation, RecordEvaluation
from comity.federation.evaluation.score_card import PredictionTask
from comity.federation.evaluation.subgroups import record_errors
from comity.federation.messages.received import Received
from comity.federation.part import Part, step
from comity.privacy.unit import Unit
from comity.representation import short_repr

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from comity.data import LocalRecords
    from comity.federation.coordinator.parties import Parties

__all__ = ["Protocol", "presented_to", "step"]


class Protocol(Part):
    """A whole method. Subclasses are frozen dataclasses whose fields are the study's parameters."""

    version: ClassVar[int] = 2
    variant: ClassVar[str] = "default"
    """The form of the method, as an owner's policy names it: `published` is that of the paper."""
    roles: ClassVar[tuple[str, ...]] = ()
    """The roles that its releases name, where not all parties do the same."""
    assesses_own: ClassVar[bool] = False
    """Whether a simulation measures what owners keep at their sites (`assess_own`)."""
    has_record_errors: ClassVar[bool] = True
    """Whether its error is a mean over test records, where the schema has a target (`record_errors`)."""
    needs_compiler: ClassVar[bool] = False
    """Whether its steps call kernels that run only with the extra `compiler`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:
            # Set before the dataclass decorator, whose own would print every array and column.
            cls.__repr__ = short_repr  # type: ignore[method-assign]

    reads_by_position: ClassVar[bool] = False
    """Whether steps read records by their position: those of records in blocks are then on disk, by position."""

    def __post_init__(self) -> None:
        """Check every field against its type. A method with further checks calls this first."""
        check_fields(self)

    def require_installed(self) -> None:
        """Refuse a run that would stop for want of an extra, before anything is drawn."""
        if self.needs_compiler:
            require_compiler(f"the method {self.name} in this form")

    @property
    def makes(self) -> str:
        """What a run makes, in the words of a plan: "one classifier"."""
        return "released values"

    @property
    def tells_parties_apart(self) -> bool:
        """Whether opened totals have figures of single parties, by name, under the noise of all. A plan says so."""
        return False

    @property
    def stackable(self) -> bool:
        """Whether the coordinator asks only for sums: then a simulation can run many parties in stacks."""
        return True

    @property
    def scratch(self) -> int:
        """How many numbers a step holds for one party, if more than its contribution. It limits the size of stacks."""
        return 0

    def accepted(self, consortium: Consortium) -> Declaration:
        """Its declaration in this consortium. Refuses what public figures rule out, in its parts too."""
        declaration = self.declared(consortium).accept(consortium)
        for part in self.parts.values():
            part.declare(consortium).accept(consortium, beside=declaration)
        return declaration

    def declared(self, consortium: Consortium) -> Declaration:
        """Everything that a run declares: the method's releases and, if the study has one, those of its evaluation.

        Only the evaluation's releases, added here, are made from held-out records. A method that claims this of its own
        releases is refused.
        """
        own = self.declare(consortium)
        if own.holdout:
            raise StudyError(
                f"{self.name} declares that {own.holdout[0]} is made from held-out records, which it does not see",
                key="evaluation",
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
        """What the presented model predicts about a record; None if it predicts nothing that a label could check."""
        return None

    def on_training_part(self, terms: Evaluation) -> Protocol:
        """The same method, for the records that the study's evaluation leaves for training."""
        return self

    def model_evaluation(self, consortium: Consortium) -> ModelEvaluation:
        """The part that evaluates the presented model on held-out records."""
        if self.prediction_task is None:
            raise StudyError(
                f"[evaluation] needs a model that predicts; {self.title_in(consortium)} releases none: leave it out",
                key="evaluation",
            )
        return RecordEvaluation(self)

    def streams(self, consortium: Consortium) -> bool:
        """Whether its steps read an owner's records in blocks only, so that they need not fit into memory: through
        `site.total` or, where it `reads_by_position`, some positions at a time."""
        return False

    def sums_exactly(self, consortium: Consortium) -> bool:
        """Whether all are exact sums (`comity.data.exact_sums`): then records may stay on an owner's engine."""
        return False

    def reads_singles(self, consortium: Consortium) -> bool:
        """Whether all of them round features to single floats, towards zero, before anything else is computed
        (`comity.data.singles`): a cache may then hold those."""
        return False

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        """Ask for steps, and return the released values by the names of their releases."""
        raise NotImplementedError(f"{type(self).__name__} coordinates nothing")

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> Any:
        """Make the result from released values alone: an artefact (`comity.artefacts`), which saves, loads, describes
        and draws itself. By default, the values by their names.

        Raises KeyError where a value that it needs was not released to the receiver.
        """
        return dict(released)

    def present_received(self, found: Received, consortium: Consortium) -> Any:
        """Make a party's result from what it received in a run; KeyError where a value is missing."""
        return self.present(found.releases, consortium)

    def present_own(self, own: Mapping[str, Any], consortium: Consortium) -> Mapping[str, Artefact]:
        """Artefacts made from the values that an owner's own steps delivered to it, by name. They are written into its
        own results folder and nowhere else."""
        return {}

    def beside(
        self, released: Mapping[str, Any], consortium: Consortium, *, study: str, run: str
    ) -> Mapping[str, Artefact]:
        """Further artefacts of a run, by the name of their folder. `study` is the study's hash."""
        return {}

    def assess(self, presented: Any, train: Sequence[Records] | None, test: Records) -> Assessment:
        """Simulation only: assess the result on test records. `train` are the parties' own records, or None if no
        comparison is wanted. The default is for models that predict."""
        compared = [] if train is None else self.compare(train, test)
        return assess_predictor(presented, test, self.score(presented, test), compared)

    def assess_own(self, found: Assessment, own: Mapping[str, Mapping[str, Artefact]], test: Records) -> Assessment:
        """Simulation only: the assessment with what owners keep at their sites (`present_own`, by party). Called where
        `assesses_own` is set."""
        return found

    def record_errors(
        self, presented: Any, own: Mapping[str, Mapping[str, Artefact]], test: Records
    ) -> NDArray[np.float64] | None:
        """Simulation only: the error of each test record, whose mean is the error of the assessment; None where there
        is none. `own` is what owners keep at their sites, by party. The default is for released linear models."""
        return None if test.labels is None else record_errors(presented, test.features, test.labels)

    def clipped_fractions(
        self, opened: Mapping[str, Any], train: Sequence[Records], consortium: Consortium
    ) -> tuple[Figure, ...]:
        """Simulation only: the share of records that each of the method's bounds clips, or of parties where these are
        the unit. It needs exact records, so it is never released."""
        return ()

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        """Simulation only: the errors of a constant, of each party alone and of all records pooled, on test records."""
        return []

    def score(self, model: Any, test: Records) -> float | None:
        """Simulation only: the error of a presented model on test records."""
        return None

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        """Score an owner's result on its own records; the score never leaves the owner. None if the records can't tell.
        The default is for models that predict from whole records."""
        return score_predictor(presented, records, self.prediction_task) if hasattr(presented, "predict") else None

    def adapt_own(self, presented: Any, records: LocalRecords, party: str) -> Adaptation | None:
        """Adapt an owner's result to its own records. The adapted model and its comparison are exact and never leave
        the owner. None if the result is not adapted."""
        return None

    def expectation(self, consortium: Consortium) -> str:
        """One line for the plan: how much noise to expect, from public figures; empty without an estimate."""
        return ""

    @property
    def charged_once(self) -> str:
        """Why several ledgers are charged for one and the same loss. Empty where each charge is a separate loss:
        someone with records at several parties then loses more than any one party is charged."""
        return ""

    def declared_units(self, consortium: Consortium) -> int | None:
        """How many units the study declares in total; None if it declares no number."""
        return consortium.size if consortium.unit is Unit.PARTY else None

    def true_losses(self, consortium: Consortium) -> tuple[TrueLoss, ...]:
        """Of a published method: what it truly loses, to whom, beside what its paper claims. Every published variant
        states this; other methods have nothing to compare."""
        return ()

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        """Warnings for the plan, beyond the claim."""
        return ()

    def title_in(self, consortium: Consortium) -> str:
        """The method's title, as it runs in this consortium."""
        return str(getattr(self, "title", self.name))

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        """Further notes for the plan."""
        return ()


def presented_to(protocol: Protocol, found: Received, consortium: Consortium) -> Any:
    """A receiver's result, or None where a value that it needs was not released to it."""
    try:
        return protocol.present_received(found, consortium)
    except KeyError:
        return None

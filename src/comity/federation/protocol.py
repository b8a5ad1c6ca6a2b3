"""Protocol and step: how a method is written.

A protocol declares its releases, coordinates steps, and holds the steps that run at the sites. A sub-protocol is a
protocol mounted under a name; its steps are asked for as `name.step`. Two are always there: `run` (begin, end) and
`sum` (the secure sum).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from comity.data import Records
from comity.errors import Refused, StudyError
from comity.federation.baseline import Baseline
from comity.federation.constraints import check
from comity.federation.declaring.consortium import Consortium
from comity.federation.declaring.declaration import Declaration
from comity.privacy.unit import Unit

if TYPE_CHECKING:
    from comity.artefacts.artefact import Artefact
    from comity.federation.assessment import Assessment
    from comity.federation.coordinator.delivery import Received
    from comity.federation.coordinator.parties import Parties
    from comity.federation.evaluation.card import Predicts
    from comity.federation.evaluation.protocol import Measuring
    from comity.federation.evaluation.terms import Evaluation

Step = TypeVar("Step", bound=Callable[..., Any])
ByTerms = Callable[[Any, Consortium], str]
"""The name of a release that a method chooses by public terms: of the method, in a consortium."""

SUM = "sum"
STANDING = ("run", SUM)
"""What is mounted in every run."""
EVALUATION = "evaluation"
"""What is mounted where a study has an evaluation, and how the names of its own parts begin."""


@dataclass(frozen=True)
class StepSpec:
    name: str
    sends: str | None
    stacked: bool
    times: int
    takes: tuple[str, ...]
    per_sum: bool
    per_circle: bool
    gives: tuple[str, ...] = ()
    may_give: tuple[str, ...] = ()
    sends_by: ByTerms | None = None

    def is_given(self, names: Collection[str]) -> bool:
        """Whether a reply may hold values of these names, and of no others."""
        return set(self.gives) <= set(names) <= {*self.gives, *self.may_give}


def step(
    *,
    sends: str | ByTerms | None = None,
    gives: Sequence[str] = (),
    may_give: Sequence[str] = (),
    stacked: bool = False,
    times: int = 1,
    per_sum: bool = False,
    per_circle: bool = False,
) -> Callable[[Step], Step]:
    """Mark a method as run at a site. Its parameters after `site` are declared releases.

    `sends`      the release it contributes to or computes; or how the method names that one in a consortium.
    `gives`      those that it returns to the coordinator, beside that if need be; `may_give` those that some parties
                 return. Both ends check it: a reply with a value more or less is no reply. Where a step fails before
                 its draw its party contributes neutrally, but not where it gives anything else, for which nothing is
                 neutral.
    `stacked`    promises that the body broadcasts over leading axes, so that a simulation may run many parties at once.
    `times`      limits how often a run may ask for a step that contributes nothing; `per_sum` allows it once for each
                 secure sum of the run instead, under the sum's label, and `per_circle` once for each set of parties
                 that sum together, under their place.
    """
    if stacked and (gives or may_give):
        raise ValueError("a step that runs on stacks of parties contributes and gives nothing else")

    def mark(function: Step) -> Step:
        takes = tuple(inspect.signature(function).parameters)[2:]
        function.__dict__["spec"] = StepSpec(
            name=function.__name__,
            sends=None if callable(sends) else sends,
            stacked=stacked,
            times=times,
            takes=takes,
            per_sum=per_sum,
            per_circle=per_circle,
            gives=tuple(gives),
            may_give=tuple(may_give),
            sends_by=sends if callable(sends) else None,
        )
        return function

    return mark


def spec_of(function: Callable[..., Any], who: Consortium | None = None) -> StepSpec:
    """What a step promises. Whoever asks for what it sends says in which consortium."""
    spec = getattr(function, "spec", None)
    if not isinstance(spec, StepSpec):
        raise Refused(f"{getattr(function, '__name__', function)!r} is not a step", code="no-step")
    if who is None or spec.sends_by is None:
        return spec
    return replace(spec, sends=spec.sends_by(getattr(function, "__self__", None), who), sends_by=None)


def steps_of(protocol: Protocol, who: Consortium) -> list[StepSpec]:
    """All steps of a protocol itself, without those of its parts."""
    kind = type(protocol)
    names = (name for name in dir(kind) if isinstance(getattr(getattr(kind, name, None), "spec", None), StepSpec))
    return [spec_of(getattr(protocol, name), who) for name in names]


class Protocol:
    """Frozen, public, stateless. Subclasses are frozen dataclasses whose fields are the study's parameters."""

    name: ClassVar[str] = ""
    version: ClassVar[int] = 2
    variant: ClassVar[str] = "default"
    """By what an owner's policy knows a form of the method: `published` is that of the paper."""
    roles: ClassVar[tuple[str, ...]] = ()
    """What the releases of this method call parties that do not all do the same."""

    def __post_init__(self) -> None:
        """Every field holds what its type says; a method that has more to check does so after this."""
        check(self)

    @property
    def stackable(self) -> bool:
        """Whether the coordinator asks for sums alone, so that very many parties can be simulated in stacks."""
        return True

    @property
    def parts(self) -> Mapping[str, Protocol]:
        """Sub-protocols by the name that they are mounted under."""
        return {}

    @property
    def scratch(self) -> int:
        """Numbers that a step holds for one party beside its contribution, where that is more: sizes stacks of it."""
        return 0

    def declare(self, who: Consortium) -> Declaration:
        raise NotImplementedError(f"{type(self).__name__} declares nothing")

    def accepted(self, who: Consortium) -> Declaration:
        """What it declares in this consortium, with its parts; or the refusal of whatever public figures rule out."""
        declaration = self.declared(who).accept(who)
        for part in self.parts.values():
            part.declare(who).accept(who, beside=declaration)
        return declaration

    def declared(self, who: Consortium) -> Declaration:
        """Everything that a run declares: the method's releases, and those of its evaluation where the study has one.

        Only what stands here for the evaluation is of the set-aside part; a method that says so of its own is refused.
        """
        own = self.declare(who)
        if own.aside:
            raise StudyError(
                f"{self.name} declares {own.aside[0]} as being of records that it does not see", key="evaluation"
            )
        if who.evaluation is None:
            return own
        names = {release.name for release in own.releases}
        measured = self.measured(who).declare(who).releases
        clash = [r.name for r in measured if r.name in names and r not in own.releases]
        if clash:
            raise StudyError(f"{self.name} and its evaluation both release {clash[0]!r}", key="evaluation")
        added = tuple(release for release in measured if release.name not in names)
        aside = tuple(release.name for release in added if release.loss is not None)
        return replace(own, releases=(*own.releases, *added), aside=aside)

    @property
    def predicts(self) -> Predicts | None:
        """What the presented model answers about a record; None where it answers nothing that a label could check."""
        return None

    def on_training_part(self, terms: Evaluation) -> Protocol:
        """The same method, laid out for the records that its study's evaluation leaves to it."""
        return self

    def measured(self, who: Consortium) -> Measuring:
        """How the presented model is measured on records that were set aside."""
        from comity.federation.evaluation.protocol import WholeRecords

        if self.predicts is None:
            raise StudyError(
                f"[evaluation] measures a model that predicts, and {self.titled(who)} releases none; leave it out",
                key="evaluation",
            )
        return WholeRecords(self)

    def streams(self, who: Consortium) -> bool:
        """Whether all that its steps take from an owner's records is `site.total`, so that they may come in blocks."""
        return False

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        """Ask for steps and return the released values by the name of their release."""
        raise NotImplementedError(f"{type(self).__name__} coordinates nothing")

    def present(self, released: Mapping[str, Any], who: Consortium) -> Any:
        """What a consumer works with, from released values alone: an artefact (`comity.artefacts`), which saves, loads,
        describes and draws itself; without one, the values by their names.

        A receiver that was not released what it takes has nothing to work with: KeyError says so.
        """
        return dict(released)

    def present_received(self, found: Received, who: Consortium) -> Any:
        """What a party works with of what it has of a run; KeyError where it was not released what that takes."""
        return self.present(found.releases, who)

    def present_own(self, own: Mapping[str, Any], who: Consortium) -> Mapping[str, Artefact]:
        """What an owner works with of the values that its own steps delivered to it, by their names: written into its
        folder, beside the values, and nowhere else."""
        return {}

    def beside(self, released: Mapping[str, Any], who: Consortium, *, study: str, run: str) -> Mapping[str, Artefact]:
        """Further artefacts of a run of the study with this hash, by the name of the folder that each belongs in."""
        return {}

    def assess(self, presented: Any, train: Sequence[Records] | None, test: Records) -> Assessment:
        """Simulation only: how good what was presented is, on test records. `train` are the parties' own records, or
        None where nobody asked for comparisons. This is for models that predict; a method whose quality is not one
        number has its own."""
        from comity.federation.assessment import of_predictor

        compared = [] if train is None else self.compare(train, test)
        return of_predictor(presented, test, self.score(presented, test), compared)

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        """Simulation only: what a constant, the parties alone, and all records pooled would reach on test records."""
        return []

    def score(self, model: Any, test: Records) -> float | None:
        """Simulation only: the error of a presented model on test records."""
        return None

    def expectation(self, who: Consortium) -> str:
        """One line for the plan: how much noise to expect, from public quantities; empty if there is no estimate."""
        return ""

    @property
    def charged_once(self) -> str:
        """Why several ledgers are charged for one and the same loss. Empty where they are not: there a person with
        records at several parties loses more than each of them is charged."""
        return ""

    def protected(self, who: Consortium) -> int | None:
        """How many units the study declares, in all; None where it declares no number."""
        return who.size if who.unit is Unit.PARTY else None

    def warnings(self, who: Consortium) -> tuple[str, ...]:
        """What nobody should overlook in the plan, beyond the claim."""
        return ()

    def titled(self, who: Consortium) -> str:
        """The method as it runs in this consortium, in a few words."""
        return str(getattr(self, "title", self.name))

    def notes(self, who: Consortium) -> tuple[str, ...]:
        """Further lines for the plan: what a reader should know that no release says by itself."""
        return ()

    def find(self, name: str) -> Callable[..., Any]:
        """The step of this name, which is the one it was written under: an alias would be a second way to ask."""
        function: Callable[..., Any] | None = getattr(self, name, None)
        spec = getattr(function, "spec", None)
        if not isinstance(spec, StepSpec) or spec.name != name:
            raise Refused(f"there is no step {name!r}", code="no-step")
        assert function is not None
        return function

    def part(self, mount: str) -> Protocol:
        """What is mounted under a name: a part of this protocol, or one that every run has."""
        from comity.federation.owner.life import Life
        from comity.federation.subprotocols.secure_sum import SecureSum

        standing: Mapping[str, Protocol] = dict(zip(STANDING, (Life(), SecureSum())))
        found = standing.get(mount) or self.parts.get(mount)
        if found is None:
            raise Refused(f"nothing is mounted as {mount!r}", code="no-step")
        return found

"""Everything public that the parties agreed on, except the method: who, what is protected, against whom."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from comity.crypto.sealed import PublicIdentity
from comity.data import Schema
from comity.errors import StudyError
from comity.federation.evaluation.terms import Evaluation
from comity.privacy.loss import Loss
from comity.privacy.unit import Neighbours, Unit

COORDINATOR = "coordinator"
EVERY_PARTY = "every party"
EVERYONE = "everyone"


@dataclass(frozen=True, kw_only=True)
class Consortium:
    """The parties of a study and the terms on which they meet.

    `colluders` (t) parties may pool what they saw with the coordinator; `dropouts` may vanish, and no sum of fewer than
    `survivors` = K − dropouts parties is opened. Shared noise is laid out for survivors − t honest parts. `loss` is
    what the method may lose; what its `evaluation` may is said there.
    """

    parties: Sequence[str]
    loss: Loss
    unit: Unit = Unit.PARTY
    neighbours: Neighbours = Neighbours.REPLACE
    colluders: int = 1
    dropouts: int = 0
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    roster: Mapping[str, PublicIdentity] = field(default_factory=dict)
    schema: Schema | None = None
    evaluation: Evaluation | None = None

    def __post_init__(self) -> None:
        if not len(self.parties):
            raise StudyError("a study needs at least one party, found none; add [parties.NAME] tables", key="parties")
        taken = [name for name in (COORDINATOR, EVERY_PARTY, EVERYONE) if self.knows(name)]
        if taken:
            raise StudyError(
                f"a party can't be named {taken[0]!r}: the word has a meaning of its own; choose another", key="parties"
            )
        signers: dict[bytes, str] = {}
        for name, identity in self.roster.items():
            other = signers.setdefault(identity.sign, name)
            if other != name:
                raise StudyError(
                    f"{other} and {name} have the same key: who is meant to be two participants would be one, and no "
                    "promise against either alone would hold; make a key for each (comity keys new)",
                    key="keys",
                )
        if self.colluders < 0 or self.dropouts < 0 or self.survivors <= self.colluders:
            raise StudyError(
                f"privacy.colluders = {self.colluders} and privacy.dropouts = {self.dropouts} leave no honest party "
                f"among {self.size}; lower one of them",
                key="privacy.dropouts" if self.survivors < 1 else "privacy.colluders",
            )

    @property
    def size(self) -> int:
        return len(self.parties)

    @cached_property
    def _known(self) -> Container[str]:
        return frozenset(self.parties) if isinstance(self.parties, tuple | list) else self.parties

    def knows(self, name: object) -> bool:
        """Whether `name` is a party."""
        return isinstance(name, str) and name in self._known

    @property
    def survivors(self) -> int:
        return self.size - self.dropouts

    @property
    def honest_parts(self) -> int:
        """How many parts of shared noise a coalition of the colluders can't subtract."""
        return self.survivors - self.colluders

    def includes(self, role: str, name: str) -> bool:
        """Whether `name` is meant by `role` (a role word, a role of the study, or a party's own name)."""
        if role == COORDINATOR:
            return name == COORDINATOR
        if role == EVERY_PARTY:
            return self.knows(name)
        if role == EVERYONE:
            return name == COORDINATOR or self.knows(name)
        return name in self.roles.get(role, ()) or (role == name and self.knows(name))

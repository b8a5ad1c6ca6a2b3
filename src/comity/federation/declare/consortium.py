"""The consortium: everything public that the parties agree on, except the method.

A party's name is compared by people and by programs: in a plan, in an owner's list of pinned keys, in rosters,
subjects and file names. A name that only looks like a pinned one would pass that pin. Names are therefore plain ASCII,
and two names that differ only in case are the same name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from comity.crypto.sealing import PublicIdentity
from comity.data import Schema
from comity.errors import StudyError
from comity.federation.declare.evaluation import Evaluation
from comity.privacy.loss import Loss
from comity.privacy.unit import Neighbours, Unit
from comity.representation import short_repr

MAX_NAME_LENGTH = 32
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_NAME_LENGTH - 1}}}", re.ASCII)


def is_party_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def fold(name: str) -> str:
    """The form in which names are compared. Names are ASCII, so lower case is all of case folding."""
    return name.lower()


def check_party_name(name: object, *, key: str = "parties") -> str:
    """The name, if a party may have it."""
    if not is_party_name(name):
        raise StudyError(
            f"the name of a party has 1 to {MAX_NAME_LENGTH} characters (a to z, digits, - and _) and begins with a "
            f"letter or digit; found {ascii(name)[:80]}, rename that party",
            code="name",
            key=key,
        )
    assert isinstance(name, str)
    return name


def check_party_names(names: Iterable[object], *, key: str = "parties") -> None:
    """Refuse a name that no party may have, and two names that are equal or differ only in case."""
    known: dict[str, str] = {}
    for one in names:
        name = check_party_name(one, key=key)
        other = known.get(fold(name))
        if other is not None:
            raise StudyError(
                f"{other!r} and {name!r} are the same name, because case does not count; rename one party",
                code="name",
                key=key,
            )
        known[fold(name)] = name


COORDINATOR = "coordinator"
EVERY_PARTY = "every party"
EVERYONE = "everyone"
ITSELF = "itself"
"""The receiver of what a party makes for its own later steps."""

Participants = str | tuple[str, ...]
"""Where a release comes from or goes to: one of the words above, a role of the study, a party, or several of these."""


@dataclass(frozen=True, kw_only=True)
class Consortium:
    """The parties of a study, and its privacy terms.

    Up to `colluders` (t) parties may pool what they see with the coordinator. Up to `dropouts` of the K parties may
    vanish; a sum of fewer than `survivors` = K − dropouts parties is not opened. Shared noise is sufficient with
    survivors − t honest parts. All colluders and all drop-outs may be among the few parties of one sum: `within` counts
    them all there. `loss` is what the method may cost, `evaluation` what measuring may.
    """

    __repr__ = short_repr

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
        words = (COORDINATOR, EVERY_PARTY, EVERYONE, ITSELF)
        folded: Container[str] = self.parties
        if isinstance(self.parties, tuple | list):
            check_party_names(self.parties)
            folded = frozenset(map(fold, self.parties))
        taken = [name for name in words if name in folded]
        if taken:
            raise StudyError(
                f"a party can't be named {taken[0]!r}: the word is reserved; choose another", key="parties"
            )
        for role, names in self.roles.items():
            if fold(role) in words or fold(role) in folded:
                raise StudyError(
                    f"a role can't be named {role!r}: that is a party, or a reserved word; choose another",
                    key="parties",
                )
            strangers = [name for name in names if not self.knows(name)]
            if strangers:
                raise StudyError(
                    f"{strangers[0]!r} has the role {role!r} but is not a party; add it, or correct the role",
                    key="parties",
                )
        signers: dict[bytes, str] = {}
        for name, identity in self.roster.items():
            other = signers.setdefault(identity.sign, name)
            if other != name:
                raise StudyError(
                    f"{other} and {name} have the same key: one participant could act as both; make a key for each "
                    "(comity keys new)",
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

    def knows_all(self, names: Collection[object]) -> bool:
        """Whether each of these is a party."""
        known = self._known
        if isinstance(known, frozenset):
            return all(issubclass(kind, str) for kind in set(map(type, names))) and known.issuperset(names)
        return all(map(self.knows, names))

    @property
    def survivors(self) -> int:
        return self.size - self.dropouts

    @property
    def honest_parts(self) -> int:
        """How many parts of shared noise the colluders together can't subtract."""
        return self.survivors - self.colluders

    def includes(self, named: Participants, name: str) -> bool:
        """Whether `name` is meant, by a reserved word, a role, its own name, or any of several."""
        if isinstance(named, tuple):
            return any(self.includes(one, name) for one in named)
        if named == COORDINATOR:
            return name == COORDINATOR
        if named in (EVERY_PARTY, ITSELF):
            return self.knows(name)
        if named == EVERYONE:
            return name == COORDINATOR or self.knows(name)
        return name in self.roles.get(named, ()) or (named == name and self.knows(name))

    def among(self, named: Participants) -> Sequence[str]:
        """The parties that are meant, in the study's order."""
        if named in (EVERY_PARTY, EVERYONE, ITSELF):
            return self.parties
        return tuple(party for party in self.parties if self.includes(named, party))

    def within(self, source: Participants) -> Consortium:
        """The consortium of a release's source: the parties that sum together.

        Any of these parties may collude or drop out, so all colluders and drop-outs of the study are counted here. A
        single party shares noise with nobody, so neither matters to it. Refused where no honest part would be left.
        """
        known = self._within.get(source)
        if known is None:
            parties = self.among(source)
            if len(parties) == self.size:
                known = self
            else:
                roles = {role: tuple(n for n in names if n in set(parties)) for role, names in self.roles.items()}
                alone = len(parties) == 1
                known = replace(
                    self,
                    parties=parties,
                    roles=roles,
                    colluders=0 if alone else self.colluders,
                    dropouts=0 if alone else self.dropouts,
                )
            self._within[source] = known
        return known

    @cached_property
    def _within(self) -> dict[Participants, Consortium]:
        return {}


def format_participants(named: Participants) -> str:
    """Where a release comes from or goes to, for people."""
    return named if isinstance(named, str) else ", ".join(named)


def default_colluders(parties: int, dropouts: int) -> int:
    """The number of colluders where a study states none: one, as long as another party stays honest."""
    return 1 if parties - dropouts > 1 else 0

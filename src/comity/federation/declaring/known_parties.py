"""Which parties of a study an owner knows, and how many colluders the others have to be counted as.

A study names its own parties. A submitter can invent parties and hold their keys: these follow the protocol in every
message and add no noise. What protects the owner then is the noise of parties that it knows, by keys that it pinned.

Promise    Where `missing_colluders` is 0, the declared loss holds against a coordinator that invented every party
           whose key the owner has not pinned.
Why        Shared noise is laid out for U − t honest parts (U parties survive, t collude). Of u unknown parties all may
           add nothing and tell the coordinator all that they see, so that t >= u is needed for masks and noise. A known
           party that works with nobody reads the result and knows its own part: with known parties t >= u + 1. Without
           any, t = K − 1 counts everybody else already, and each party adds all the noise itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from comity.crypto.sealing.sealed import PublicIdentity
from comity.federation.declaring.consortium import Consortium
from comity.federation.declaring.declaration import Declaration
from comity.federation.declaring.names import fold
from comity.federation.declaring.protection import Summed

Standing = Literal["you", "pinned", "not pinned"]


@dataclass(frozen=True)
class PartyIdentity:
    """A party as its owner's peers see it. `fingerprint` is that of its key in the study, empty where there is none."""

    name: str
    fingerprint: str
    standing: Standing


@dataclass(frozen=True)
class KnownParties:
    """The parties of a study, from the point of view of one of them. `colluders` is how many the study assumes."""

    parties: tuple[PartyIdentity, ...]
    colluders: int

    @classmethod
    def of(cls, who: Consortium, party: str, pinned: Mapping[str, PublicIdentity]) -> KnownParties:
        """A party is known where the study's key of it is the one that the owner pinned under its name."""
        keys = {fold(name): key for name, key in pinned.items()}

        def seen(name: str) -> PartyIdentity:
            key = who.roster.get(name)
            known = key is not None and keys.get(fold(name)) == key
            standing: Standing = "you" if name == party else "pinned" if known else "not pinned"
            return PartyIdentity(name, "" if key is None else key.fingerprint, standing)

        return cls(tuple(seen(name) for name in who.parties), who.colluders)

    @property
    def known(self) -> tuple[str, ...]:
        """Others whom the owner knows."""
        return tuple(one.name for one in self.parties if one.standing == "pinned")

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.parties if one.standing == "not pinned")

    @property
    def needed_colluders(self) -> int:
        """How many colluders cover every unknown party, and one known party that reads the result."""
        if not self.unknown:
            return 0
        return len(self.unknown) + (1 if self.known else 0)

    @property
    def missing_colluders(self) -> int:
        """How many more colluders the study would have to assume; 0 where its loss holds as declared."""
        return max(0, self.needed_colluders - self.colluders)

    def in_words(self) -> str:
        others = len(self.parties) - 1
        if not others:
            return "you are the only party"
        return f"you know {len(self.known)} of {others} other {'party' if others == 1 else 'parties'}"

    def noise_left(self, declaration: Declaration, who: Consortium, party: str) -> float:
        """The smallest share of the variance of shared noise, over this party's releases, that is left if unknown
        parties add none and one known reader takes off its own part; 1 where noise is as declared."""
        shares = [1.0]
        for release in declaration.releases:
            if not isinstance(release.protection, Summed) or not who.includes(release.source, party):
                continue
            over = release.summed_over(who)
            gone = sum(over.knows(name) for name in self.unknown)
            reader = any(over.knows(name) for name in self.known)
            shares.append(max(1, over.survivors - gone - reader) / release.parts(who))
        return min(shares)

"""Who saw what: the releases that each kind of participant receives, from the declaration."""

from __future__ import annotations

from dataclasses import dataclass

from comity.federation.declare.consortium import COORDINATOR, Consortium, Participants, format_participants
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Disclosed, Entrusted, EntrustedRounds
from comity.representation import short_repr


@dataclass(frozen=True)
class Seen:
    """One release as its receiver gets it. `unprotected` marks what arrives in clear or exact."""

    release: str
    source: str
    protection: str
    unprotected: bool


@dataclass(frozen=True)
class View:
    """Everything that one kind of participant receives; a party also knows its own records."""

    __repr__ = short_repr

    participant: str
    seen: tuple[Seen, ...]


def list_views(declaration: Declaration, consortium: Consortium) -> tuple[View, ...]:
    """The coordinator's view, then the parties' views: one for all parties that receive the same.

    A release is in the view of each of its receivers, its sender included: the coordinator also sees what it makes for
    itself.
    """
    listed = [View(COORDINATOR, _seen(COORDINATOR, declaration, consortium))]
    playing = {name: role for role, names in consortium.roles.items() for name in names if consortium.knows(name)}
    ends = (name for release in declaration.releases for end in (release.source, release.to) for name in _single(end))
    named = {name for name in ends if consortium.knows(name)}
    special = tuple(dict.fromkeys((*playing, *sorted(named))))
    # All parties without a role that no release names receive the same; there may be a million of them.
    plain = next((party for party in consortium.parties if party not in special), None)
    groups: dict[tuple[Seen, ...], list[str]] = {}
    if plain is not None:
        groups[_seen(plain, declaration, consortium)] = [plain]
    for party in special:
        groups.setdefault(_seen(party, declaration, consortium), []).append(party)
    for place, (seen, parties) in enumerate(groups.items()):
        if len(groups) == 1:
            label = "each party"
        elif plain is not None and place == 0:
            label = "each other party"
        else:
            label = ", ".join(f"{party} ({playing[party]})" if party in playing else party for party in parties)
        listed.append(View(label, seen))
    return tuple(listed)


def _single(named: Participants) -> tuple[str, ...]:
    return (named,) if isinstance(named, str) else named


def _unprotected(release: Release, declaration: Declaration) -> bool:
    """Whether a release is exact, or made from one that is."""
    protection = release.protection
    if isinstance(protection, Derived):
        known = {one.name: one for one in declaration.releases}
        return any(_unprotected(known[name], declaration) for name in protection.of if name in known)
    return isinstance(protection, Entrusted | EntrustedRounds | Disclosed)


def _seen(participant: str, declaration: Declaration, consortium: Consortium) -> tuple[Seen, ...]:
    return tuple(
        Seen(
            release.name if release.times == 1 else f"{release.name} x{release.times}",
            format_participants(release.source),
            release.protection.text,
            unprotected=_unprotected(release, declaration),
        )
        for release in declaration.seen_by(participant, consortium)
    )

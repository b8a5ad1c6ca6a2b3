"""Who saw what: the releases that each kind of participant receives, read off the declaration."""

from __future__ import annotations

from dataclasses import dataclass

from comity.federation.consortium import COORDINATOR, Consortium
from comity.federation.declaration import Declaration
from comity.federation.protection import Disclosed, Entrusted


@dataclass(frozen=True)
class Seen:
    """One release as its receiver gets it. `unprotected` marks what arrives in clear or exact."""

    release: str
    source: str
    protection: str
    unprotected: bool


@dataclass(frozen=True)
class View:
    """Everything that one kind of participant receives from others; a party also knows its own records."""

    participant: str
    seen: tuple[Seen, ...]


def views(declaration: Declaration, who: Consortium) -> tuple[View, ...]:
    """The coordinator's view, then the parties': one for all that receive the same."""
    found = [View("coordinator", _seen(COORDINATOR, declaration, who))]
    playing = {name: role for role, names in who.roles.items() for name in names}
    named = {release.to for release in declaration.releases}
    # Parties without a role and without a release of their own receive the same, and there may be a million of them.
    plain = next((party for party in who.parties if party not in playing and party not in named), None)
    special = [party for party in (*playing, *sorted(named)) if party in who.parties]
    if plain is not None:
        label = "each party" if not special else "each other party"
        found.append(View(label, _seen(plain, declaration, who)))
    for party in dict.fromkeys(special):
        label = f"{party} ({playing[party]})" if party in playing else party
        found.append(View(label, _seen(party, declaration, who)))
    return tuple(found)


def _seen(participant: str, declaration: Declaration, who: Consortium) -> tuple[Seen, ...]:
    return tuple(
        Seen(
            release.name if release.times == 1 else f"{release.name} x{release.times}",
            release.source,
            release.protection.text,
            unprotected=isinstance(release.protection, Entrusted | Disclosed),
        )
        for release in declaration.seen_by(participant, who)
        if release.source != participant
    )

"""What a run paid for, as its receivers got it: it belongs in their results.

Kept are opened sums, values that a site or a trusted coordinator noised or computed privately, and whatever is made
from those and sent. The rest carries a run and has no place in a result: sealed mail is deleted with the run, public
messages say nothing of records, what is entrusted may leave its coordinator only perturbed, and what is disclosed is
covered by nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Summed
from comity.federation.messages.delivered import is_kept


@dataclass(frozen=True, eq=False)
class Sent:
    """One value of a release as an ask brought it to parties: `value` to all that were asked, or to each its `own`."""

    name: str
    path: str
    value: Any = None
    own: Mapping[str, Any] = field(default_factory=dict)


class Kept:
    """Values by release and by the ask in which they came, so that asking again changes nothing."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {}
        self._sent: dict[tuple[str, str], Sent] = {}

    def add(self, release: Release, path: str, value: Any) -> None:
        if is_kept(release):
            self._found.setdefault(release.name, {})[path] = value

    def exchanged(
        self,
        declaration: Declaration,
        own: Declaration,
        path: str,
        common: Mapping[str, Any],
        each: Mapping[str, Mapping[str, Any]],
        replies: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """The values of one ask: those for all, and by party those of its own and those that it sent. `own` is the
        declaration of the part that asks, whose releases count where the protocol declares the same ones."""
        for name, value in common.items():
            if self._note(declaration, own, path, name, value):
                self._sent[name, path] = Sent(name, path, value)
        for by_party in (each, replies):
            for name in dict.fromkeys(name for values in by_party.values() for name in values):
                found = {party: values[name] for party, values in by_party.items() if name in values}
                if self._note(declaration, own, path, name, found) and by_party is each:
                    self._sent[name, path] = Sent(name, path, own=found)

    def _note(self, declaration: Declaration, own: Declaration, path: str, name: str, value: Any) -> bool:
        release = own[name]
        known = next((one for one in declaration.releases if one.name == name), None)
        # The protocol may know more of what a part's release is made from than the part does.
        is_its = known is not None and replace(known, protection=release.protection) == release
        # Masked vectors say nothing until they are opened together.
        if not is_its or isinstance(release.protection, Summed) or not is_kept(release):
            return False
        self.add(release, path, value)
        return True

    @property
    def sent(self) -> list[Sent]:
        """What parties were sent with asks, and may keep."""
        return list(self._sent.values())

    def values(self, declaration: Declaration) -> dict[str, Any]:
        """By release; a list where a release was made several times."""
        return {
            name: list(found.values()) if len(found) > 1 or declaration[name].times > 1 else next(iter(found.values()))
            for name, found in self._found.items()
        }


def opened(value: Any, parties: int) -> dict[str, Any]:
    """A sum as it is kept: without the number of contributions it says little."""
    return {"sum": value, "parties": parties}

"""What a coordinator has learnt in a run so far. None of it is kept: the journal gives it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from comity.crypto.sealing.sealed import Identity
from comity.federation.coordinator.exchange import Cancelling
from comity.federation.coordinator.kept import Kept
from comity.federation.declare.release import Release
from comity.federation.messages.heads import Head, newest
from comity.federation.sum.coordinator import SetUp


@dataclass(eq=False)
class RunMemory:
    """Shared by all views of the run; changed by `Parties` alone."""

    alive: list[str]
    heads: dict[tuple[str, bytes], list[Head]]
    mail: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)
    cancelling: Cancelling = field(default_factory=Cancelling)
    run_key: Identity | None = None
    run_keys: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    set_ups: dict[int, SetUp] = field(default_factory=dict)

    def lose(self, party: str, why: str) -> bool:
        """Whether the party was still there."""
        if party not in self.alive:
            return False
        self.alive.remove(party)
        self.lost[party] = why
        return True

    def count(self, release: Release) -> int:
        """The index of a release that is made now: running again counts again from the first."""
        index = self.counts.get(release.name, -1) + 1
        self.counts[release.name] = index
        return index

    def remember(self, found: Mapping[tuple[str, bytes], list[Head]]) -> None:
        for whose, of in found.items():
            self.heads[whose] = newest(self.heads.get(whose, []), of)

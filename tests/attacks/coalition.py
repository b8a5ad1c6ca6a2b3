"""A coalition of parties with the coordinator: everything that crossed, and everything that its members hold.

The attack on a secure sum that needs no luck is to strip: of an honest party's masked vector take off every mask that
the coalition knows. The coordinator opens the self masks of survivors, which is the protocol; for a party that was lost
it opens the will, and hence every pair mask. A colluder knows the pair masks that it shares with others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from comity.crypto import masks
from comity.entropy import derive
from comity.federation.declare.protection import Summed
from comity.federation.messages.ask import StepPath
from comity.federation.messages.codec import decode
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.federation.owner.host import Host
from tests.support.asks import path_of
from tests.support.channels import Whole
from tests.support.consortia import STUDY

RUN = "run-1"


@dataclass
class Heard(Whole):
    """A channel that hears everything. Replies in `late` are heard, but after they count: their parties are lost."""

    hosts: Mapping[str, Host]
    late: frozenset[tuple[str, str]] = frozenset()
    masked: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    vectors: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    seeds: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    roots: dict[str, bytes] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    def carry(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = {}
        for party, message in messages.items():
            if party in self.lost:
                continue
            replies[party] = self.hosts[party].answer(message).reply
            path = path_of(message)
            step = StepPath.parse(path)
            agreement = self.hosts[party].agreement
            sends = agreement.step(step)[1].sends
            if sends is not None and isinstance(agreement.declaration[sends].protection, Summed):
                self._note(party, f"{sends}/{step.label}", replies[party])
            if (party, path) in self.late:
                self.lost.add(party)
                del replies[party]
        return replies

    def _note(self, party: str, label: str, reply: bytes) -> None:
        store = self.hosts[party].store
        masked = decode(reply[:-SIGNATURE_BYTES])["ok"][label.partition("/")[0]]
        vector = decode(store.state(RUN, f"out:{label}") or b"").view("<u8").astype(masked.dtype)
        self.masked.setdefault(label, {})[party] = masked
        self.vectors.setdefault(label, {})[party] = vector
        # What its members hold is the coalition's; of an honest party only what the coordinator opens is taken.
        self.seeds[party] = decode(store.state(RUN, "sum.seeds") or b"")
        self.roots[party] = decode(store.state(RUN, "sum.root") or b"")

    def stripped(self, label: str, party: str, coalition: Collection[str]) -> np.ndarray:
        """What is left of an honest party's vector when the coalition has taken off all that it can."""
        left = self.masked[label][party].copy()
        if party in self.lost:
            knowing, own = set(self.seeds[party]["given"]) | set(self.seeds[party]["taken"]), False
        else:
            # Where nobody may drop out there is no self mask.
            knowing, own = set(coalition), self.hosts[party].agreement.sum_group(label).consortium.dropouts > 0
        if own:
            masks.subtract(left, derive(self.roots[party], STUDY, RUN, "self", label))
        for way, take_off in (("given", masks.subtract), ("taken", masks.add)):
            for peer, seed in self.seeds[party][way].items():
                if peer in knowing and peer in self.masked[label]:
                    take_off(left, derive(seed, STUDY, RUN, "mask", label))
        return left


def coalitions(parties: Iterable[str], most: int) -> Iterator[tuple[str, ...]]:
    """Every set of up to `most` parties; the coordinator is in each."""
    names = tuple(parties)
    for size in range(most + 1):
        yield from combinations(names, size)


def uniform_part(words: Iterable[np.ndarray]) -> np.ndarray:
    """Words as numbers between 0 and 1."""
    return np.concatenate([(one.reshape(-1) / 2.0 ** (8 * one.itemsize)) for one in words])


def total(words: Iterable[Any]) -> np.ndarray:
    """The sum modulo the size of a word."""
    first, *rest = words
    out: np.ndarray = first.copy()
    for one in rest:
        out += one
    return out

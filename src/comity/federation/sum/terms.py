"""What both sides of the secure sum compute alike: the number of share holders, digests of lists, and words to add."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from comity.crypto.share_holders import Degree, choose_degree
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.release import Release
from comity.federation.messages.codec import encode, names_digest

Masked = NDArray[np.uint32] | NDArray[np.uint64]


def degree_of(consortium: Consortium) -> Degree:
    return choose_degree(consortium.size, consortium.colluders, consortium.dropouts)


def is_complete_graph(consortium: Consortium) -> bool:
    """Whether all parties hold shares of all."""
    return degree_of(consortium).degree == consortium.size - 1


def seeded_by(consortium: Consortium, party: str, holders: Sequence[str]) -> tuple[str, ...]:
    """The holders to which a party deals a pair seed: all of them. If all parties hold shares of all, only one party of
    each pair deals it."""
    return tuple(holder for holder in holders if party < holder) if is_complete_graph(consortium) else tuple(holders)


def word_type(release: Release, consortium: Consortium) -> str:
    """32-bit words where the sum and its noise fit with a margin: half the bytes and half the masks."""
    return "<u4" if release.ring == 64 and release.reach(consortium, release.scale(consortium)) < 2**30 else "<u8"


def digest_of(*lists: Sequence[str]) -> bytes:
    """The digest that signatures on lists are over. Encoding the lists for every signature would take most of the time
    of a large sum."""
    return join_digests(*map(names_digest, lists))


def join_digests(*digests: bytes) -> bytes:
    """`digest_of` lists with these digests."""
    return digests[0] if len(digests) == 1 else hashlib.sha256(encode(list(digests))).digest()


def to_words(units: NDArray[np.int64], dtype: str) -> Masked:
    return np.ascontiguousarray(units.view("<u8").astype(dtype))


def to_units(words: Masked) -> NDArray[np.int64]:
    """The signed integer that a word stands for."""
    return words.view("<i4").astype("<i8") if words.dtype.str == "<u4" else words.view("<i8")

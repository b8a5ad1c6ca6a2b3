"""Shares and triples of the two sides of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from comity.crypto.comparisons.exchange import Side
from comity.crypto.comparisons.triples import Triples, deal, read_triples

Words = NDArray[np.uint64]


def share_additively(values: Sequence[int] | NDArray[np.int64], generator: np.random.Generator) -> tuple[Words, Words]:
    """Two shares of each value mod 2^64."""
    one = generator.integers(0, 2**64, len(values), dtype=np.uint64)
    return one, np.array([int(value) % 2**64 for value in values], np.uint64) - one


def deal_triples(count: int) -> tuple[Triples, Triples]:
    """The triples of the curator and of the parties."""
    if not count:
        nothing = np.zeros((3, 0), np.uint8)
        return Triples(*nothing), Triples(*nothing)
    messages = deal(count, dealer="office", sides=("curator", "parties"))
    return read_triples(Side.CURATOR, messages[0], count), read_triples(Side.PARTIES, messages[1], count)

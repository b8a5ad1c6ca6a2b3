"""Cubes of numbers that K parties share additively, left shared, with randomness from a dealer and one opening.

Construction (after D. Beaver, Efficient multiparty protocols using circuit randomization, 1991, over Z_2^64). The
dealer gives every party a seed, which expands into its share of a mask α and of α² and α³; the last party is given the
two shares that make the sums right. Each party opens its share of A = z − α to the others, and with A known to all

    z   = A + α,          z³  = A³ + 3A² α + 3A α² + α³

are sums of public multiples of what is shared, so that every party computes its own share by itself.

Adversary: semi-honest; a coalition of all parties but one, without the dealer. Assumption: AES-128 in counter mode is a
pseudorandom generator. A party learns A, which is uniform to it. The dealer learns nothing as long as it sees neither
A (its shares travel sealed among the parties) nor a share of the result; together with one party it sees z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream, derive
from comity.errors import Malformed

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class CubeHand:
    """One party's part of what is dealt for `rows` numbers; `rest` are the last party's shares of α² and α³."""

    seed: bytes = field(repr=False)
    rows: int
    rest: Words | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if len(self.seed) != 32 or (self.rest is not None and self.rest.shape != (2, self.rows)):
            raise Malformed(
                f"a seed of 32 bytes and, for the last party, two shares of {self.rows} words were expected"
            )

    @property
    def mask(self) -> Words:
        """This party's share of α."""
        return _words(self.seed, "mask", self.rows)

    @property
    def powers(self) -> tuple[Words, Words]:
        """Its shares of α² and α³."""
        if self.rest is not None:
            return self.rest[0], self.rest[1]
        return _words(self.seed, "square", self.rows), _words(self.seed, "cube", self.rows)


def deal_cubes(seeds: Sequence[bytes], rows: int) -> list[CubeHand]:
    """Hands for one opening of `rows` numbers, from a fresh seed for each party: seeds serve once."""
    hands = [CubeHand(seed, rows) for seed in seeds]
    alpha = np.zeros(rows, np.uint64)
    for hand in hands:
        alpha += hand.mask
    rest = np.stack([alpha * alpha, alpha * alpha * alpha])
    for hand in hands[:-1]:
        square, cube = hand.powers
        rest[0] -= square
        rest[1] -= cube
    return [*hands[:-1], CubeHand(seeds[-1], rows, rest)]


def masked(hand: CubeHand, share: Words) -> Words:
    """This party's share of A, as it may be shown to the other parties."""
    return np.asarray(share - hand.mask, "<u8")


def value_and_cube(hand: CubeHand, opened: Words, *, first: bool) -> tuple[Words, Words]:
    """This party's shares of z and of z³, from the opened A; the public terms are the first party's."""
    alpha, (square, cube), three = hand.mask, hand.powers, np.uint64(3)
    product = three * opened * (opened * alpha + square) + cube
    return (alpha + opened, product + opened * opened * opened) if first else (alpha, product)


def _words(seed: bytes, purpose: str, count: int) -> Words:
    return Stream(derive(seed, "cubes", purpose)).words(count)

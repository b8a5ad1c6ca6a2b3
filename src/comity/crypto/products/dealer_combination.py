"""X_kᵀ s for matrices X_k, each known to one party, and a vector s that all share; left shared, with a dealer.

Construction (after D. Beaver 1991, over Z_2^64). Once: the dealer gives party k a seed that both expand into a mask U_k
as large as X_k, and the party opens D_k = X_k − U_k to the others. For each vector: every party's seed expands into its
share of a mask v, and all open E = s − v. Then

    X_kᵀ s  =  X_kᵀ E  +  D_kᵀ v  +  U_kᵀ v :

the first term is party k's alone, the second is linear in the shares of v, and the third, one number per column, is
dealt in shares. One opening of D_k is enough for any number of vectors; a vector's mask is used for one vector.

Adversary and assumption are those of `dealer_product`: parties learn D and E, which are uniform to a coalition of all
but one; the dealer must see neither, nor a share of the result outside a secure sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from comity.crypto.products.inner_products import add_word_products
from comity.entropy import Stream, derive
from comity.errors import Malformed

Words = NDArray[np.uint64]


def expand_matrix_mask(seed: bytes, columns: int, rows: int) -> Words:
    """U, one line per column; a seed masks one matrix."""
    return Stream(derive(seed, "combination", "matrix")).words(columns * rows).reshape(columns, rows)


@dataclass(frozen=True)
class VectorHand:
    """The dealer's message to one party for one vector; `rest` is the last party's share of Uᵀ v."""

    seed: bytes = field(repr=False)
    rows: int
    columns: int
    rest: Words | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if len(self.seed) != 32 or (self.rest is not None and self.rest.shape != (self.columns,)):
            raise Malformed(f"a seed of 32 bytes and, for the last party, {self.columns} words were expected")

    @property
    def mask(self) -> Words:
        """This party's share of v."""
        return Stream(derive(self.seed, "combination", "vector")).words(self.rows)

    @property
    def correction(self) -> Words:
        """Its share of Uᵀ v over the columns of all parties."""
        if self.rest is not None:
            return self.rest
        return Stream(derive(self.seed, "combination", "correction")).words(self.columns)


def deal_vector(matrices: Sequence[tuple[bytes, int]], seeds: Sequence[bytes], rows: int) -> list[VectorHand]:
    """Hands for one vector. `matrices` has each party's seed of its matrix and its number of columns."""
    total = sum(columns for _, columns in matrices)
    hands = [VectorHand(seed, rows, total) for seed in seeds]
    v = np.zeros(rows, np.uint64)
    for hand in hands:
        v += hand.mask
    rest = np.concatenate([inner_products(expand_matrix_mask(seed, columns, rows), v) for seed, columns in matrices])
    for hand in hands[:-1]:
        rest -= hand.correction
    return [*hands[:-1], VectorHand(seeds[-1], rows, total, rest)]


def mask_share(hand: VectorHand, share: Words) -> Words:
    """This party's share of E, which the other parties may see."""
    return np.asarray(share - hand.mask, "<u8")


def combine(
    hand: VectorHand, me: int, own: Words, masked_matrices: Mapping[int, Words], opened: Words
) -> tuple[Words, Words]:
    """This party's share of X_kᵀ s over all parties k, and of the sum of s (one word).

    `own` is X_me and `masked_matrices` every party's D, with one line per column; `opened` is E.
    """
    v = hand.mask
    parts = [inner_products(masked_matrices[party], v) for party in range(len(masked_matrices))]
    parts[me] = parts[me] + inner_products(own, opened)
    total = v.sum(dtype=np.uint64, keepdims=True)
    if me == 0:
        total += opened.sum(dtype=np.uint64, keepdims=True)
    return np.concatenate(parts) + hand.correction, total


def inner_products(lines: Words, vector: Words) -> Words:
    """Inner products of every line with the vector, modulo 2^64."""
    out = np.zeros((lines.shape[0], 1), np.uint64)
    if lines.shape[0]:
        add_word_products(out, np.ascontiguousarray(lines), np.ascontiguousarray(vector)[None])
    return out[:, 0]

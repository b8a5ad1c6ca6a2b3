"""Dissection: which sums of products z_a z_b are released, who can compute each, and how they come together again.

With Z the columns of all parties and c the intercept's constant, the objective of a regression needs the upper triangle
of (c, Z)ᵀ(c, Z). An entry within one party's columns, and every entry with the constant, is that party's own sum; an
entry across parties is a secure product, of which both hold a share. Nobody releases what everybody knows: n c², the
square of a yes/no or of a two-class label, and, for one-hot columns, the zeros within a group and the sums that equal
the diagonal.

Entries carry integer weights, because shares can only be multiplied by integers: 5 on the diagonal and 7 beside it,
close to 1 : √2, so that isotropic noise on the weighted vector treats the symmetric matrix evenly. Where noise is
measured in L1 all weights are 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.methods.vertical.layout import LABEL, ONE_HOT, PLACES, Layout

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

# The smallest integers near 1 : √2; not tuned on data.
DIAGONAL, BESIDE = 5, 7


@dataclass(frozen=True, eq=False)
class Dissection:
    """The released entries, as places (first <= second) in a matrix whose last row and column are the constant's."""

    columns: Layout
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    weight: NDArray[np.int64]

    @classmethod
    def of(cls, columns: Layout) -> Dissection:
        width, centred = columns.width, columns.centred
        wanted = np.triu(np.ones((width + 1, width + 1), bool))
        wanted[width, width] = False
        if not columns.intercept:
            wanted[:, width] = False
        for piece in columns.pieces:
            if piece.constant_square:
                wanted[piece.start, piece.start] = False
            if piece.kind == ONE_HOT and not centred:
                own = slice(piece.start, piece.stop)
                wanted[own, own] = np.eye(piece.stop - piece.start, dtype=bool)
                wanted[own, width] = False
        first, second = np.nonzero(wanted)
        weight = np.where(first == second, DIAGONAL, BESIDE) if centred else np.ones(len(first), np.int64)
        return cls(columns, first.astype(np.int64), second.astype(np.int64), weight.astype(np.int64))

    @property
    def size(self) -> int:
        return len(self.first)

    # At a site.

    def share(self, party: str, own: Floats, products: Mapping[tuple[str, str], Words]) -> Words:
        """A party's share of the weighted entries: its own sums whole, its shares of products, zero elsewhere.

        `own` are the party's sums of products (`gram`), with the sums of its columns as a last row.
        """
        width, places = self.columns.width, self.columns.places(party)
        matrix = np.zeros((width + 1, width + 1), np.uint64)
        matrix[places, places] = as_words(own[:-1])
        constant = round(self.columns.constant * 2**PLACES)
        matrix[places, width] = as_words(constant * own[-1])
        for (earlier, later), share in products.items():
            matrix[self.columns.places(earlier), self.columns.places(later)] = share
        return matrix[self.first, self.second] * self.weight.astype(np.uint64)

    # At the coordinator, or wherever all columns are in one place.

    def exact(self, columns: Floats) -> Floats:
        """The weighted entries of columns that are all in one place, to the last bit of what shares add up to."""
        units = gram(columns)
        whole = np.zeros((len(units), len(units)))
        whole[:-1, :-1], whole[:-1, -1] = units[:-1], round(self.columns.constant * 2**PLACES) * units[-1]
        return np.asarray(whole[self.first, self.second] * self.weight * 4.0**-PLACES, np.float64)

    def assembled(self, opened: Floats, rows: int) -> Floats:
        """The symmetric matrix from opened weighted entries, with what everybody knows filled in."""
        width, constant = self.columns.width, self.columns.constant
        matrix = np.zeros((width + 1, width + 1))
        matrix[self.first, self.second] = opened / self.weight
        matrix[width, width] = rows * constant**2
        for piece in self.columns.pieces:
            if piece.constant_square:
                matrix[piece.start, piece.start] = rows * piece.table[0, 0] ** 2
            if piece.kind == ONE_HOT and not self.columns.centred:
                for at in range(piece.start, piece.stop):
                    matrix[at, width] = matrix[at, at] * constant / piece.table[0, 0]
        return matrix + np.triu(matrix, 1).T

    def variances(self, deviation: float) -> Floats:
        """Of the noise in each entry of the assembled matrix, when each weighted entry has this deviation."""
        width, constant = self.columns.width, self.columns.constant
        matrix = np.zeros((width + 1, width + 1))
        matrix[self.first, self.second] = (deviation / self.weight) ** 2
        for piece in self.columns.pieces:
            if piece.kind == ONE_HOT and not self.columns.centred:
                for at in range(piece.start, piece.stop):
                    matrix[at, width] = matrix[at, at] * (constant / piece.table[0, 0]) ** 2
        return matrix + np.triu(matrix, 1).T

    def split(self, matrix: Floats) -> tuple[Floats, Floats, float]:
        """(features and constant)ᵀ(same), the same with the label, and the label's square."""
        at = self.columns.features
        if self.columns.intercept:
            at = np.append(at, self.columns.width)
        label = next(piece.start for piece in self.columns.pieces if piece.kind == LABEL)
        return matrix[np.ix_(at, at)], matrix[at, label], float(matrix[label, label])


_BLOCK = 1 << 14


def integers(columns: Floats) -> Floats:
    """Entries in units of 2^−PLACES, rounded as the secure products round them."""
    return np.asarray(np.rint(np.clip(columns, -1.0, 1.0) * 2.0**PLACES), np.float64)


def gram(columns: Floats) -> Floats:
    """Integer sums of products and, as a last row, of the columns; exact: fewer than 2^28 rows of products below 2^25
    stay below 2^53."""
    width = columns.shape[1]
    total = np.zeros((width + 1, width))
    for start in range(0, len(columns), _BLOCK):
        block = integers(columns[start : start + _BLOCK])
        total[:width] += block.T @ block
        total[width] += block.sum(axis=0)
    return total


def as_words(values: Floats) -> Words:
    return np.asarray(values, np.int64).view(np.uint64)

"""How far one replaced record moves the released entries. Derivations are in proof.md; bounds are those on the grid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import sqrt

from comity.methods.vertical.dissection import BESIDE, DIAGONAL
from comity.methods.vertical.layout import ONE_HOT, Layout, Piece

# More than the rounding of the few floating-point operations below.
_UP = 1 + 1e-12


def squared_bound(columns: Layout) -> float:
    """B²: the largest squared norm of (c, z), piece by piece, since nobody sees a whole row."""
    return columns.constant**2 + sum(piece.squared for piece in columns.pieces)


def l2_sensitivity(columns: Layout) -> float:
    """Of the weighted entries: at most max(5, 7/√2)·√2·B² (proof.md, 2)."""
    return max(DIAGONAL, BESIDE / sqrt(2)) * sqrt(2) * squared_bound(columns) * _UP


def l1_sensitivity(columns: Layout) -> float:
    """Of entries of weight 1 (proof.md, 3). One-hot pieces have one entry that is not zero; squares of numbers are
    never negative; of signed entries only pairs of which one changes its sign move; what everybody knows is not there.
    """
    return _all_pairs(columns, columns.pieces)


def block_sensitivity(columns: Layout, party: str) -> float:
    """L1, of one party's own entries of weight 1, those with the constant included (proof.md, 8)."""
    return _all_pairs(columns, [piece for piece in columns.pieces if piece.party == party])


def pair_sensitivity(columns: Layout, one: str, other: str) -> float:
    """L1, of the entries of weight 1 across two parties: reached where all entries of one change sign (proof.md, 8)."""
    sums = [sum(piece.absolute for piece in columns.pieces if piece.party == party) for party in (one, other)]
    return 2 * sums[0] * sums[1] * _UP


def _all_pairs(columns: Layout, pieces: Sequence[Piece]) -> float:
    one_hot = [piece for piece in pieces if piece.kind == ONE_HOT]
    signed = [piece for piece in pieces if piece.kind != ONE_HOT]
    total = sum(2 * piece.squared for piece in one_hot)
    total += sum(piece.squared for piece in signed if not piece.constant_square)
    total += sum(2 * one.absolute * other.absolute for one, other in combinations(one_hot, 2))
    total += sum(2 * one.absolute * other.absolute for one in one_hot for other in signed)
    bounds = [columns.constant, *(piece.absolute for piece in signed)]
    every, largest = sum(bounds), max(bounds)
    apart = max(largest, every / 2)
    return (total + 2 * apart * (every - apart)) * _UP


def l1_sensitivity_about(columns: Layout, party: str) -> float:
    """L1, of all entries of weight 1, when the columns of one party alone change (proof.md, 5)."""
    own = [piece for piece in columns.pieces if piece.party == party]
    rest = [piece for piece in columns.pieces if piece.party != party]
    total = sum(2 * piece.squared for piece in own if piece.kind == ONE_HOT)
    total += sum(piece.squared for piece in own if piece.kind != ONE_HOT and not piece.constant_square)
    pairs = [*combinations(own, 2), *((one, other) for one in own for other in rest)]
    for one, other in pairs:
        if ONE_HOT in (one.kind, other.kind):
            total += 2 * one.absolute * other.absolute
    every = columns.constant + sum(piece.absolute for piece in columns.pieces if piece.kind != ONE_HOT)
    flipped = min(sum(piece.absolute for piece in own if piece.kind != ONE_HOT), every / 2)
    return min((total + 2 * flipped * (every - flipped)) * _UP, l1_sensitivity(columns))


def party_share(columns: Layout, party: str) -> float:
    """The loss in μ² about one party's columns alone, as a share of the whole: 4f(1 − f) for a party with a share
    f <= ½ of B², all of it for a larger one (proof.md, 5)."""
    fraction = sum(piece.squared for piece in columns.pieces if piece.party == party) / squared_bound(columns)
    return 1.0 if fraction >= 0.5 else 4 * fraction * (1 - fraction)

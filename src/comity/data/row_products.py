"""Products of records with received numbers, in which the result for one record does not depend on any other record.

A matrix product of doubles rounds, and BLAS rounds one row differently when other rows stand beside it: the number of
rows decides which kernel adds which terms first. Where a coordinator chooses the other factor, it can make that
rounding as large as it likes: weights of 1e25 that cancel leave nothing but rounding, and what is scaled to length one
afterwards is another vector. A bound on what one record adds is then no bound on what its absence changes.

Here every sum over a record's entries is exact. With p = 33, q = 19 and the smallest h of √d <= 2^h:

    x         a row of norm 1 at most, rounded to multiples of 2^-p
    w         weights, divided by a power of two to a norm of 1 at most
    w'        w rounded to multiples of 2^-q; |w − w'| <= 2^(h−q−1)
    w"        w − w' rounded to multiples of 2^-(58−h−q)

By Cauchy and Schwarz the magnitude of any sum of some of the products of x and w' is below 2, if h < q, and it is a
multiple of 2^-(p+q) = 2^-52. With w" it is below 2^(h−q) and a multiple of 2^-(p+58−h−q) = 2^-(72−h): at most
2^(72−q) = 2^53 multiples. So a double holds all of them, and nothing is rounded: not by any order of adding, any block,
any number of threads, with or without fused multiply-add. What follows (one addition, scaling by powers of two, sums in
a fixed order, elementwise functions) treats every entry by itself.

Precision   A score is off by some 2^-34 of |x||w|. Noise of any privacy is far above it.
One grid    Where 2^-26 is enough, x and w are rounded to multiples of 2^-26 each, and there is no w": sums are below 2
            and multiples of 2^-52 again, at half of the multiplications.
Grids       Those of weights follow from the received weights, which are the same for two neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROW_PLACES, _WEIGHT_PLACES = 33, 19
"""p and q: together one bit less than a double has, for norms that rounding made longer than 1."""
_ONE_GRID_PLACES = 26
"""p and q where there is no w"."""

LARGEST = 2.0**30
"""Received numbers are clipped to ±2^30 before they are multiplied with records: no product overflows. Honest ones are
far below: weights of averaged models on Adult, credit defaults and HAR at ε from 0.1 to 10 are below 50."""

# Entries of a block: what is computed of it stays in the processor's cache. Results do not depend on it.
_BLOCK = 1 << 16
# Squares of entries up to here, however many, do not overflow.
_LARGEST_ENTRY = 2.0**480
_SHORTEST = -400
# Of a power of two that weights are multiplied with before rows are: 2^(480 + 500) and 2^-(400 + 500 + 53) are doubles.
_FARTHEST = 500


def clip_received(received: Floats, largest: float = LARGEST) -> Floats:
    """Received numbers, brought to a public range; one that is not a number becomes 0."""
    return np.clip(np.nan_to_num(np.asarray(received, np.float64), nan=0.0), -largest, largest)


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights (k, d) on their grids: `factor` has w' and w" of each, (d, 2k), or w' alone, (d, k); `powers` (k,) is
    what w was divided by. Rows are rounded to multiples of 2^-`places`, where they are not `rounded` already."""

    factor: Floats
    powers: Floats
    places: int = _ROW_PLACES
    rounded: bool = False

    @classmethod
    def of(cls, weights: Floats, terms: int | None = None) -> Weights:
        """`terms` is d, or more: then the grids are those of rows with so many entries."""
        unit, powers = _of_unit_norm(weights)
        # √d <= 2^half_bits.
        half_bits = ((max(1, int(weights.shape[-1]), terms or 0) - 1).bit_length() + 1) // 2
        coarse = _on_grid(unit, _WEIGHT_PLACES)
        fine = _on_grid(unit - coarse, 58 - half_bits - _WEIGHT_PLACES)
        return cls(np.ascontiguousarray(np.concatenate([coarse, fine]).T), powers)

    @classmethod
    def on_one_grid(cls, weights: Floats) -> Weights:
        """For scores that may be off by √d·2^-26 of |x||w|: what is added to noise, or rounded to single precision."""
        unit, powers = _of_unit_norm(weights)
        return cls(np.ascontiguousarray(_on_grid(unit, _ONE_GRID_PLACES).T), powers, _ONE_GRID_PLACES)

    def __len__(self) -> int:
        return len(self.powers)

    def of_unit_rows(self, rows: Floats) -> Floats:
        """x·w of a block of rows (n, d) of norm 1 at most: (n, k)."""
        return self._of_grid_rows(rows if self.rounded else _on_grid(rows, self.places))

    def of_rounded_rows(self) -> Weights:
        """The same weights for rows of `round_rows`."""
        assert self.places == _ROW_PLACES
        return replace(self, rounded=True)

    def of_rows(self, rows: Floats) -> Floats:
        """x·w of finite rows of any length. Each row has a separate grid, by a power of two above its norm: it is as if
        the row were divided by that power, and the product multiplied by it."""
        # One array for all results of a block: a second and third would be allocated and freed each time.
        scratch = np.empty_like(rows)
        rows, exponents = _with_exponents(rows, scratch)
        # Divided by that power a row has a norm of at most 2/3: sums stay below 1, and a finer grid fits.
        rounder = np.ldexp(_rounder(self.places + 1), exponents)
        np.add(rows, rounder, out=scratch)
        scratch -= rounder
        return self._of_grid_rows(scratch)

    @cached_property
    def multiplied(self) -> tuple[Floats, Floats | None]:
        """The factor times the powers, where no product with a row of any length leaves the range of doubles then, and
        otherwise the powers to multiply by afterwards. Nothing is rounded either way, but what is too small for any
        number."""
        exponents = np.frexp(self.powers)[1]
        if not len(self) or np.abs(exponents).max() > _FARTHEST:
            return self.factor, self.powers
        return self.factor * np.tile(self.powers, self.factor.shape[1] // len(self)), None

    @property
    def rounder(self) -> float:
        """Added to an entry of a row of norm 1 at most and subtracted again, it rounds the entry to the rows' grid."""
        return _rounder(self.places)

    def _of_grid_rows(self, rows: Floats) -> Floats:
        factor, powers = self.multiplied
        found: Floats = rows @ factor
        if found.shape[1] > len(self):
            found = found[:, : len(self)] + found[:, len(self) :]
        if powers is not None:
            found *= powers
        return found


def round_rows(rows: Floats) -> Floats:
    """Rows of norm 1 at most on the grid x of products."""
    return _on_grid(rows, _ROW_PLACES)


def unit_products(rows: Floats, weights: Floats) -> Floats:
    """x·w of rows (..., n, d) of norm 1 at most with weights (k, d): (..., n, k), the same for a row in any batch."""
    return in_blocks(Weights.of(weights).of_unit_rows, rows, len(weights))


def rough_unit_products(rows: Floats, weights: Floats) -> Floats:
    """The same on one grid, off by √d·2^-26 of |x||w| at most."""
    return in_blocks(Weights.on_one_grid(weights).of_unit_rows, rows, len(weights))


def products(rows: Floats, weights: Floats) -> Floats:
    """x·w of finite rows (..., n, d) of any length."""
    return in_blocks(Weights.of(weights).of_rows, rows, len(weights))


def row_norms(rows: Floats) -> Floats:
    """Euclidean norms of rows (..., d)."""
    return np.sqrt(row_sums(np.square(rows)))


def row_sums(values: Floats) -> Floats:
    """Sums over the last axis, in an order that depends on its length only. The array may be overwritten.

    The upper half is added to the lower one until one entry is left. Whole arrays are added entry by entry: neither the
    number of rows nor their layout in memory changes a bit. NumPy's own sum promises no order.
    """
    width = int(values.shape[-1])
    if not width:
        return np.zeros(values.shape[:-1])
    while width > 1:
        half = width // 2
        values[..., :half] += values[..., width - half : width]
        width -= half
    return values[..., 0].copy()


def softmax_rows(scores: Floats) -> Floats:
    """exp(score) of each class over their sum, along the last axis."""
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(grown / row_sums(grown.copy())[..., None], np.float64)


def rows_in_cache(width: int) -> int:
    """How many rows of so many numbers stay in a processor's cache while something is computed of them."""
    return max(16, _BLOCK // max(1, width))


def in_blocks(compute: Callable[[Floats], Floats], rows: Floats, width: int) -> Floats:
    """Apply `compute`, which returns `width` numbers for each row, to some rows (n, d) at a time: (..., n, width)."""
    flat = rows.reshape(prod(rows.shape[:-1]), rows.shape[-1])
    found = np.empty((len(flat), width))
    step = rows_in_cache(max(rows.shape[-1], width))
    for start in range(0, len(flat), step):
        found[start : start + step] = compute(flat[start : start + step])
    return found.reshape(*rows.shape[:-1], width)


def _with_exponents(rows: Floats, scratch: Floats) -> tuple[Floats, NDArray[np.int32]]:
    """Rows (n, d), and for each the exponent (n, 1) of a power of two that is 1.5 to 3 times its norm. Rows whose
    squares overflow are clipped first.

    A product adds squares fastest, in an order that nobody promises, and is off by d·2^-53 of the sum at most. So the
    exponent is that of the true norm, but for norms within a millionth of 4/3 times a power of two and for sums near
    overflow: those are added again in a fixed order. Which rows are added again may depend on the batch, the exponent
    does not. Many rows have norm 1, which is far from every such limit.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(rows, out=scratch) @ np.ones(rows.shape[1])
        fractions, exponents = np.frexp(0.75 * np.sqrt(squares))
        # NaN and infinity count as doubtful.
        sure = (fractions > 0.5 + 1e-6) & (fractions < 1 - 1e-6) & (squares < 2.0**900)
        if not sure.all():
            doubtful = np.flatnonzero(~sure)
            norms = row_norms(rows[doubtful])
            if np.isinf(norms).any():
                overflowed = doubtful[np.isinf(norms)]
                rows = rows.copy()
                rows[overflowed] = np.clip(rows[overflowed], -_LARGEST_ENTRY, _LARGEST_ENTRY)
                norms = row_norms(rows[doubtful])
            exponents[doubtful] = np.frexp(0.75 * norms)[1]
    # Shorter rows have squares that underflow; divided by this power they are rounded to 0.
    return rows, np.maximum(exponents + 1, _SHORTEST)[:, None]


def _of_unit_norm(weights: Floats) -> tuple[Floats, Floats]:
    """Weights (k, d), each row divided by a power of two to a norm of 1 at most, and these powers."""
    peaks = np.frexp(np.abs(weights).max(-1, initial=0.0))[1]
    # Divided by their largest entry first: no square overflows, and none of small weights is lost.
    scaled = np.ldexp(weights, -peaks[:, None])
    more = np.frexp(row_norms(scaled))[1]
    return np.ldexp(scaled, -more[:, None]), np.ldexp(1.0, peaks + more)


def _on_grid(values: Floats, places: int) -> Floats:
    """The nearest multiples of 2^-places of numbers between −1 and 1, or a little beyond."""
    found: Floats = values + _rounder(places)
    found -= _rounder(places)
    return found


def _rounder(places: int) -> float:
    """Doubles between 2^(52 − places) and twice that are 2^-places apart: a sum there is rounded to one of them."""
    return 1.5 * 2.0 ** (52 - places)

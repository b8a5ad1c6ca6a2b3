"""Sums over records that are the same to the last bit in any order, any blocks and on any number of machines.

Doubles that are multiples of 2^-36 are added without rounding while sums stay within 2^17. A block of at most 2^16
records, of which none adds more than 2 to an entry, stays there. So a matrix product of factors on the grid 2^-18 is
exact whichever kernel computes it, and blocks are added as integers: a step's sum is a function of its records alone.

Grid    Entries are rounded towards zero, so no norm grows and every bound on a record's part still holds. An entry of
        a row loses at most 2^-18 = 4e-6.
Range   Integers have two words of 64 bits. They hold the sums of 2^48 records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.data.scratch import scratch
from comity.errors import ComityError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FACTOR_PLACES = 18
PLACES = 2 * FACTOR_PLACES
MAX_BLOCK_ROWS = 1 << 16
_FACTOR, _UNITS = 2.0**FACTOR_PLACES, 2.0**PLACES
_WORD = 32
_HIGH = 2.0 ** (PLACES - _WORD)
_MAX_SUM, _MAX_WHOLE = 2.0 ** (53 - PLACES), 2.0**48


def round_factor(values: Floats | NDArray[np.float32], out: Floats | None = None) -> Floats:
    """The multiples of 2^-18 next to these numbers, towards zero; in `out` where it is given."""
    found: Floats = np.multiply(values, _FACTOR, out=out)
    np.trunc(found, out=found)
    found *= 1 / _FACTOR
    return found


def rows_on_grid(rows: Floats | NDArray[np.float32], filled: NDArray[np.bool_]) -> Floats:
    """`round_factor` of rows (..., n, d), zero where they are not `filled`. The next call of the thread overwrites
    it."""
    # Entries in the order that they have in memory: columns stay columns.
    columns = rows.ndim == 2 and rows.flags.f_contiguous
    values, present = (rows.T, filled) if columns else (rows, filled[..., None])
    found = scratch("grid", values.shape)
    round_factor(values, out=found)
    if not filled.all():
        found *= present
    return found.T if columns else found


def round_term(values: Floats) -> Floats:
    """The multiples of 2^-36 next to numbers of records that are added without a product, towards zero."""
    found: Floats = np.multiply(values, _UNITS)
    np.trunc(found, out=found)
    found *= 1 / _UNITS
    return found


@dataclass(eq=False)
class ExactSum:
    """A sum of arrays in units of 2^-36: 2^32 times `high`, and `low`, which is at least 0 and below 2^32."""

    high: Integers
    low: Integers

    @classmethod
    def of(cls, part: Floats) -> ExactSum:
        """The sum of one block. A part that is off the grid, or beyond what is added exactly there, was not computed
        for exact sums: it is refused. Whole numbers, such as counts, may be larger."""
        part = np.asarray(part, np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            high = np.floor(part * _HIGH)
            low = (part - high / _HIGH) * _UNITS
            short = (np.abs(part) <= _MAX_SUM) | ((part == np.rint(part)) & (np.abs(part) <= _MAX_WHOLE))
            on_grid = short & (low == np.rint(low))
        if not on_grid.all():
            raise ComityError("a part of an exact sum is off its grid", code="stopped")
        return cls(high.astype(np.int64), low.astype(np.int64))

    @classmethod
    def of_all(cls, parts: Floats) -> ExactSum:
        """The sum of at most 2^16 blocks, (blocks, ...)."""
        each = cls.of(parts)
        low = each.low.sum(axis=0)
        return cls(each.high.sum(axis=0) + (low >> _WORD), low & ((1 << _WORD) - 1))

    @classmethod
    def total(cls, parts: Iterable[ExactSum]) -> ExactSum:
        first, *others = parts
        found = cls(first.high.copy(), first.low.copy())
        for other in others:
            found.add(other)
        return found

    def add(self, other: ExactSum) -> None:
        if self.high.shape != other.high.shape:
            raise ComityError("parts of one sum have several shapes", code="stopped")
        self.high += other.high
        self.low += other.low
        # Each is below 2^33 before this.
        self.high += self.low >> _WORD
        self.low &= (1 << _WORD) - 1

    def value(self) -> Floats:
        """The nearest doubles: both words are exact in a double each, and their sum is rounded once."""
        return np.asarray((np.ldexp(self.high.astype(np.float64), _WORD) + self.low) / _UNITS, np.float64)

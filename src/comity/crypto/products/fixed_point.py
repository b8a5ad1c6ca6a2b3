"""Real numbers as integers of a fixed number of binary places, with the room they need checked in advance.

A value x becomes round(x · 2^places), at most `largest` in magnitude because a public bound says so. Before anything is
sent, `product_bits` says from public figures alone (rows, bounds, the tail of the noise) how wide the ring must be so
that the result can't wrap; `require` refuses when it isn't. A wrap would be a wrong result, never a loss of privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled
from comity.errors import Malformed, Refused

_TILE = 64

_Integer = TypeVar("_Integer", np.int32, np.int64)


@dataclass(frozen=True)
class FixedPoint:
    """Numbers of magnitude at most `bound`, kept to `places` binary places; both are public."""

    places: int
    bound: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.places <= 52 or not 0 < self.bound < math.inf or self.largest >= 2**52:
            raise Refused(
                f"a fixed-point form needs 0 to 52 places and a bound with bound · 2^places below 2^52, "
                f"found {self.places} places and bound {self.bound}"
            )

    @property
    def largest(self) -> int:
        """The largest magnitude of an encoded number."""
        return round(math.ldexp(self.bound, self.places))

    def encode(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """The integers of an array of any shape."""
        flat = np.asarray(values, np.float64).reshape(-1, 1)
        return self.columns(flat, np.int64).reshape(np.shape(values))

    def columns(self, rows: NDArray[np.float64], kind: type[_Integer]) -> NDArray[_Integer]:
        """The integers of a block of rows, of the type `kind`, one contiguous line per column."""
        lines = np.empty(rows.shape[::-1], kind)
        self.fill(lines, rows)
        return lines

    def fill(self, lines: NDArray[_Integer], rows: NDArray[np.float64]) -> None:
        """The same, into an array that is there already."""
        values = np.ascontiguousarray(rows, np.float64)
        if values.ndim != 2 or lines.shape != values.shape[::-1] or self.largest > np.iinfo(lines.dtype).max:
            raise Malformed(f"a block of rows whose integers fit {lines.dtype} was expected, found {values.shape}")
        if _columns(values, math.ldexp(1.0, self.places), float(self.bound), lines):
            raise Malformed("a value is not finite or exceeds the public bound; clip to the bound first", code="bound")

    def decode(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.ldexp(integers.astype(np.float64), -self.places)


@compiled
def _columns(values: NDArray[np.float64], scale: float, bound: float, lines: NDArray[Any]) -> bool:
    rows, columns = values.shape
    outside = 0
    tile = np.empty(_TILE * columns, np.int64)
    # Rows are rounded as they lie in memory, a tile at a time, and turned while they are in the first cache.
    for start in range(0, rows, _TILE):
        height = min(_TILE, rows - start)
        flat = values[start : start + height].reshape(height * columns)
        for place in range(height * columns):
            inside = np.abs(flat[place]) <= bound
            outside |= not inside
            tile[place] = np.int64(np.rint((flat[place] if inside else 0.0) * scale))
        for column in range(columns):
            for row in range(height):
                lines[column, start + row] = tile[row * columns + column]
    return outside != 0


def product_bits(rows: int, left: FixedPoint, right: FixedPoint, *, noise: int = 0) -> int:
    """Width of the ring that holds every entry of a product over `rows` rows, plus `noise` units, with its sign."""
    return _signed_bits(rows * left.largest * right.largest + noise)


def _signed_bits(most: int) -> int:
    return most.bit_length() + 1


def require(needed: int, available: int) -> None:
    """Refuse, before anything is sent, when a ring is too narrow."""
    if needed > available:
        raise Refused(
            f"the result with its noise needs {needed} bits and the ring has {available}; "
            "use fewer binary places, tighter bounds or fewer rows",
            code="headroom",
        )

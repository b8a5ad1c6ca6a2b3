"""Encoded rows as single floats, rounded towards zero: half of the memory, and no norm grows.

Who sums over rows that are rounded like this rounds those in memory itself, and finds those of a cache rounded: both
are the same bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled_or

# The digits of a double that a single float has.
_KEPT = -(1 << 29)
_TILE = 256


def truncate_to_singles(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The single floats next to `values`, towards zero. What is too large for one becomes infinite, and what is below
    2^-126 may grow by its last digit, which no square shows."""
    with np.errstate(over="ignore"):
        bits = np.ascontiguousarray(values, np.float64).view(np.int64) & _KEPT
        return bits.view(np.float64).astype(np.float32)


def _round_in_numpy(x: NDArray[np.float64], out: NDArray[np.float32]) -> None:
    out[:] = truncate_to_singles(x)


@compiled_or(_round_in_numpy)
def round_to_singles(x: NDArray[np.float64], out: NDArray[np.float32]) -> None:
    """Write `truncate_to_singles` of `x` (d, n) to `out`."""
    kept = np.empty(_TILE, np.int64)
    values = kept.view(np.float64)
    for j in range(x.shape[0]):
        bits = x[j].view(np.int64)
        for first in range(0, x.shape[1], _TILE):
            size = min(_TILE, x.shape[1] - first)
            line, found = bits[first : first + size], out[j, first : first + size]
            for i in range(size):
                kept[i] = line[i] & _KEPT
            for i in range(size):
                found[i] = np.float32(values[i])

"""Whitened rows in one pass over them: both products, the stretch, the unit ball and the grid of exact sums.

Rows come as columns (d, n): a row is a column, and one operation does the same to many rows at once. A sum over a row's
entries is added from the first entry to the last, each product and each addition rounded by itself, so a row has the
same bits in any tile, at any place in it, and without the compiler.

Tiles   Slices of a line, and not places of an array, are read and written: the compiler sees that they are in a row.
Range   Rows are inside the unit ball, entries of B at most 1 and c at most 2^30 in magnitude: no square overflows.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled_or
from comity.data.scratch import scratch
from comity.learn.record_sum import SURELY_INSIDE, in_unit_ball

Floats = NDArray[np.float64]
Rows = TypeVar("Rows", Floats, NDArray[np.float32], Floats | NDArray[np.float32])

MAX_FEATURES = 256
"""Wider rows go through BLAS: a tile of them leaves the cache."""

TILE = 64
"""Rows that go through all operations together. A loop over them is a few vector instructions."""


def as_columns(rows: Rows, name: str = "columns") -> Rows:
    """Rows (..., d) as contiguous columns (d, n). Rows that were columns are not copied; others are copied to memory
    that the next call of the thread with this name overwrites."""
    width = rows.shape[-1]
    columns = rows.reshape(rows.size // width, width).T
    if columns.flags.c_contiguous:
        return columns
    found = scratch(name, columns.shape, columns.dtype.type)
    found[:] = columns
    return found


def unit_columns(rows: Floats) -> Floats:
    """`in_unit_ball` of rows (..., d), as `as_columns`."""
    columns = as_columns(rows)
    return columns if surely_inside(columns) else as_columns(in_unit_ball(rows))


def _surely_inside_in_numpy(x: Floats) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool((np.einsum("ij,ij->j", x, x) <= SURELY_INSIDE).all())


@compiled_or(_surely_inside_in_numpy)
def surely_inside(x: Floats) -> bool:
    """Whether every column (d, n) is in the unit ball, in whatever order its squares are added; one at its edge may
    count as outside. False for NaN too."""
    width, rows = x.shape
    square = np.empty(TILE)
    outside = 0
    for first in range(0, rows, TILE):
        size = min(TILE, rows - first)
        for i in range(TILE):
            square[i] = 0.0
        for j in range(width):
            line = x[j, first : first + size]
            for i in range(size):
                square[i] += line[i] * line[i]
        for i in range(TILE):
            outside += 0 if square[i] <= SURELY_INSIDE else 1
    return outside == 0


def _whiten_in_numpy(x: Floats, directions: Floats, scale: float, units: float, out: NDArray[np.floating]) -> None:
    along = np.zeros((len(directions), x.shape[1]))
    for j in range(len(x)):
        along += directions[:, j, None] * x[j]
    found, square = x.copy(), np.zeros(x.shape[1])
    for j in range(len(x)):
        for m in range(len(directions)):
            found[j] -= along[m] * directions[m, j]
        found[j] *= scale
        square += found[j] * found[j]
    found *= 1.0 / np.maximum(np.sqrt(square), 1.0)
    out[:] = found if units == 0.0 else np.trunc(found * units) * (1.0 / units)


@compiled_or(_whiten_in_numpy)
def whiten(  # noqa: C901 (one pass over a tile, a loop for each operation)
    x: Floats, directions: Floats, scale: float, units: float, out: NDArray[np.floating]
) -> None:
    """Write c·(x − BᵀB x), scaled into the unit ball, of columns `x` (d, n) of the unit ball to `out` (d, n): as it is
    where `units` is 0, else its multiples of 1/units, towards zero. `directions` (k, d) are the rows of B."""
    width, rows = x.shape
    count = directions.shape[0]
    tile = np.zeros((width, TILE))
    along = np.empty((max(1, count), TILE))
    square = np.empty(TILE)
    factor = np.empty(TILE)
    for first in range(0, rows, TILE):
        size = min(TILE, rows - first)
        for i in range(TILE):
            square[i] = 0.0
        for m in range(count):
            for i in range(TILE):
                along[m, i] = 0.0
        for j in range(width):
            line = x[j, first : first + size]
            for i in range(size):
                tile[j, i] = line[i]
        for m in range(count):
            for j in range(width):
                part = directions[m, j]
                for i in range(TILE):
                    along[m, i] += part * tile[j, i]
        for j in range(width):
            for m in range(count):
                part = directions[m, j]
                for i in range(TILE):
                    tile[j, i] -= along[m, i] * part
            for i in range(TILE):
                value = tile[j, i] * scale
                tile[j, i] = value
                square[i] += value * value
        for i in range(TILE):
            factor[i] = 1.0 / max(np.sqrt(square[i]), 1.0)
        if units == 0.0:
            for j in range(width):
                written = out[j, first : first + size]
                for i in range(size):
                    written[i] = tile[j, i] * factor[i]
        else:
            for j in range(width):
                written = out[j, first : first + size]
                for i in range(size):
                    written[i] = np.trunc(tile[j, i] * factor[i] * units) * (1.0 / units)

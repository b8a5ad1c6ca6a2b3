"""Whitened rows in one pass over them: rounding, both products, the stretch and the unit ball.

It makes the bits that `Whitening` makes step by step with numpy. The products are sums of doubles that are exact in any
order (`comity.data.row_products`). Every other operation rounds one entry by itself, and squares are added in the order
of `row_sums`. So a row has the same bits in any tile and at any place in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled

Floats = NDArray[np.float64]

MAX_FEATURES = 256
"""Wider rows go through BLAS: a tile of them leaves the cache."""

_TILE = 64


@compiled
def whiten(  # noqa: C901 (one pass over a tile, a loop for each operation)
    x: Floats, down: Floats, up: Floats, rounder: float, length: float, scale: float, out: Floats
) -> bool:
    """Write c·(x − BᵀB x), scaled into the unit ball, of rows of the ball to `out`. Both are (d, n): a row is a column.

    `down` (d, 2k) and `up` (k, 2d) are the factors of `row_products.Weights`, coarse and fine parts side by side, and
    `rounder` puts numbers on the rows' grid. False where a row is too long for its squares: `out` is then of no use.
    """
    width, rows = x.shape
    both = down.shape[1]
    count = both // 2
    # Each loop over `i` is a few vector instructions.
    tile = np.zeros((width, _TILE))
    squares = np.empty((width, _TILE))
    along = np.empty((both, _TILE))
    coarse = np.empty(_TILE)
    fine = np.empty(_TILE)
    divisor = np.empty(_TILE)
    finite = True
    for first in range(0, rows, _TILE):
        size = min(_TILE, rows - first)
        for j in range(width):
            for i in range(size):
                tile[j, i] = x[j, first + i]
        for m in range(both):
            for i in range(_TILE):
                along[m, i] = 0.0
        for j in range(width):
            for m in range(both):
                factor = down[j, m]
                for i in range(_TILE):
                    along[m, i] += ((tile[j, i] + rounder) - rounder) * factor
        for m in range(count):
            for i in range(_TILE):
                along[m, i] = ((along[m, i] + along[count + m, i]) / length + rounder) - rounder
        for j in range(width):
            for i in range(_TILE):
                coarse[i] = 0.0
                fine[i] = 0.0
            for m in range(count):
                for i in range(_TILE):
                    coarse[i] += along[m, i] * up[m, j]
                    fine[i] += along[m, i] * up[m, width + j]
            for i in range(_TILE):
                value = (tile[j, i] - (coarse[i] + fine[i])) * scale
                tile[j, i] = value
                squares[j, i] = value * value
        left = width
        while left > 1:
            half = left // 2
            for j in range(half):
                for i in range(_TILE):
                    squares[j, i] += squares[left - half + j, i]
            left -= half
        for i in range(_TILE):
            divisor[i] = max(np.sqrt(squares[0, i]), 1.0)
        for i in range(size):
            # False for NaN too.
            if not divisor[i] < np.inf:
                finite = False
        for j in range(width):
            for i in range(_TILE):
                tile[j, i] /= divisor[i]
        for j in range(width):
            for i in range(size):
                out[j, first + i] = tile[j, i]
    return finite

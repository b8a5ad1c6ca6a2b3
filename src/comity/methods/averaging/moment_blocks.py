"""Which second moments of the records are released: all of them up to a width, and those within blocks of features
beyond it, down to the diagonal. With them goes the sum of squared lengths, as one number more.

    S = Σ xxᵀ,    released: the entries S_ij of features i, j in one block, and b·Σ|x|²

The sum of squares is the trace of S, but read off the diagonal it would carry the noise of d numbers.

Blocks are neighbours in the encoded row and as long as a public number of entries allows, so that what a site computes,
masks and sends stays the same however many features there are.

Sensitivity  √2 for a replaced record and √(1 + b²) for an added one, whatever the blocks: |x_b|⁴ summed over blocks is
             at most |x|⁴ (proof.md, 3). b <= 1 costs nothing where a record is replaced.
Steps        with k blocks (x·v)² <= k Σ_b (x_b·v_b)², so that S is at most k times its blocks: steps made from them are
             k times shorter than S itself would allow, and never too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.federation.declare.bounds import Range, Weights
from comity.federation.declare.plausibility import moment_ranges
from comity.learn.record_sum import from_upper_triangle, upper_triangle

Floats = NDArray[np.float64]
Blocks = tuple[slice, ...]

WIDEST_WHOLE = 1500
"""Up to so many features all second moments are released: 1.1 million numbers, 9 MB of each party. A limit
of size, beyond the tables that other constants were chosen on."""

SQUARE = 0.5
"""b. Not tuned on data: the sum is known well at any, and added records pay for a larger one."""

_MOST = WIDEST_WHOLE * (WIDEST_WHOLE + 1) // 2


def blocks_of(features: int) -> Blocks:
    """Neighbouring features, in blocks of about one size."""
    if features <= WIDEST_WHOLE:
        return (slice(0, features),)
    # Blocks of s features have d(s + 1)/2 entries together.
    longest = max(1, 2 * _MOST // features - 1)
    count = -(-features // longest)
    edges = [features * place // count for place in range(count + 1)]
    return tuple(slice(start, stop) for start, stop in pairwise(edges))


def entries(blocks: Blocks) -> int:
    """Numbers that are released of these blocks."""
    return sum(_size(block) for block in blocks) + 1


def moved(*, replaced: bool) -> float:
    """How far one record moves the vector."""
    return sqrt(2.0) if replaced else sqrt(1 + SQUARE**2)


def moments(rows: Floats, blocks: Blocks) -> Floats:
    """Σ x_b x_bᵀ of all blocks and b·Σ|x|² as one vector (..., entries); the norm of all but the last is that of the
    matrices together."""
    squares = SQUARE * np.einsum("...ij,...ij->...", rows, rows)
    return np.concatenate([*(upper_triangle(rows[..., block]) for block in blocks), squares[..., None]], axis=-1)


def square(vector: Floats) -> float:
    """Σ|x|² of such a vector."""
    return float(vector[-1]) / SQUARE


def matrices(vector: Floats, blocks: Blocks) -> list[Floats]:
    """The symmetric matrices of such a vector."""
    ends = np.cumsum([_size(block) for block in blocks])
    parts: Sequence[Floats] = np.split(vector[:-1], ends[:-1])
    return [from_upper_triangle(part, block.stop - block.start) for part, block in zip(parts, blocks)]


def ranges(vector: Floats, blocks: Blocks, most: float) -> tuple[Range, ...]:
    """What public figures allow of such a vector, where no sum of squares is above `most`: moments of each block, and
    one sum of all squares."""
    found: list[Range] = []
    for matrix in matrices(vector, blocks):
        beside = np.full(matrix.shape, 1 / sqrt(2.0))
        np.fill_diagonal(beside, 1.0)
        found += moment_ranges(matrix, beside, most, gaussian=True)
    trace, width = sum(float(np.trace(one)) for one in matrices(vector, blocks)), blocks[-1].stop
    both = Weights(width + 1 / SQUARE, sqrt(width + 1 / SQUARE**2), 1 / SQUARE)
    gap = np.atleast_1d(trace - square(vector))
    return *found, Range("the trace of the second moments, less the sum of squares,", gap, 0.0, 0.0, both)


def _size(block: slice) -> int:
    width: int = block.stop - block.start
    return width * (width + 1) // 2

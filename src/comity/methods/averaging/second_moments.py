"""Second moments of the rows, and the whitening that the coordinator derives from them.

    S = Σ xxᵀ,    released: the entries S_ij of features i, j in one block, and b·Σ|x|²

Up to `MAX_WHOLE_FEATURES` features one block holds all of S. Wider rows have several blocks of neighbouring features,
down to the diagonal, each as long as a public number of entries allows: the cost of a site's computing, masking and
sending stays the same for any number of features. The sum of squares is the trace of S, but read off the diagonal it
would carry the noise of d numbers.

Sensitivity  √2 for a replaced record and √(1 + b²) for an added one, for any blocks: |x_b|⁴ summed over blocks is at
             most |x|⁴ (proof.md, 3). b <= 1 costs nothing where a record is replaced.
Steps        with k blocks (x·v)² <= k Σ_b (x_b·v_b)², so S is at most k times its blocks: steps derived from them are k
             times shorter than S itself would allow, and never too long.

Whitening maps a row and the weights of whitened rows back:

    u = c·(x − BᵀB x), scaled into the unit ball,    W = V·c·(I − BᵀB) for weights V of u

The length of its row bounds a record's part of a sum, and noise is scaled for that bound. Most of the length of a row
that is encoded within public bounds is common to all records: their mean and a few more directions. The opened second
moment says which. Rows are shortened along those until none has more than a tenth of what is left, then all are
stretched to a mean square of 1, and rows longer than 1 are clipped. The differences between records then stand as far
above the noise as they can.

The second moments of whitened rows, from which the steps are derived, are a separate release. Its bound is that of rows
in the unit ball, for any factors that a coordinator sends (proof.md, 3). A site clips the factors to public ranges. A
whitened row depends on its record and the factors alone, to the last bit: a kernel computes each row by itself, and
products of wider rows are exact (`comity.data.row_products`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from comity.data.exact_sums import FACTOR_PLACES, round_factor, rows_on_grid
from comity.data.row_products import Weights as RowWeights
from comity.data.row_products import clip_received, in_blocks
from comity.federation.declare.bounds import Range, Weights
from comity.federation.declare.plausibility import moment_ranges
from comity.learn.record_sum import from_upper_triangle, in_unit_ball, triangle_weights, upper_products
from comity.methods.averaging.row_kernels import (
    MAX_FEATURES,
    MAX_MULTIPLIED,
    single_columns,
    sum_second_moments,
    whiten,
)

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Whitened = Singles | Floats
Blocks = tuple[slice, ...]

MAX_WHOLE_FEATURES = 1500
"""Up to so many features all second moments are released: 1.1 million numbers, 9 MB from each party. A limit
of size, beyond the tables that other constants were chosen on."""

SQUARES_WEIGHT = 0.5
"""b. Not tuned on data: the sum is known well with any, and added records pay for a larger one."""

WHITENINGS = 1
"""Each whitening comes from second moments of the rows before it. Of 0, 1 and 2 the best whichever of Adult, credit
defaults, KDD-99 and HAR is left out, in the units of `descent`; over all 1 is worth .031 more than 0."""

MAX_SHARE = 0.1
"""Of 0.1, 0.2 and 0.34 the best whichever of Adult, credit defaults, KDD-99 and HAR is left out. Less was not tried."""

MAX_DIRECTIONS = round(1 / MAX_SHARE)
"""No more directions than this can each have more than `MAX_SHARE` of the whole."""

_MAX_ENTRIES = MAX_WHOLE_FEATURES * (MAX_WHOLE_FEATURES + 1) // 2

# Released second moments.


def make_blocks(features: int) -> Blocks:
    """Neighbouring features, in blocks of about one size."""
    if features <= MAX_WHOLE_FEATURES:
        return (slice(0, features),)
    # Blocks of s features have d(s + 1)/2 entries together.
    longest = max(1, 2 * _MAX_ENTRIES // features - 1)
    count = -(-features // longest)
    edges = [features * place // count for place in range(count + 1)]
    return tuple(slice(start, stop) for start, stop in pairwise(edges))


def count_entries(blocks: Blocks) -> int:
    """How many numbers are released of these blocks."""
    return sum(_triangle(block) for block in blocks) + 1


def sensitivity(*, replaced: bool) -> float:
    """How far one record moves the vector."""
    return sqrt(2.0) if replaced else sqrt(1 + SQUARES_WEIGHT**2)


def sum_moments(rows: Floats, blocks: Blocks) -> Floats:
    """Σ x_b x_bᵀ of all blocks and b·Σ|x|² as one vector (..., entries); without its last entry it has the norm of the
    matrices together."""
    return weigh_products(sum_products(rows, blocks), blocks)


def sum_products(rows: Floats, blocks: Blocks) -> Floats:
    """The products of `sum_moments` without their factors: exact for rows on the grid of exact sums."""
    parts = [upper_products(rows[..., block]) for block in blocks]
    squares = sum(part[..., _diagonal(block.stop - block.start)].sum(-1) for part, block in zip(parts, blocks))
    return np.concatenate([*parts, np.asarray(squares)[..., None]], axis=-1)


def sum_single_products(x: Singles, filled: NDArray[np.bool_], owners: tuple[int, ...]) -> Floats:
    """`sum_products` of one block that holds all features, of columns (d, n) of the unit ball on the grid of exact
    sums: (*owners, entries)."""
    width, moments = len(x), np.empty((prod(owners), _triangle(slice(0, len(x)))))
    if width <= MAX_MULTIPLIED:
        sum_second_moments(x, np.ascontiguousarray(filled.reshape(-1)), moments)
    else:
        rows = rows_on_grid(x.T, filled.reshape(-1))
        for owner, part in enumerate(np.split(rows, prod(owners))):
            moments[owner] = upper_products(part)
    squares = moments[:, _diagonal(width)].sum(-1, keepdims=True)
    return np.concatenate([moments, squares], axis=1).reshape(*owners, -1)


def weigh_products(total: Floats, blocks: Blocks) -> Floats:
    """√2 beside the diagonals, and b."""
    weights = [*(triangle_weights(block.stop - block.start) for block in blocks), np.array([SQUARES_WEIGHT])]
    return np.asarray(total * np.concatenate(weights), np.float64)


def read_square(vector: Floats) -> float:
    """Σ|x|² from such a vector."""
    return float(vector[-1]) / SQUARES_WEIGHT


def read_matrices(vector: Floats, blocks: Blocks) -> list[Floats]:
    """The symmetric matrices from such a vector."""
    ends = np.cumsum([_triangle(block) for block in blocks])
    parts: Sequence[Floats] = np.split(vector[:-1], ends[:-1])
    return [from_upper_triangle(part, block.stop - block.start) for part, block in zip(parts, blocks)]


def plausible_ranges(vector: Floats, blocks: Blocks, most: float) -> tuple[Range, ...]:
    """What public figures allow of such a vector, where no sum of squares is above `most`: the moments of each block,
    and one sum of all squares."""
    matrices = read_matrices(vector, blocks)
    ranges: list[Range] = []
    for matrix in matrices:
        beside = np.full(matrix.shape, 1 / sqrt(2.0))
        np.fill_diagonal(beside, 1.0)
        ranges += moment_ranges(matrix, beside, most, gaussian=True)
    trace, width = sum(float(np.trace(one)) for one in matrices), blocks[-1].stop
    both = Weights(width + 1 / SQUARES_WEIGHT, sqrt(width + 1 / SQUARES_WEIGHT**2), 1 / SQUARES_WEIGHT)
    gap = np.atleast_1d(trace - read_square(vector))
    return *ranges, Range("the trace of the second moments, less the sum of squares,", gap, 0.0, 0.0, both)


def _diagonal(width: int) -> NDArray[np.int64]:
    """The places of x_i² in an upper triangle."""
    row = np.arange(width)
    return row * width - row * (row - 1) // 2


def _triangle(block: slice) -> int:
    width: int = block.stop - block.start
    return width * (width + 1) // 2


# Whitening.


def count_whitenings(features: int) -> int:
    """None for rows so wide that their second moments come in blocks: the common directions would be as many numbers as
    a gradient of ten classes, in every round."""
    return WHITENINGS if features <= MAX_WHOLE_FEATURES else 0


def is_narrow(features: int) -> bool:
    """Whether a kernel whitens rows: once, and so few features that a tile of rows stays in the cache."""
    return count_whitenings(features) == 1 and 0 < features <= MAX_FEATURES


@dataclass(frozen=True, eq=False)
class _Stage:
    """One c and B as a site multiplies by them: B x exactly, and from its rounded value BᵀB x exactly."""

    scale: float
    directions: Floats
    down: RowWeights
    up: RowWeights
    length: float

    @classmethod
    def clip(cls, scale: float, directions: Floats) -> _Stage:
        """From received factors: honest rows of B are no longer than 1."""
        bounded = clip_received(directions, 1.0)
        # B x is no longer than B, of whose norm this is the next power of two, twice for rounding.
        length = float(np.ldexp(2.0, np.frexp(np.linalg.norm(bounded))[1]))
        factor = float(clip_received(np.array(scale)))
        # Rows of B that are zero add nothing, and cost as much as others.
        used = np.ascontiguousarray(bounded[bounded.any(axis=1)])
        return cls(factor, used, RowWeights.of(used), RowWeights.of(length * used.T, len(bounded)), length)

    def map_block(self, rows: Floats, *, in_ball: bool) -> Floats:
        """Rows of the unit ball; after an earlier stage they may be longer."""
        if not in_ball:
            along = self.down.of_rows(rows)
            removed = RowWeights(self.up.factor, self.up.powers / self.length).of_rows(along)
        else:
            along = self.down.of_unit_rows(rows)
            along /= self.length
            removed = self.up.of_unit_rows(along)
        np.subtract(rows, removed, out=removed)
        removed *= self.scale
        return removed


@dataclass(frozen=True, eq=False)
class Whitening:
    """`factors` (whitenings, 1 + 10·d): each row has c and the rows of B; c = 1 and B = 0 before it is fitted."""

    factors: Floats

    @classmethod
    def identity(cls, features: int) -> Whitening:
        factors = np.zeros((count_whitenings(features), 1 + MAX_DIRECTIONS * features))
        factors[:, 0] = 1.0
        return cls(factors)

    def map_rows(self, rows: Floats) -> Floats:
        """Rows (..., d) of the unit ball, as long as they become."""
        return in_blocks(self._map, rows, rows.shape[-1])

    def map_into_ball(self, rows: Floats) -> Floats:
        """The same, scaled into the unit ball for any factors. Up to `MAX_FEATURES` features they are single floats
        that are computed of single floats."""
        if self.by_kernel:
            return self._whiten(rows, 0.0, np.empty((rows.shape[-1], prod(rows.shape[:-1])), np.float32)).astype(
                np.float64
            )
        return in_blocks(lambda block: in_unit_ball(self._map(block)), rows, rows.shape[-1])

    def map_on_grid(self, rows: Whitened, out: Singles | None = None) -> Whitened:
        """`round_factor` of `map_into_ball`. Up to `MAX_FEATURES` features they are single floats, which hold multiples
        of 2^-18 in the unit ball exactly, and are written to `out` (d, rows) where it is given."""
        if not self.by_kernel:
            return round_factor(self.map_into_ball(np.asarray(rows, np.float64)))
        if out is None:
            out = np.empty((rows.shape[-1], prod(rows.shape[:-1])), np.float32)
        return self._whiten(rows, 2.0**FACTOR_PLACES, out)

    def _whiten(self, rows: Whitened, units: float, out: Singles) -> Singles:
        whiten(single_columns(rows), *self.factors_of_kernel, np.float32(units), out)
        return out.T.reshape(rows.shape)

    @property
    def factors_of_kernel(self) -> tuple[Singles, np.float32]:
        """B and c, clipped to public ranges, as single floats."""
        (stage,) = self._stages
        return stage.directions.astype(np.float32), np.float32(stage.scale)

    @property
    def by_kernel(self) -> bool:
        return len(self.factors) == 1 and is_narrow((self.factors.shape[1] - 1) // MAX_DIRECTIONS)

    @cached_property
    def _stages(self) -> list[_Stage]:
        return [_Stage.clip(scale, directions) for scale, directions in self._pairs]

    @cached_property
    def _map(self) -> Callable[[Floats], Floats]:
        stages = self._stages

        def map_block(block: Floats) -> Floats:
            for number, stage in enumerate(stages):
                block = stage.map_block(block, in_ball=not number)
            return block

        return map_block

    def unwhiten(self, weights: Floats) -> Floats:
        """Weights (k, d) of the original rows, from weights of whitened rows."""
        for scale, directions in reversed(self._pairs):
            weights = scale * (weights - (weights @ directions.T) @ directions)
        return np.asarray(weights, np.float64)

    def with_stage(self, number: int, scale: float, directions: Floats) -> Whitening:
        factors = self.factors.copy()
        factors[number] = 0.0
        factors[number, 0] = scale
        factors[number, 1 : 1 + directions.size] = directions.ravel()
        return replace(self, factors=factors)

    @property
    def _pairs(self) -> list[tuple[float, Floats]]:
        shape = (MAX_DIRECTIONS, (self.factors.shape[1] - 1) // MAX_DIRECTIONS)
        return [(float(one[0]), one[1:].reshape(shape)) for one in self.factors]


def fit_whitening(
    moments: Sequence[Floats], square: float, blocks: Blocks, *, records: int, spread: float
) -> tuple[float, Floats]:
    """c and B from noisy second moments of blocks of features and a noisy sum of squared lengths.

    `spread` is the deviation of the noise on a released number. A direction counts where its eigenvalue is above
    √(2d)·spread, which noise alone rarely exceeds. Noise moves the eigenvalue λ of such a direction to λ + v/λ,
    v = d·spread²/2, and its eigenvector keeps 1 − v/λ² of its square along the true one (the limits for one strong
    direction in a large symmetric matrix of noise): λ − v/λ lies along it.
    """
    axes, strengths = [], []
    for moment, block in zip(moments, blocks):
        values, vectors = np.linalg.eigh(moment)
        variance = len(values) * spread**2 / 2
        clear = values > sqrt(2.0 * len(values)) * spread
        own = (values[clear] + np.sqrt(np.maximum(values[clear] ** 2 - 4 * variance, 0.0))) / 2
        strengths.append(np.maximum(own - variance / np.maximum(own, 1e-300), 0.0))
        placed = np.zeros((len(own), blocks[-1].stop))
        placed[:, block] = vectors[:, clear].T
        axes.append(placed)
    strong, along = np.concatenate(strengths), np.concatenate(axes)
    rest = max(square - float(strong.sum()), spread / SQUARES_WEIGHT, 1e-9)
    level = _find_level(strong, rest)
    long = strong > level
    shorter = np.sqrt(level / strong[long])
    left = rest + float(np.minimum(strong, level).sum())
    # Rows in the ball are not longer than 1: where the sum says so, it is noise.
    return max(1.0, sqrt(records / left)), np.asarray(np.sqrt(1 - shorter)[:, None] * along[long], np.float64)


def _find_level(strengths: Floats, rest: float) -> float:
    """The strength that is a tenth of the whole once none is above it, or the largest strength where that is less."""
    low, high = 0.0, rest + float(strengths.sum())
    for _ in range(60):
        middle = (low + high) / 2
        few = middle < MAX_SHARE * (rest + float(np.minimum(strengths, middle).sum()))
        low, high = (middle, high) if few else (low, middle)
    return high

"""Rows as gradients take them: directions in which all records are long made shorter, and the rest longer.

    u = c·(x − BᵀB x), brought into the unit ball,    W = V·c·(I − BᵀB) for weights V of u

A record's part of a sum is bounded by the length of its row, and noise is scaled for that bound. Of a row that is
encoded within public bounds most of the length is what all records have in common: their mean, and a few directions
beside it. The opened second moment says which; along those the rows are shortened, so that none has more than a tenth
of what is left, and then all are stretched to a mean square of 1. Those that become longer than 1 are cut. What tells
records apart then stands as far above the noise as it can.

The second moments of whitened rows, from which the steps are made, are a release of their own. Its bound is that of
rows in the unit ball, whatever the coordinator asks them to be multiplied by (proof.md, 3). Factors are clipped to
public ranges, and products are exact (`comity.data.row_products`): a whitened row depends on its record and the factors
alone, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.data.row_products import Weights, clip_received, in_blocks
from comity.learn.record_sum import in_unit_ball
from comity.methods.averaging.moment_blocks import WIDEST_WHOLE, Blocks

Floats = NDArray[np.float64]

LOOKS = 1
"""Whitenings, each from second moments of the rows as they were before it. Of 0, 1 and 2 the best whichever of Adult,
credit defaults, KDD-99 and HAR is left out, as `rule` says of its constants; over all 1 is worth .031 more than 0."""

MOST_OF_ALL = 0.1
"""Of 0.1, 0.2 and 0.34 the best whichever of Adult, credit defaults, KDD-99 and HAR is left out. Less was not tried."""

MOST_DIRECTIONS = round(1 / MOST_OF_ALL)
"""So many directions at most can each have more than that of all."""


@dataclass(frozen=True, eq=False)
class _Look:
    """c and B as a site multiplies by them: B x exactly, and from it BᵀB x exactly, of what was rounded between."""

    scale: float
    down: Weights
    up: Weights
    length: float

    @classmethod
    def of(cls, scale: float, directions: Floats) -> _Look:
        """Of what was received, clipped: honest rows of B are no longer than 1."""
        kept = clip_received(directions, 1.0)
        # B x is no longer than B, of whose norm this is the next power of two, twice for rounding.
        length = float(np.ldexp(2.0, np.frexp(np.linalg.norm(kept))[1]))
        return cls(float(clip_received(np.array(scale))), Weights.of(kept), Weights.of(length * kept.T), length)

    def of_block(self, rows: Floats, *, in_ball: bool) -> Floats:
        """Rows that lie in the unit ball; after another look they may be longer."""
        if not in_ball:
            along = self.down.of_rows(rows)
            found = Weights(self.up.factor, self.up.powers / self.length).of_rows(along)
        else:
            along = self.down.of_unit_rows(rows)
            along /= self.length
            found = self.up.of_unit_rows(along)
        np.subtract(rows, found, out=found)
        found *= self.scale
        return found


@dataclass(frozen=True, eq=False)
class Whitening:
    """`factors` (looks, 1 + 10·d): for each look c and the rows of B; c = 1 and B = 0 where there was none yet."""

    factors: Floats

    @classmethod
    def none(cls, features: int) -> Whitening:
        factors = np.zeros((looks_at(features), 1 + MOST_DIRECTIONS * features))
        factors[:, 0] = 1.0
        return cls(factors)

    def of(self, rows: Floats) -> Floats:
        """Rows (..., d) of the unit ball, as long as they become."""
        return in_blocks(self._map, rows, rows.shape[-1])

    def inside(self, rows: Floats) -> Floats:
        """In the unit ball, whatever the factors are."""
        return in_blocks(lambda block: in_unit_ball(self._map(block)), rows, rows.shape[-1])

    @cached_property
    def _map(self) -> Callable[[Floats], Floats]:
        looks = [_Look.of(scale, directions) for scale, directions in self._pairs]

        def mapped(block: Floats) -> Floats:
            for number, look in enumerate(looks):
                block = look.of_block(block, in_ball=not number)
            return block

        return mapped

    def back(self, weights: Floats) -> Floats:
        """Weights (k, d) of rows as they were, from those of whitened ones."""
        for scale, directions in reversed(self._pairs):
            weights = scale * (weights - (weights @ directions.T) @ directions)
        return np.asarray(weights, np.float64)

    def after(self, look: int, scale: float, directions: Floats) -> Whitening:
        """With the factors of one more look."""
        factors = self.factors.copy()
        factors[look] = 0.0
        factors[look, 0] = scale
        factors[look, 1 : 1 + directions.size] = directions.ravel()
        return replace(self, factors=factors)

    @property
    def _pairs(self) -> list[tuple[float, Floats]]:
        shape = (MOST_DIRECTIONS, (self.factors.shape[1] - 1) // MOST_DIRECTIONS)
        return [(float(one[0]), one[1:].reshape(shape)) for one in self.factors]


def looks_at(features: int) -> int:
    """None at records so wide that second moments are of blocks only: there the directions that records share are as
    many numbers as a gradient of ten classes, in every round."""
    return LOOKS if features <= WIDEST_WHOLE else 0


def whitened_by(
    moments: Sequence[Floats], square: float, blocks: Blocks, *, records: int, spread: float, square_spread: float
) -> tuple[float, Floats]:
    """c and B for noisy second moments of blocks of features and a noisy sum of squared lengths.

    `spread` is the deviation of the noise on a released second moment, `square_spread` that on the sum. A direction
    counts where its eigenvalue is above √(2d)·spread, which noise alone does not reach but for chance. Such a one is
    seen at λ + v/λ, v = d·spread²/2, and its eigenvector has 1 − v/λ² of its square in common with the true one (the
    limits for one strong direction in a large symmetric matrix of noise): λ − v/λ lies along it.
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
    rest = max(square - float(strong.sum()), square_spread, 1e-9)
    level = _level(strong, rest)
    long = strong > level
    shorter = np.sqrt(level / strong[long])
    left = rest + float(np.minimum(strong, level).sum())
    # Rows in the ball are not longer than 1: a sum that says so is noise.
    return max(1.0, sqrt(records / left)), np.asarray(np.sqrt(1 - shorter)[:, None] * along[long], np.float64)


def _level(strengths: Floats, rest: float) -> float:
    """The strength that is a tenth of all when none is above it, or that of the strongest where it is less already."""
    low, high = 0.0, rest + float(strengths.sum())
    for _ in range(60):
        middle = (low + high) / 2
        few = middle < MOST_OF_ALL * (rest + float(np.minimum(strengths, middle).sum()))
        low, high = (middle, high) if few else (low, middle)
    return high

"""Multiplicative weights for a sum of vectors, one weight for each coordinate (Sarpatwar et al. 2019, Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError, StudyError
from comity.privacy.loss import LOSSES, ZCDP, Loss, Pure
from comity.privacy.mechanisms.scale import ROUND_UP
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STEPS = 128
"""Entries lie in [−1, 1] and are put on multiples of its inverse, record by record: sums are integers, and exact."""

_MOST = 1 << 33
# Below it the closed form loses digits to cancellation; the first terms of the series do not.
_SMALL = 1e-4


@dataclass(frozen=True, kw_only=True)
class MeanWeights:
    """In each iteration the coordinate that the weights answer worst is chosen and measured, and its weight moves.

    The method keeps a distribution over all vectors on a grid and multiplies it by exp(s_i·c) after coordinate i was
    measured. Begun from the uniform one it stays a product of distributions proportional to exp(λ_i·s) on the grid of
    each coordinate, so that λ is all of it. What is released are the means, averaged over the iterations, and λ.

    Promise      against whoever sees means, λ, and every choice and measurement on the way.
    Why          a choice by noisy max with noise of mean 1/ε, of scores that a unit moves by Δ, is 2εΔ-DP; measuring
                 with discrete Laplace noise of scale 1/ε is εΔ-DP: 3εΔ an iteration, and all else is made from them.
                 Concentrated, 2εΔ and εΔ are (2εΔ)²/2 and (εΔ)²/2 (Bun and Steinke 2016): 2.5·ε²Δ².
    Sensitivity  Δ = `moved`, on each coordinate of the sum: one record that comes or goes moves it by at most 1, one
                 that is replaced by 2. How many records the weights are scaled to is public, and said with the values.

    `epsilon` is the printed figure, of which an iteration costs three times Δ and not one.
    """

    epsilon: float
    iterations: int
    dimensions: int
    moved: float = 1.0
    concentrated: bool = True
    name: ClassVar[str] = "multiplicative weights"
    norm: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        for key, value in (("iterations", self.iterations), ("dimensions", self.dimensions)):
            if not 1 <= value <= _MOST:
                raise StudyError(f"{key} of multiplicative weights lie between 1 and 2^33, found {value}", key=key)
        for key, figure in (("epsilon", self.epsilon), ("moved", self.moved)):
            if not 0 < figure < float("inf"):
                raise StudyError(
                    f"{key} of multiplicative weights must be positive and finite, found {figure}", key=key
                )

    @property
    def sensitivity(self) -> float:
        return self.moved

    @property
    def loss(self) -> Loss:
        return self.charged

    @property
    def charged(self) -> Loss:
        """Of all iterations: by concentrated losses, or by pure ones that add up."""
        return charged_for(self.epsilon, self.iterations, self.moved, concentrated=self.concentrated)

    def check(self, values: Any) -> None:
        """`values` are the sums in units of 1/STEPS, the λ to begin with, and the public number of records."""
        sums, start, records = values
        if not 1 <= records <= _MOST:
            raise DataError(f"{self.name} needs between 1 and 2^33 records, found {records}")
        for one, kind in ((sums, np.integer), (start, np.floating)):
            found = np.asarray(one)
            if (
                found.shape != (self.dimensions,)
                or not np.issubdtype(found.dtype, kind)
                or not np.isfinite(found).all()
            ):
                raise DataError(
                    f"{self.name} needs {self.dimensions} whole sums and as many weights, found {found.dtype} of shape "
                    f"{found.shape}"
                )
        if np.abs(np.asarray(sums, np.float64)).max() > records * STEPS:
            raise DataError(f"{self.name} needs sums of at most {records} records in [-1, 1]")

    def run(self, source: NoiseSource, values: Any, *, permit: Permit) -> Floats:
        """Two rows: the means in [−1, 1], averaged over the iterations, and the last λ."""
        self.check(values)
        width = STEPS / self.epsilon * ROUND_UP
        sums, start, records = values
        truth, weights = np.asarray(sums, np.int64), np.array(start, np.float64)
        means = mean_of(weights)
        total = np.zeros(self.dimensions)
        with permit.several(2 * self.iterations) as within:
            for _ in range(self.iterations):
                said = np.rint(records * STEPS * means).astype(np.int64)
                (worst,) = source.noisy_max(np.abs(said - truth)[None], width, permit=within)
                (noise,) = source.discrete_laplace(width, (1,), permit=within)
                measured = float(truth[worst] + noise) / STEPS
                weights[worst] += (measured - records * means[worst]) / (2 * records)
                means[worst] = mean_of(weights[worst : worst + 1])[0]
                total += means
        return np.stack([total / self.iterations, weights])


def charged_for(epsilon: float, iterations: int, moved: float, *, concentrated: bool) -> Loss:
    """What iterations of a printed ε cost where a unit moves each coordinate of the sum by `moved`."""
    each = LOSSES.multiply(Decimal(repr(float(epsilon))), Decimal(repr(float(moved))))
    if not concentrated:
        return Pure(LOSSES.multiply(LOSSES.multiply(each, Decimal(3)), Decimal(iterations)))
    square = LOSSES.multiply(LOSSES.multiply(each, each), Decimal("2.5"))
    return ZCDP(LOSSES.multiply(square, Decimal(iterations)))


def quantised(rows: Floats) -> Integers:
    """Entries in [−1, 1] as multiples of 1/STEPS; what lies outside is cut, what is not a number counts as 0."""
    return np.rint(np.clip(np.nan_to_num(rows, nan=0.0), -1.0, 1.0) * STEPS).astype(np.int64)


def mean_of(weights: Floats) -> Floats:
    """Σ s·exp(λs) / Σ exp(λs) over the grid −1, −1 + 1/STEPS, …, 1, for each λ.

    With x = λ/STEPS it is ((n + ½)·coth((n + ½)x) − ½·coth(x/2))/n for n = STEPS, the derivative of the logarithm of
    sinh((n + ½)x)/sinh(x/2).
    """
    x, n = np.asarray(weights, np.float64) / STEPS, STEPS
    size = np.abs(x)
    big = np.maximum(size, _SMALL / n)
    closed = ((n + 0.5) / np.tanh((n + 0.5) * big) - 0.5 / np.tanh(big / 2)) / n
    # The first term of the series: n(n + 1)/3 · x, up to x³.
    series = (n + 1) / 3 * size
    return np.asarray(np.sign(x) * np.minimum(np.where(size > _SMALL / n, closed, series), 1.0), np.float64)

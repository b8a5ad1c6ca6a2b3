"""The two mechanisms of a published auction, as printed (Sarpatwar et al. 2019, Algorithms 2 and 3), and their cost.

`MeanWeights` learns the mean of vectors by multiplicative weights, one weight per coordinate. `RankCoins` tosses a coin
for each bidder by its rank, to decide whom the auction asks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.errors import DataError, StudyError
from comity.privacy.loss import LOSSES, ZCDP, Approx, Loss, Pure
from comity.privacy.mechanisms.computations import check_values
from comity.privacy.mechanisms.scale import ROUND_UP
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STEPS = 128
"""Each record's entries in [−1, 1] are rounded to multiples of 1/STEPS, so sums are exact integers. The paper's η is
1/STEPS; a mechanism may have other `steps`."""

_MAX_COUNT = 1 << 33
_SMALL = 1e-4
"""Below it the closed form of `grid_mean` loses digits to cancellation; the first term of the series does not."""

MAX_COIN_EPSILON = 110
"""Beyond it 1 − e^(−x) is 1 in sixty digits, and a δ of 1 promises nothing."""

_BELOW = Context(prec=60, rounding=ROUND_FLOOR)


@dataclass(frozen=True, kw_only=True)
class MeanWeights:
    """Each iteration chooses the coordinate that the weights answer worst, measures it and updates its weight.

    The method keeps a distribution over all vectors on a grid and multiplies it by exp(s_i·c) after measuring
    coordinate i. Starting from the uniform distribution, it stays a product of distributions proportional to exp(λ_i·s)
    on the grid of each coordinate, so λ describes it fully. It releases λ and the means, averaged over iterations.

    Promise      against anyone who sees means, λ, and every choice and measurement on the way.
    Why          a choice with probability proportional to exp(ε·score), of scores that a unit moves by Δ, is 2εΔ-DP;
                 measuring with discrete Laplace noise of scale 1/ε is εΔ-DP: 3εΔ an iteration, and all else is made
                 from them.
                 Concentrated, 2εΔ and εΔ are (2εΔ)²/2 and (εΔ)²/2 (Bun and Steinke 2016): 2.5·ε²Δ².
    Sensitivity  Δ on each coordinate of the sum: a record that is added or removed moves it by at most 1, one that is
                 replaced by at most 2. The number of records that scales the weights is public.

    `epsilon` is the printed figure; an iteration costs 3Δ times it, not once. The grid has `steps` points to either
    side of 0.
    """

    epsilon: float
    iterations: int
    dimensions: int
    sensitivity: float = 1.0
    concentrated: bool = True
    steps: int = STEPS
    name: ClassVar[str] = "multiplicative weights"
    norm: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        for key, value in (
            ("iterations", self.iterations),
            ("dimensions", self.dimensions),
            ("steps", self.steps),
        ):
            if not 1 <= value <= _MAX_COUNT:
                raise StudyError(f"{key} of multiplicative weights must be between 1 and 2^33, found {value}", key=key)
        for key, figure in (("epsilon", self.epsilon), ("sensitivity", self.sensitivity)):
            if not 0 < figure < float("inf"):
                raise StudyError(
                    f"{key} of multiplicative weights must be positive and finite, found {figure}", key=key
                )

    @property
    def loss(self) -> Loss:
        return self.charged

    @property
    def charged(self) -> Loss:
        """What all iterations cost, in concentrated or in pure losses."""
        return weights_cost(self.epsilon, self.iterations, self.sensitivity, concentrated=self.concentrated)

    def check(self, values: Any) -> None:
        """`values` are the sums in units of 1/steps, the first λ, and the public number of records."""
        sums, start, records = values
        if not 1 <= records <= _MAX_COUNT:
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
        if np.abs(np.asarray(sums, np.float64)).max() > records * self.steps:
            raise DataError(f"{self.name} needs sums of at most {records} records in [-1, 1]")

    def run(self, source: NoiseSource, values: Any, *, permit: Permit) -> Floats:
        """Two rows: the means in [−1, 1], averaged over the iterations, and the last λ."""
        self.check(values)
        width = self.steps / self.epsilon * ROUND_UP
        sums, start, records = values
        truth, weights = np.asarray(sums, np.int64), np.array(start, np.float64)
        means = grid_mean(weights, self.steps)
        total = np.zeros(self.dimensions)
        with permit.several(2 * self.iterations) as within:
            for _ in range(self.iterations):
                answers = np.rint(records * self.steps * means).astype(np.int64)
                (worst,) = source.exponential_choice(np.abs(answers - truth)[None], width, permit=within)
                (noise,) = source.discrete_laplace(width, (1,), permit=within)
                measured = float(truth[worst] + noise) / self.steps
                weights[worst] += (measured - records * means[worst]) / (2 * records)
                means[worst] = grid_mean(weights[worst : worst + 1], self.steps)[0]
                total += means
        return np.stack([total / self.iterations, weights])


def weights_cost(epsilon: float, iterations: int, sensitivity: float, *, concentrated: bool) -> Loss:
    """What iterations of a printed ε cost where a unit moves each coordinate of the sum by `sensitivity`."""
    each = LOSSES.multiply(Decimal(repr(float(epsilon))), Decimal(repr(float(sensitivity))))
    if not concentrated:
        return Pure(LOSSES.multiply(LOSSES.multiply(each, Decimal(3)), Decimal(iterations)))
    square = LOSSES.multiply(LOSSES.multiply(each, each), Decimal("2.5"))
    return ZCDP(LOSSES.multiply(square, Decimal(iterations)))


def quantise(rows: Floats, steps: int = STEPS) -> Integers:
    """Entries in [−1, 1] as multiples of 1/steps; entries outside are clipped, NaN counts as 0."""
    return np.rint(np.clip(np.nan_to_num(rows, nan=0.0), -1.0, 1.0) * steps).astype(np.int64)


def grid_mean(weights: Floats, steps: int = STEPS) -> Floats:
    """Σ s·exp(λs) / Σ exp(λs) over the grid −1, −1 + 1/steps, …, 1, for each λ.

    With x = λ/n it is ((n + ½)·coth((n + ½)x) − ½·coth(x/2))/n for n = steps, the derivative of the logarithm of
    sinh((n + ½)x)/sinh(x/2).
    """
    x, n = np.asarray(weights, np.float64) / steps, steps
    size = np.abs(x)
    big = np.maximum(size, _SMALL / n)
    closed = ((n + 0.5) / np.tanh((n + 0.5) * big) - 0.5 / np.tanh(big / 2)) / n
    # The first term of the series: n(n + 1)/3 · x, up to x³.
    series = (n + 1) / 3 * size
    return np.asarray(np.sign(x) * np.minimum(np.where(size > _SMALL / n, closed, series), 1.0), np.float64)


@dataclass(frozen=True, kw_only=True)
class RankCoins:
    """Asks the bidder of rank i = 1, 2, … with probability exp(−ε(i − 1)), as printed. It is not private as claimed.

    Loss         (ε, 1 − e^(−ε)), against a bidder that sees its own coin, for a unit of another bidder, which moves the
                 rank by one. No smaller δ holds: "not asked" has probability 0 at rank 1 and 1 − e^(−ε) at rank 2. This
                 δ holds: P[asked] falls by e^ε from rank i to i + 1, and P[not asked] at i + 1 exceeds e^ε times that
                 at i by (1 − e^ε) + e^(−εi)·(e^(2ε) − 1), which is largest at i = 1, where it is 1 − e^(−ε).
    """

    epsilon: float
    name: ClassVar[str] = "coins by rank"
    sensitivity: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise StudyError(f"epsilon of an auction must be positive and finite, found {self.epsilon}", key="epsilon")

    @property
    def loss(self) -> Approx:
        return self.charged

    @property
    def charged(self) -> Approx:
        return self.charged_for(1)

    def charged_for(self, coins: int) -> Approx:
        """What several coins cost, of several bidders or rounds, one after the other.

        An (ε, δ)-DP release reveals everything with probability δ and otherwise loses ε (Kairouz, Oh and Viswanath
        2015). None of k coins reveals everything with probability (1 − δ)^k = e^(−kε).
        """
        whole = LOSSES.multiply(Decimal(repr(float(self.epsilon))), Decimal(coins))
        if whole > MAX_COIN_EPSILON:
            raise StudyError(
                f"{coins} coins at epsilon {self.epsilon} protect only with probability e^-{whole:.0f}; choose fewer "
                f"records or a smaller epsilon of the auction: their product must be at most {MAX_COIN_EPSILON}",
                key="epsilon",
            )
        return Approx(whole, LOSSES.subtract(Decimal(1), _BELOW.next_minus(_BELOW.exp(-whole))))

    def check(self, values: Any) -> None:
        found = check_values(values, self.name, 1, 2.0**50)
        if found.min() < 1:
            raise StudyError(f"ranks start at 1, found {found.min()}")

    def run(self, source: NoiseSource, values: Any, *, permit: Permit) -> NDArray[np.int64]:
        """1 for each bidder that is asked, else 0; `values` are the ranks."""
        self.check(values)
        ranks = np.asarray(values, np.float64)
        coins = Stream(source.seed(permit=permit)).uniform(ranks.shape)
        return np.asarray(coins < np.exp(-self.epsilon * (ranks - 1)), np.int64)

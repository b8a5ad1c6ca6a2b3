"""Private computations of a site on its values: noisy counts, choices by score, and a noisy threshold.

Each is one loss, however often it draws. Rows of a table that one unit can't touch cost nothing more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError, StudyError
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Loss, Pure
from comity.privacy.mechanisms.pure import pure_share
from comity.privacy.mechanisms.scale import FINENESS, MAX_UNITS, ROUND_UP, Scale, check_size, pick_grid, units
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource


@dataclass(frozen=True, kw_only=True)
class NoisyCounts:
    """Adds independent integer noise to each count: discrete Laplace for a pure ε, rounded Gaussian for a loss with δ.

    Promise      ε-DP, or μ-GDP, against anyone who sees the whole table.
    Why          proof.md, 2 and 3; counts are integers, so no rounding moves them.
    Sensitivity  how far one unit moves the table: in L1 for a pure ε, in L2 otherwise. A histogram: 1 and 1 where a
                 unit is added or removed, 2 and sqrt(2) where it is replaced. Tables of disjoint groups are one
                 histogram; k overlapping ones move k times as far in L1, sqrt(k) times in L2.
    """

    loss: Loss
    sensitivity: float
    name: ClassVar[str] = "noisy counts"

    def __post_init__(self) -> None:
        _ = self.scale

    @property
    def norm(self) -> str:
        return "l1" if isinstance(self.loss, Pure) else "l2"

    @property
    def charged(self) -> Pure | GDP:
        return self.loss if isinstance(self.loss, Pure) else gaussian_budget(self.loss)

    @property
    def scale(self) -> Scale:
        check_size(self.sensitivity, (1,), 1)
        match self.charged:
            case Pure() as loss:
                width = self.sensitivity / pure_share(loss, self.name, 1) * ROUND_UP
            case GDP(square=square):
                width = self.sensitivity / math.sqrt(float(square)) * ROUND_UP * ROUND_UP
        return Scale(grid=1.0, part=width, total=width, tau=0.0, loss=self.charged)

    def check(self, values: NDArray[Any]) -> None:
        found = check_values(values, self.name, 0, MAX_UNITS)
        if not np.issubdtype(found.dtype, np.integer):
            raise DataError(
                f"{self.name} needs whole numbers, found {found.dtype}: noise on a grid protects values on it"
            )

    def run(self, source: NoiseSource, values: NDArray[Any], *, permit: Permit) -> NDArray[np.int64]:
        """The noisy table, which may hold negative numbers."""
        self.check(values)
        counts = np.asarray(values, np.int64)
        draw = source.discrete_laplace if isinstance(self.loss, Pure) else source.rounded_gaussian
        return counts + draw(self.scale.total, counts.shape, permit=permit)


@dataclass(frozen=True, kw_only=True)
class RowNoise:
    """Pure noise on values that are rounded one by one, where one unit moves the values of at most `touched` rows."""

    loss: Pure
    sensitivity: float
    touched: int = 1
    grid: float | None = None
    name: ClassVar[str]
    norm: ClassVar[str] = "linf"

    @property
    def charged(self) -> Pure:
        return self.loss

    @property
    def times(self) -> int:
        """The noise of a row is this many times the sensitivity over its ε."""
        return 1

    @property
    def scale(self) -> Scale:
        epsilon = pure_share(self.loss, self.name, self.touched)
        check_size(self.sensitivity, (1,), 1)
        step = pick_grid(self.sensitivity / FINENESS, self.grid)
        width = self.times * units(sensitivity=self.sensitivity, grid=step, rounding=1.0) / epsilon * ROUND_UP
        return Scale(grid=step, part=width, total=width, tau=0.0, loss=self.loss)


@dataclass(frozen=True, kw_only=True)
class Choice(RowNoise):
    """Names one score of each row. Where all scores of a row move the same way (`monotone`), half the noise
    suffices."""

    monotone: bool = False

    def __post_init__(self) -> None:
        _ = self.scale

    @property
    def times(self) -> int:
        return 1 if self.monotone else 2

    def check(self, values: NDArray[Any]) -> None:
        check_values(values, self.name, 1, MAX_UNITS / 2 * self.scale.grid)

    def _on_grid(self, values: NDArray[Any]) -> NDArray[np.int64]:
        self.check(values)
        return np.rint(np.asarray(values, np.float64) / self.scale.grid).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class NoisyMax(Choice):
    """Names the largest score of each row after adding exponential noise of mean 2Δ/ε to each, and nothing else.

    The choice has the distribution of permute-and-flip (McKenna and Sheldon, 2020), which is never worse in
    expectation than the exponential mechanism at the same ε.

    Promise      ε-DP against anyone who learns the choices of all rows, when one unit moves the scores of at most
                 `touched` rows, each of them by at most Δ. Disjoint groups of records: 1 where a unit is added or
                 removed, 2 where it is replaced and may move to another group.
    Why          fix the noise of all scores of a row but i, and let m be the largest noisy score among them. Score i
                 wins with probability min(1, exp(−(m − q_i)/b)). For a neighbour m rises by at most Δ and q_i
                 falls by at most Δ, so the probability falls by a factor of at most exp(2Δ/b) = e^(ε/touched). Rows
                 have independent noise, so the factors of the rows that differ multiply to at most e^ε.
                 Where all scores of a row move the same way (`monotone`), m and q_i do too, and m − q_i moves by at
                 most Δ: then a mean of Δ/ε suffices.
    Sensitivity  Δ/h + 1 units per score, in the largest-coordinate norm: each score is rounded separately, which
                 keeps the direction in which it moves.
    """

    name: ClassVar[str] = "noisy max"

    def run(self, source: NoiseSource, values: NDArray[Any], *, permit: Permit) -> NDArray[np.int64]:
        """The index of the winner along the last axis of scores."""
        return source.noisy_max(self._on_grid(values), self.scale.total, permit=permit)


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanism(Choice):
    """Names one score of each row, with probability proportional to exp(εq/(2Δ)) (McSherry and Talwar, 2007).

    Promise      ε-DP against anyone who learns the choices of all rows, under the conditions of `NoisyMax`. At the
                 same ε, the score that it names is lower in expectation than that of `NoisyMax`, or equal.
    Why          with b = 2Δ/ε, P[i] = exp(q_i/b)/Σ_j exp(q_j/b). For a neighbour the numerator moves by a factor of
                 at most exp(Δ/b), and so does the sum: together exp(2Δ/b) = e^(ε/touched). Rows are independent, and
                 the factors of the rows that differ multiply to at most e^ε.
                 Where all scores of a row move the same way (`monotone`), numerator and sum do too, each by a factor
                 from 1 to exp(Δ/b): their quotient moves by at most exp(Δ/b), and b = Δ/ε suffices.
    Sensitivity  that of `NoisyMax`.
    """

    name: ClassVar[str] = "exponential mechanism"

    def run(self, source: NoiseSource, values: NDArray[Any], *, permit: Permit) -> NDArray[np.int64]:
        """The index of the choice along the last axis of scores."""
        return source.exponential_choice(self._on_grid(values), self.scale.total, permit=permit)


@dataclass(frozen=True, kw_only=True)
class NoisyThreshold(RowNoise):
    """Says of each value whether it is at least the public `threshold`, after adding discrete Laplace noise.

    Promise      ε-DP against anyone who learns the bits of all rows, when one unit moves at most `touched` of the
                 values, each by at most Δ.
    Why          the noisy value of a row is (ε/touched)-DP (proof.md, 2), the bit is made from it, and rows have
                 independent noise.
    Sensitivity  Δ/h + 1 units per value.
    """

    threshold: float
    name: ClassVar[str] = "noisy threshold"

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold) or abs(self.threshold) / self.scale.grid > MAX_UNITS:
            raise StudyError(f"a threshold must be within 2^50 grid units, found {self.threshold!r}", key="threshold")

    def check(self, values: NDArray[Any]) -> None:
        check_values(values, self.name, 0, MAX_UNITS * self.scale.grid)

    def run(self, source: NoiseSource, values: NDArray[Any], *, permit: Permit) -> NDArray[np.int64]:
        """1 where value plus noise is at least the threshold, else 0."""
        self.check(values)
        scale = self.scale
        steps = np.rint(np.asarray(values, np.float64) / scale.grid).astype(np.int64)
        noisy = steps + source.discrete_laplace(scale.total, steps.shape, permit=permit)
        return np.asarray(noisy >= math.ceil(self.threshold / scale.grid), np.int64)


def check_values(values: NDArray[Any], name: str, axes: int, limit: float) -> NDArray[Any]:
    """An array of finite numbers with at least this many axes, none of them empty."""
    array = np.asarray(values)
    if array.ndim < axes or array.size == 0 or not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise DataError(
            f"{name} needs an array of numbers with at least {axes} axes, none of them empty; "
            f"found {array.dtype} of shape {array.shape}"
        )
    if not np.isfinite(array).all() or np.abs(array.astype(np.float64)).max() > limit:
        raise DataError(f"{name} needs finite values of at most {limit:.3g} in size: bound them first")
    return array

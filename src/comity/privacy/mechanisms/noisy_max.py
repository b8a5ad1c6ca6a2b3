"""Report noisy max: which of several scores is largest, under pure ε, for one group or many disjoint ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.privacy.loss import Pure
from comity.privacy.mechanisms.computation import checked_values, pure_share
from comity.privacy.mechanisms.scale import FINENESS, ROUND_UP, WIDEST, Scale, checked_size, grid_at_most, units
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource


@dataclass(frozen=True, kw_only=True)
class NoisyMax:
    """Names the largest score of each row after exponential noise of mean 2Δ/ε was added to each, and nothing else.

    The choice has the distribution of permute-and-flip (McKenna and Sheldon, 2020), which is never worse in
    expectation than the exponential mechanism at the same ε.

    Promise      ε-DP against whoever learns the choices of all rows, when one unit moves the scores of at most
                 `touched` rows, each of them by at most Δ. Disjoint groups of records: 1 where a unit is added or
                 removed, 2 where it is replaced and may come to lie in another group.
    Why          fix the noise of all scores of a row but i, and let m be the largest noisy score among them. Score i
                 wins with probability min(1, exp(−(m − q_i)/b)). For a neighbour m rises by at most Δ and q_i
                 falls by at most Δ, so the probability falls by a factor of at most exp(2Δ/b) = e^(ε/touched). Rows
                 have noise of their own, so the factors of the rows that differ multiply, to e^ε.
                 Where all scores of a row move the same way (`monotone`), m and q_i do, and m − q_i moves by Δ at
                 most: then a mean of Δ/ε will do.
    Sensitivity  Δ/h + 1 units per score, in the largest-coordinate norm: each score is rounded by itself, which
                 keeps the direction in which it moves.
    """

    loss: Pure
    sensitivity: float
    touched: int = 1
    monotone: bool = False
    grid: float | None = None
    name: ClassVar[str] = "noisy max"
    norm: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        self._laid_out()

    @property
    def charged(self) -> Pure:
        return self.loss

    @property
    def scale(self) -> Scale:
        return self._laid_out()

    def _laid_out(self) -> Scale:
        epsilon = pure_share(self.loss, self.name, self.touched)
        checked_size(self.sensitivity, (1,), 1)
        step = grid_at_most(self.sensitivity / FINENESS if self.grid is None else self.grid)
        steps = units(sensitivity=self.sensitivity, grid=step, rounding=1.0)
        mean = (1 if self.monotone else 2) * steps / epsilon * ROUND_UP
        return Scale(grid=step, part=mean, total=mean, tau=0.0, loss=self.loss)

    def check(self, values: NDArray[Any]) -> None:
        checked_values(values, self.name, 1, WIDEST / 2 * self.scale.grid)

    def run(self, source: NoiseSource, values: NDArray[Any], *, permit: Permit) -> NDArray[np.int64]:
        """The index of the winner among the last axis of scores, for each of the others."""
        self.check(values)
        scale = self.scale
        scores = np.rint(np.asarray(values, np.float64) / scale.grid).astype(np.int64)
        return source.noisy_max(scores, scale.total, permit=permit)

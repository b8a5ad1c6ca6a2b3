"""Report noisy max: which of several scores is largest, under pure ε."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.privacy.loss import Pure
from comity.privacy.mechanisms.scale import FINENESS, ROUND_UP, Scale, checked_size, grid_at_most, units
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource


@dataclass(frozen=True)
class NoisyMax:
    """Names the largest score after exponential noise of mean 2Δ/ε was added to each, and nothing else.

    The choice has the distribution of permute-and-flip (McKenna and Sheldon, 2020), which is never worse in
    expectation than the exponential mechanism at the same ε.

    Promise      ε-DP against whoever learns the choice, when one unit moves every score by at most Δ.
    Why          fix the noise of all scores but i, and let m be the largest noisy score among them. Score i
                 wins with probability min(1, exp(−(m − q_i)/b)). For a neighbour m rises by at most Δ and q_i
                 falls by at most Δ, so the probability falls by a factor of at most exp(2Δ/b) = e^ε.
    Sensitivity  Δ/h + 1 units per score, in the largest-coordinate norm: each score is rounded by itself.
    """

    loss: Pure
    name: ClassVar[str] = "noisy max"
    norm: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Pure) or self.loss.epsilon <= 0:
            raise StudyError(f"noisy max needs a pure epsilon above 0, found {self.loss}", key="privacy.epsilon")

    def scale(self, *, sensitivity: float, grid: float | None = None) -> Scale:
        """`sensitivity` is how far one unit can move any one score."""
        checked_size(sensitivity, (1,), 1)
        step = grid_at_most(sensitivity / FINENESS if grid is None else grid)
        steps = units(sensitivity=sensitivity, grid=step, rounding=1.0)
        mean = 2 * steps / float(self.loss.epsilon) * ROUND_UP
        return Scale(grid=step, part=mean, total=mean, tau=0.0, loss=self.loss)

    def choose(self, source: NoiseSource, scale: Scale, scores: NDArray[np.int64], *, permit: Permit) -> int:
        """The index of the winner; scores are whole numbers of grid units."""
        return source.noisy_max(scores, scale.total, permit=permit)

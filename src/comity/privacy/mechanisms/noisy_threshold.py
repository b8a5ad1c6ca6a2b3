"""One bit per row: whether a value, with noise, reaches a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.privacy.loss import Pure
from comity.privacy.mechanisms.computation import checked_values, pure_share
from comity.privacy.mechanisms.scale import FINENESS, ROUND_UP, WIDEST, Scale, checked_size, grid_at_most, units
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource


@dataclass(frozen=True, kw_only=True)
class NoisyThreshold:
    """Says of each value whether it is at least the public `threshold`, after discrete Laplace noise.

    Promise      ε-DP against whoever learns the bits of all rows, when one unit moves at most `touched` of the
                 values, each by at most Δ.
    Why          the noisy value of a row is (ε/touched)-DP (proof.md, 2), the bit is made from it, and rows have
                 noise of their own.
    Sensitivity  Δ/h + 1 units per value.
    """

    loss: Pure
    sensitivity: float
    threshold: float
    touched: int = 1
    grid: float | None = None
    name: ClassVar[str] = "noisy threshold"
    norm: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold) or abs(self.threshold) / self.scale.grid > WIDEST:
            raise StudyError(f"a threshold lies within 2^50 grid units, found {self.threshold!r}", key="threshold")

    @property
    def charged(self) -> Pure:
        return self.loss

    @property
    def scale(self) -> Scale:
        epsilon = pure_share(self.loss, self.name, self.touched)
        checked_size(self.sensitivity, (1,), 1)
        step = grid_at_most(self.sensitivity / FINENESS if self.grid is None else self.grid)
        width = units(sensitivity=self.sensitivity, grid=step, rounding=1.0) / epsilon * ROUND_UP
        return Scale(grid=step, part=width, total=width, tau=0.0, loss=self.loss)

    def check(self, values: NDArray[Any]) -> None:
        checked_values(values, self.name, 0, WIDEST * self.scale.grid)

    def run(self, source: NoiseSource, values: NDArray[Any], *, permit: Permit) -> NDArray[np.int64]:
        """1 where value plus noise is at least the threshold, else 0: whole numbers, as they are sent."""
        self.check(values)
        scale = self.scale
        steps = np.rint(np.asarray(values, np.float64) / scale.grid).astype(np.int64)
        noisy = steps + source.discrete_laplace(scale.total, steps.shape, permit=permit)
        return np.asarray(noisy >= math.ceil(self.threshold / scale.grid), np.int64)

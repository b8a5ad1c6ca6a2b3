"""Tables of counts with noise: whole numbers, which need no grid and no rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Loss, Pure
from comity.privacy.mechanisms.computation import checked_values, pure_share
from comity.privacy.mechanisms.scale import ROUND_UP, WIDEST, Scale, checked_size
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource


@dataclass(frozen=True, kw_only=True)
class NoisyCounts:
    """Adds independent integer noise to each count: discrete Laplace for a pure ε, rounded Gaussian for a loss with δ.

    Promise      ε-DP, or μ-GDP, against whoever sees the whole table.
    Why          proof.md, 2 and 3; counts are on the grid of the integers as they are.
    Sensitivity  how far one unit moves the table: in L1 for a pure ε, in L2 otherwise. A histogram: 1 and 1 where a
                 unit is added or removed, 2 and sqrt(2) where it is replaced. Tables of disjoint groups are one
                 histogram; k overlapping ones move k times as far in L1, sqrt(k) times in L2.
    """

    loss: Loss
    sensitivity: float
    name: ClassVar[str] = "noisy counts"

    def __post_init__(self) -> None:
        self._laid_out()

    @property
    def norm(self) -> str:
        return "l1" if isinstance(self.loss, Pure) else "l2"

    @property
    def charged(self) -> Pure | GDP:
        return self.loss if isinstance(self.loss, Pure) else gaussian_budget(self.loss)

    @property
    def scale(self) -> Scale:
        return self._laid_out()

    def _laid_out(self) -> Scale:
        checked_size(self.sensitivity, (1,), 1)
        match self.charged:
            case Pure() as loss:
                width = self.sensitivity / pure_share(loss, self.name, 1) * ROUND_UP
            case GDP(square=square):
                width = self.sensitivity / math.sqrt(float(square)) * ROUND_UP * ROUND_UP
        return Scale(grid=1.0, part=width, total=width, tau=0.0, loss=self.charged)

    def check(self, values: NDArray[Any]) -> None:
        found = checked_values(values, self.name, 0, WIDEST)
        if not np.issubdtype(found.dtype, np.integer):
            raise DataError(
                f"{self.name} needs whole numbers, found {found.dtype}: noise on a grid protects values on it"
            )

    def run(self, source: NoiseSource, values: NDArray[Any], *, permit: Permit) -> NDArray[np.int64]:
        """The noisy table. It may hold negative numbers: what cuts them off may come after."""
        self.check(values)
        counts = np.asarray(values, np.int64)
        draw = source.discrete_laplace if isinstance(self.loss, Pure) else source.rounded_gaussian
        return counts + draw(self.scale.total, counts.shape, permit=permit)

"""Skellam noise: zCDP for L2 sensitivity, and parts that add up exactly on any grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.privacy.accounting import budget_to_rho
from comity.privacy.infinitely_divisible import part_width
from comity.privacy.loss import ZCDP, Loss
from comity.privacy.mechanisms.scale import FINENESS, ROUND_UP, Scale, checked_size, grid_at_most, units
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

LEAST_VARIANCE = 100.0
"""Below this many square units the bound is no longer near that of a Gaussian."""

_SMALLEST_WIDTH = 1000.0
"""By default the grid is so fine that the noise is this wide: within a fifth of a percent of a Gaussian's variance."""


@dataclass(frozen=True)
class Skellam:
    """Adds independent differences of two Poisson(μ/2) variables, of variance μ.

    Promise      ρ-zCDP, for every order, against whoever sees the noisy integers, with ρ = e·Δ²/2μ and e just
                 above 1 (`excess`). An (ε, δ) budget buys the ρ that implies it, and the ρ is what is charged.
    Shared       each of `parts` parties adds such noise of variance μ/parts. The sum is the same noise exactly,
                 however narrow a part is: there is no condition on the width of a part and no τ. The promise is
                 against whoever sees the sum and none of these parts; further parts are noise on top.
    Why          proof.md, 8.
    Sensitivity  Δ/h + sqrt(d) units in L2: rounding adds up to one unit per coordinate. L1 is not needed.
    """

    loss: Loss
    name: ClassVar[str] = "Skellam"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        if self.charged.rho <= 0:
            raise StudyError(
                f"Skellam noise needs a loss above 0, found {self.loss}: raise privacy.epsilon",
                key="privacy.epsilon",
            )

    def scale(self, *, sensitivity: float, shape: tuple[int, ...], parts: int = 1, grid: float | None = None) -> Scale:
        size = checked_size(sensitivity, shape, parts)
        return _scale(self.charged, sensitivity, size, parts, grid)

    @property
    def charged(self) -> ZCDP:
        return budget_to_rho(self.loss)

    def draw(
        self,
        source: NoiseSource,
        scale: Scale,
        shape: tuple[int, ...],
        *,
        permit: Permit,
        part: bool = False,
    ) -> NDArray[np.int64]:
        return source.skellam(scale.part if part else scale.total, shape, permit=permit)


def excess(variance: float) -> float:
    """How many times the ρ of a Gaussian of this variance covers Skellam noise, rounded up (proof.md, 8)."""
    order = math.sqrt(2 * variance * math.log(variance))
    curvature = -math.log1p(-(1 / variance + 1 / (4 * variance * variance)))
    small_orders = (variance * curvature) ** 2 / (1 - order * curvature / 3)
    reach = order / variance
    tilt = reach / math.cosh(reach)
    large_orders = 1 + 1 / order + 2 * variance * math.exp(-variance * tilt * tilt / 2) / (order * order)
    return max(small_orders, large_orders) * ROUND_UP


@lru_cache(maxsize=256)
def _scale(loss: ZCDP, sensitivity: float, size: int, parts: int, grid: float | None) -> Scale:
    # sqrt(2ρ), the inverse of the noise multiplier, a little too small.
    allowed = math.sqrt(2 * float(loss.rho)) / ROUND_UP
    step = grid_at_most(
        min(sensitivity / (FINENESS * math.sqrt(size)), sensitivity / (_SMALLEST_WIDTH * allowed))
        if grid is None
        else grid
    )
    steps = units(sensitivity=sensitivity, grid=step, rounding=math.sqrt(size))
    gaussian = (steps / allowed) ** 2 * ROUND_UP
    if gaussian < LEAST_VARIANCE:
        raise StudyError(
            f"Skellam noise would be {math.sqrt(gaussian):.3g} grid units wide, at least 10 are needed: "
            f"make the grid at least {math.sqrt(LEAST_VARIANCE / gaussian):.3g} times finer, or leave it out",
            key="grid",
        )
    # The excess falls in the variance, so that the one at the narrower noise is enough for the wider.
    sigma = math.sqrt(gaussian * excess(gaussian)) * ROUND_UP
    return Scale(
        grid=step, part=part_width(sigma, parts) * (ROUND_UP if parts > 1 else 1), total=sigma, tau=0.0, loss=loss
    )

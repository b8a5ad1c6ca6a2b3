"""Spherical noise on the lattice: pure ε for L2 sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.privacy.loss import Pure
from comity.privacy.mechanisms.scale import (
    FINENESS,
    ROUND_UP,
    Scale,
    alone,
    checked_size,
    grid_at_most,
    units,
)
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

LARGEST = 1 << 20
"""The numerical statement of proof.md, 5 counts on no more coordinates than this."""


@dataclass(frozen=True)
class Spherical:
    """Adds one lattice vector z with probability proportional to exp(−|z|₂/β).

    Promise      ε-DP against whoever sees the noisy integers, for β = Δ/ε in grid units; the draw itself is
                 made in finite precision, which is worth a numerical δ below 2^−90 for ε up to 30
                 (proof.md, 5). In d dimensions the radius has, up to the grid, the Gamma distribution with mean dβ.
    Why          the probabilities of one output under two integer vectors differ by the factor
                 exp((|z|₂ − |z − s|₂)/β) <= exp(|s|₂/β), and |s|₂ <= Δ; a shift by integers leaves the
                 normalising constant alone.
    Sensitivity  Δ/h + sqrt(d) units in L2: rounding adds up to one unit per coordinate.
    """

    loss: Pure
    name: ClassVar[str] = "discrete spherical"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Pure) or self.loss.epsilon <= 0:
            raise StudyError(f"spherical noise needs a pure epsilon above 0, found {self.loss}", key="privacy.epsilon")

    def scale(self, *, sensitivity: float, shape: tuple[int, ...], parts: int = 1, grid: float | None = None) -> Scale:
        size = checked_size(sensitivity, shape, parts)
        alone("spherical noise", parts)
        epsilon = float(self.loss.epsilon)
        numerical = numerical_loss(size, epsilon)
        if size > LARGEST or numerical > epsilon / 100:
            raise StudyError(
                f"spherical noise for {size} numbers at epsilon {epsilon:.3g} is beyond its proof: "
                "use Gaussian noise (set privacy.delta)"
            )
        finest = math.sqrt(size) * max(FINENESS, 10 * epsilon)
        step = grid_at_most(sensitivity / finest if grid is None else grid)
        steps = units(sensitivity=sensitivity, grid=step, rounding=math.sqrt(size))
        beta = steps / (epsilon - numerical) * ROUND_UP
        if beta < math.sqrt(size):
            raise StudyError(
                f"spherical noise for {size} numbers needs a scale of {math.sqrt(size):.3g} grid units, "
                f"found {beta:.3g}: make the grid finer, or leave it out",
                key="grid",
            )
        return Scale(grid=step, part=beta, total=beta, tau=0.0, loss=self.loss)

    def draw(
        self,
        source: NoiseSource,
        scale: Scale,
        shape: tuple[int, ...],
        *,
        permit: Permit,
        part: bool = False,
    ) -> NDArray[np.int64]:
        return source.spherical(scale.part if part else scale.total, shape, permit=permit)


def numerical_loss(size: int, epsilon: float) -> float:
    """What the precision of a double for the mixing variance can add to ε (proof.md, 5)."""
    return 2.0**-51 * (6 * size + 400 + epsilon)

"""Spherical noise on the lattice: pure ε for L2 sensitivity, drawn at once or in parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.privacy.mechanisms.pure import PureNoise
from comity.privacy.mechanisms.scale import FINENESS, ROUND_UP, Scale, Shape, check_size, lattice_sum, pick_grid, units
from comity.privacy.permit import Permit
from comity.privacy.sampling.lattice_noise import SMOOTHING, count_parts, part_width

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

MAX_COORDINATES = 1 << 20
"""The numerical statement of proof.md, 5 holds up to this many."""


@dataclass(frozen=True)
class Spherical(PureNoise):
    """Adds one lattice vector z with probability proportional to exp(−|z|₂/β).

    Promise      ε-DP against anyone who sees the noisy integers, for β = Δ/ε in grid units. The draw is made in
                 finite precision, which costs a numerical δ below 2^−130 for every ε
                 (proof.md, 5). In d dimensions the radius has, up to the grid, the Gamma distribution with mean dβ.
    Why          the probabilities of one output under two integer vectors differ by the factor
                 exp((|z|₂ − |z − s|₂)/β) <= exp(|s|₂/β), and |s|₂ <= Δ; a shift by integers leaves the
                 normalising constant alone.
    Shared       each of `parts` parties adds a discrete Gaussian vector whose variance is nine square units plus
                 a draw from a Gamma distribution of shape (d+1)/(2·parts). The sum is spherical noise with
                 a little Gaussian noise on top, point by point up to factors that are taken off ε: the same
                 promise, against anyone who sees the sum and none of these parts (proof.md, 7).
    Sensitivity  Δ/h + sqrt(d) units in L2: rounding adds up to one unit per coordinate.
    """

    name: ClassVar[str] = "discrete spherical"
    norm: ClassVar[str] = "l2"

    def scale(
        self, *, sensitivity: float, shape: Shape, parts: int = 1, grid: float | None = None, exact: bool = False
    ) -> Scale:
        size = check_size(sensitivity, shape, parts)
        epsilon = float(self.loss.epsilon)
        lost = numerical_loss(size, epsilon) if parts == 1 else shared_loss(size, epsilon, parts)
        if size > MAX_COORDINATES or lost > epsilon / 100:
            raise StudyError(
                f"spherical noise for {size} numbers at epsilon {epsilon:.3g} is beyond its proof: "
                "use Gaussian noise (set privacy.delta)"
            )
        smoothed = math.sqrt(SMOOTHING * parts) if parts > 1 else 1.0
        finest = math.sqrt(size) * max(FINENESS, 10 * epsilon * smoothed)
        step = pick_grid(sensitivity / finest, grid, exact=exact)
        steps = units(sensitivity=sensitivity, grid=step, rounding=0.0 if exact else math.sqrt(size))
        beta = steps / (epsilon - lost) * ROUND_UP
        least = math.sqrt(size) * smoothed
        if beta < least:
            raise StudyError(
                f"spherical noise for {size} numbers in {parts} parts needs a scale of {least:.3g} grid units, "
                f"found {beta:.3g}: make the grid finer, or leave it out",
                key="grid",
            )
        return Scale(grid=step, part=part_width(beta, parts), total=beta, tau=0.0, loss=self.loss)

    def draw(
        self, source: NoiseSource, scale: Scale, shape: Shape, *, permit: Permit, part: bool = False
    ) -> NDArray[np.int64]:
        if part and scale.part < scale.total:
            return source.spherical_part(scale.total, count_parts(scale.total, scale.part), shape, permit=permit)
        return source.spherical(scale.total, shape, permit=permit)


def numerical_loss(size: int, epsilon: float) -> float:
    """How much the precision of a double for the mixing variance can add to ε (proof.md, 5)."""
    return 2.0**-51 * (6 * size + 400 + epsilon)


def shared_loss(size: int, epsilon: float, parts: int) -> float:
    """How much finite precision, the grid, and adding up parts on it can add to ε (proof.md, 7)."""
    return 2 * numerical_loss(size, epsilon) + size * (
        gap(math.sqrt(SMOOTHING), parts) + 6 * math.exp(-2 * math.pi**2 * SMOOTHING * parts)
    )


def gap(part: float, parts: int) -> float:
    """τ, rounded up: twice the largest log ratio between a sum of discrete Gaussians and one of their variance.

    It is 10 `lattice_sum`.
    """
    # The relative error of exp grows with its argument; arguments beyond −745 give zero.
    return 10 * lattice_sum(part, parts) * (1 + 1e-9)

"""Discrete Laplace noise: pure ε for L1 sensitivity, drawn at once or in parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.privacy.mechanisms.pure import PureNoise
from comity.privacy.mechanisms.scale import FINENESS, ROUND_UP, Scale, Shape, check_size, pick_grid, units
from comity.privacy.permit import Permit
from comity.privacy.sampling.lattice_noise import count_parts, part_width

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

_PRECISION, _NEGLIGIBLE = 2.0**-145, 2.0**-60
"""A drawn part is within the first of its distribution per coordinate; that error times e^ε stays below the second
(proof.md, 8)."""


@dataclass(frozen=True)
class Laplace(PureNoise):
    """Adds independent integers z with probability proportional to exp(−|z|/b).

    Promise      ε-DP against anyone who sees the noisy integers, for b = Δ₁/ε in grid units.
    Why          the probabilities of one output under two integer vectors differ by the factor
                 exp((|z|₁ − |z − s|₁)/b) <= exp(|s|₁/b), and |s|₁ <= Δ₁; the normalising constants are equal
                 because a shift by integers maps the lattice onto itself.
    Shared       each of `parts` parties adds a difference of two negative binomials of shape 1/parts. Their sum
                 is the same noise exactly, so the promise is the same, against anyone who sees the sum and none of
                 these parts (proof.md, 6): parts of colluders, or of parties that may drop out, don't count, and
                 parts beyond these are independent noise on top.
    Sensitivity  Δ/h + d units in L1: rounding adds up to one unit per coordinate; Δ/h for whole numbers.
    """

    name: ClassVar[str] = "discrete Laplace"
    norm: ClassVar[str] = "l1"

    def scale(
        self, *, sensitivity: float, shape: Shape, parts: int = 1, grid: float | None = None, exact: bool = False
    ) -> Scale:
        size = check_size(sensitivity, shape, parts)
        largest = math.log(_NEGLIGIBLE / _PRECISION / (2 * size * parts))
        if parts > 1 and self.loss.epsilon > largest:
            raise StudyError(
                f"Laplace noise for {size} numbers in {parts} parts is proved for epsilon up to {largest:.3g}, found "
                f"{self.loss}: lower privacy.epsilon",
                key="privacy.epsilon",
            )
        step = pick_grid(1.0 if exact else sensitivity / (FINENESS * size), grid, exact=exact)
        steps = units(sensitivity=sensitivity, grid=step, rounding=0 if exact else size)
        width = steps / float(self.loss.epsilon) * ROUND_UP
        return Scale(grid=step, part=part_width(width, parts), total=width, tau=0.0, loss=self.loss)

    def draw(
        self, source: NoiseSource, scale: Scale, shape: Shape, *, permit: Permit, part: bool = False
    ) -> NDArray[np.int64]:
        if part and scale.part < scale.total:
            return source.laplace_part(scale.total, count_parts(scale.total, scale.part), shape, permit=permit)
        return source.discrete_laplace(scale.total, shape, permit=permit)

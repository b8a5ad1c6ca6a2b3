"""Rounded Gaussian noise: Gaussian DP for L2 sensitivity, drawn at once or in parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.privacy.accounting import NUMERICAL, gaussian_budget
from comity.privacy.loss import GDP, Loss
from comity.privacy.mechanisms.scale import FINENESS, ROUND_UP, Scale, Shape, check_size, lattice_sum, pick_grid, units
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

MIN_PART = 2.0
"""In grid units. Narrower parts lose variance to the grid, and their sum is no longer Gaussian."""


@dataclass(frozen=True)
class Gaussian:
    """Adds independent variables of N(0, σ²), each rounded to the nearest integer.

    Promise      μ-GDP against anyone who sees the noisy integers, for μ = Δ/σ in grid units: a value on the grid plus
                 rounded noise is the rounding of the value plus the continuous noise. An (ε, δ) budget buys the
                 largest μ whose exact curve keeps it, and the ledger is charged this μ.
    Shared       each of `parts` parties adds a rounded Gaussian of variance σ²/parts. The sum of the parts is,
                 point by point up to factors exp(±2^−44 μ²), a rounding of the value plus one continuous Gaussian and
                 independent noise; the factors are paid for in the budget (`comity.privacy.accounting`). The promise
                 is against anyone who sees the sum and none of these parts: parts of colluders, or of parties that may
                 drop out, don't count.
    Why          proof.md, 3; the draw itself is exact (proof.md, 4).
    Sensitivity  Δ/h + sqrt(d) units in L2: rounding the value adds up to one unit per coordinate; Δ/h for
                 whole numbers, which no rounding moves.
    """

    loss: Loss
    name: ClassVar[str] = "rounded Gaussian"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        if self.charged.square <= 0:
            raise StudyError(
                f"Gaussian noise needs a loss above 0, found {self.loss}: raise privacy.epsilon",
                key="privacy.epsilon",
            )

    def scale(
        self, *, sensitivity: float, shape: Shape, parts: int = 1, grid: float | None = None, exact: bool = False
    ) -> Scale:
        size = check_size(sensitivity, shape, parts)
        return _scale(self.charged, sensitivity, size, parts, grid, exact)

    @property
    def charged(self) -> GDP:
        return gaussian_budget(self.loss)

    def draw(
        self, source: NoiseSource, scale: Scale, shape: Shape, *, permit: Permit, part: bool = False
    ) -> NDArray[np.int64]:
        return source.rounded_gaussian(scale.part if part else scale.total, shape, permit=permit)


def ripple(part: float, parts: int) -> float:
    """The largest log ratio, rounded up, between a sum of rounded parts and one rounding of their continuous sum.

    It is 2.1 `lattice_sum` for parts of σ >= 0.71 grid units.
    """
    return 2.1 * lattice_sum(part, parts)


def unevenness(size: int, part: float, parts: int) -> float:
    """κ, rounded up: the largest log ratio, over all coordinates, between the noise and a post-processed Gaussian."""
    return size * ripple(part, parts)


@lru_cache(maxsize=256)
def _scale(loss: GDP, sensitivity: float, size: int, parts: int, grid: float | None, exact: bool) -> Scale:
    # μ, the inverse of the noise multiplier, rounded down.
    allowed = math.sqrt(float(loss.square)) / ROUND_UP
    fine = sensitivity / (8 * allowed * math.sqrt(parts))
    width = fine if exact else min(sensitivity / (FINENESS * math.sqrt(size)), fine)
    step = pick_grid(width, grid, exact=exact)
    steps = units(sensitivity=sensitivity, grid=step, rounding=0.0 if exact else math.sqrt(size))
    sigma = steps / allowed * ROUND_UP
    part = sigma / math.sqrt(parts) * ROUND_UP if parts > 1 else sigma
    if parts > 1 and part < MIN_PART:
        raise StudyError(
            f"a party's part of the noise would be {part:.3g} grid units wide, at least 2 are needed: "
            f"make the grid at least {MIN_PART / part:.3g} times finer, or leave it out",
            key="grid",
        )
    if unevenness(size, part, parts) > NUMERICAL * float(loss.square):
        raise StudyError(
            f"with {size} numbers the sum of {parts} parts is too far from Gaussian noise on this grid: "
            "make the grid finer, or leave it out",
            key="grid",
        )
    return Scale(grid=step, part=part, total=sigma, tau=ripple(part, parts), loss=loss)

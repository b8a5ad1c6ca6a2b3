"""Discrete Gaussian noise: zCDP for L2 sensitivity, drawn at once or in parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.privacy.accounting import budget_to_rho
from comity.privacy.loss import ZCDP, Loss
from comity.privacy.mechanisms.scale import FINENESS, ROUND_UP, Scale, checked_size, grid_at_most, units
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

SMALLEST_PART = 2.0
"""Parts narrower than this lose variance to the grid, and their sum is no Gaussian any more."""

_EXACT_TERMS = 64


@dataclass(frozen=True)
class Gaussian:
    """Adds independent integers z with probability proportional to exp(−z²/2σ²).

    Promise      ρ-zCDP against whoever sees the noisy integers, with ρ = Δ²/2σ² when one party draws it all.
                 An (ε, δ) budget buys the ρ that implies it, and the ρ is what is charged.
    Shared       each of `parts` parties adds its own discrete Gaussian of variance σ²/parts. The sum of the
                 parts is ½e²-zCDP with e = Δ/σ + τ·sqrt(d), against whoever sees the sum and none of these
                 parts (proof.md, 4): parts of colluders, or of parties that may drop out, don't count.
    Why          proof.md, 3 and 4.
    Sensitivity  Δ/h + sqrt(d) units in L2: rounding adds up to one unit per coordinate.
    """

    loss: Loss
    name: ClassVar[str] = "discrete Gaussian"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        if budget_to_rho(self.loss).rho <= 0:
            raise StudyError(
                f"Gaussian noise needs a loss above 0, found {self.loss}: raise privacy.epsilon",
                key="privacy.epsilon",
            )

    def scale(self, *, sensitivity: float, shape: tuple[int, ...], parts: int = 1, grid: float | None = None) -> Scale:
        size = checked_size(sensitivity, shape, parts)
        return _scale(budget_to_rho(self.loss), sensitivity, size, parts, grid)

    def draw(
        self,
        source: NoiseSource,
        scale: Scale,
        shape: tuple[int, ...],
        *,
        permit: Permit,
        part: bool = False,
    ) -> NDArray[np.int64]:
        return source.discrete_gaussian(scale.part if part else scale.total, shape, permit=permit)


def gap(part: float, parts: int) -> float:
    """τ, rounded up: twice the largest log ratio between the sum of the parts and one discrete Gaussian.

    τ = 10 Σ_{k < parts} exp(−2π² σ² k/(k+1)) for parts of σ grid units. The terms fall with k, so the later
    ones are counted as equal to the last one that is computed.
    """
    exponent = -2 * math.pi**2 * part * part
    terms = [math.exp(exponent * k / (k + 1)) for k in range(1, min(parts, _EXACT_TERMS))]
    rest = max(0, parts - _EXACT_TERMS) * (terms[-1] if terms else 0.0)
    # The relative error of exp grows with its argument; arguments beyond −745 give zero.
    return 10 * (sum(terms) + rest) * (1 + 1e-9)


@lru_cache(maxsize=256)
def _scale(loss: ZCDP, sensitivity: float, size: int, parts: int, grid: float | None) -> Scale:
    # sqrt(2ρ), the inverse of the noise multiplier, a little too small.
    allowed = math.sqrt(2 * float(loss.rho)) / ROUND_UP
    step = grid_at_most(
        min(sensitivity / (FINENESS * math.sqrt(size)), sensitivity / (8 * allowed * math.sqrt(parts)))
        if grid is None
        else grid
    )
    steps = units(sensitivity=sensitivity, grid=step, rounding=math.sqrt(size))
    sigma, tau = steps / allowed * ROUND_UP, 0.0
    if parts > 1:
        sigma, tau = _widened(sigma, steps, size, parts, allowed)
    part = sigma / math.sqrt(parts) * ROUND_UP if parts > 1 else sigma
    return Scale(grid=step, part=part, total=sigma, tau=tau, loss=loss)


def _widened(sigma: float, steps: float, size: int, parts: int, allowed: float) -> tuple[float, float]:
    """σ and τ such that steps/σ + τ·sqrt(size) <= allowed. Widening σ only makes τ smaller."""
    part = sigma / math.sqrt(parts)
    if part < SMALLEST_PART:
        raise StudyError(
            f"a party's part of the noise would be {part:.3g} grid units wide, at least 2 are needed: "
            f"make the grid at least {SMALLEST_PART / part:.3g} times finer, or leave it out",
            key="grid",
        )
    tau = gap(part, parts)
    left = allowed - tau * math.sqrt(size)
    if left <= allowed / 2:
        raise StudyError(
            f"with {size} numbers the sum of {parts} parts is too far from Gaussian noise on this grid: "
            "make the grid finer, or leave it out",
            key="grid",
        )
    return steps / left * ROUND_UP, tau

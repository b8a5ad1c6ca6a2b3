"""Additive noise on a grid: its interface, its size, and what rounding to the grid does to the sensitivity.

Values are released as integers: multiples of a grid width h, rounded to the nearest. Rounding moves each of two
neighbouring values by at most half a unit per coordinate, so a sensitivity Δ becomes Δ/h + sqrt(d) units in L2 and
Δ/h + d units in L1. Grid widths are powers of two: dividing by h is exact in floating point, so nothing else is lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.privacy.loss import Loss
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

Shape = tuple[int, ...]

FINENESS = 1000.0
"""By default rounding adds at most a thousandth to the sensitivity."""

_EXACT_TERMS = 64

ROUND_UP = 1 + 2.0**-44
"""More than the error of the few floating-point operations between a loss and a noise scale."""

MAX_UNITS = 2.0**50
"""The largest sensitivity or noise scale in grid units: sums and tails then fit 64-bit integers."""


@dataclass(frozen=True)
class Scale:
    """How much noise one release carries, in grid units.

    `part` is the scale of one party's part and `total` that of the whole draw; they are equal when one party draws all
    of it. `tau` is the distance of a sum of parts from the noise that it replaces; `loss` is what is charged.
    """

    grid: float
    part: float
    total: float
    tau: float
    loss: Loss

    def __post_init__(self) -> None:
        if not 0 < self.part <= self.total <= MAX_UNITS:
            raise StudyError(
                f"noise of {self.total:.3g} units on a grid of {self.grid:.3g} is wider than 2^50 units: "
                f"choose a coarser grid, or a larger loss than {self.loss}",
                key="grid",
            )


class Noise(Protocol):
    """Additive noise: how much a sensitivity needs, and a draw of that much."""

    @property
    def loss(self) -> Loss:
        """The budget that it keeps."""
        ...

    @property
    def charged(self) -> Loss:
        """What one draw costs: the loss that the budget buys, which may be of another kind."""
        ...

    @property
    def name(self) -> str: ...

    @property
    def norm(self) -> str:
        """The norm of its sensitivity: "l1" or "l2"."""
        ...

    def scale(
        self, *, sensitivity: float, shape: Shape, parts: int = 1, grid: float | None = None, exact: bool = False
    ) -> Scale:
        """The scale for a release of this shape; `grid` is the widest grid allowed, by default a fine one.

        `exact` values are whole numbers: they lie on the grid, and rounding adds nothing. With `parts` above 1 the
        noise is the sum of that many parties' parts.
        """
        ...

    def draw(
        self, source: NoiseSource, scale: Scale, shape: Shape, *, permit: Permit, part: bool = False
    ) -> NDArray[np.int64]:
        """The noise in grid units: all of it, or one party's part."""
        ...


def grid_at_most(width: float) -> float:
    """The largest power of two that is at most `width`."""
    if not 0 < width < math.inf:
        raise StudyError(f"a grid width must be finite and above 0, found {width!r}", key="grid")
    return math.ldexp(0.5, math.frexp(width)[1])


def pick_grid(width: float, grid: float | None, *, exact: bool = False) -> float:
    """The largest power of two that is at most `grid`, or at most `width` without one. For `exact` values it is at most
    1 too: whole numbers lie on every such grid, so nothing is rounded."""
    widest = width if grid is None else grid
    return grid_at_most(min(1.0, widest) if exact else widest)


def units(*, sensitivity: float, grid: float, rounding: float) -> float:
    """The sensitivity in grid units after rounding, rounded up."""
    steps = (sensitivity / grid + rounding) * ROUND_UP
    if steps > MAX_UNITS:
        raise StudyError(
            f"a sensitivity of {sensitivity:.4g} on a grid of {grid:.4g} is {steps:.3g} units, more than "
            "2^50: choose a coarser grid",
            key="grid",
        )
    return steps


def check_size(sensitivity: float, shape: Shape, parts: int) -> int:
    """The number of coordinates, after checking the arguments."""
    if not 0 < sensitivity < math.inf:
        raise StudyError(f"a sensitivity must be finite and above 0, found {sensitivity!r}: bound the contribution")
    size = math.prod(shape)
    if size < 1 or parts < 1:
        raise StudyError(f"noise needs a shape with at least one number and one part, found {shape}, {parts}")
    return size


def lattice_sum(part: float, parts: int) -> float:
    """Σ_{k < parts} exp(−2π² σ² k/(k+1)) for parts of σ grid units, or more: how far a sum of parts on the grid is from
    one draw, up to a factor. The terms fall with k, and all later terms count as much as the last computed one."""
    exponent = -2 * math.pi**2 * part * part
    terms = [math.exp(exponent * k / (k + 1)) for k in range(1, min(parts, _EXACT_TERMS))]
    return sum(terms) + max(0, parts - _EXACT_TERMS) * (terms[-1] if terms else 0.0)

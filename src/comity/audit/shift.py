"""What the records of two neighbours change in a run, and the noise that hides it.

Two runs on neighbouring records differ in the values that are opened, by a *shift* in grid units. Someone who knows all
other records, and the noise of the parties that they collude with, sees the shift under the honest parts of the noise
and nothing else: a pair of distributions that is sampled directly, by the samplers that releases use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from comity.federation.declare.consortium import Consortium
from comity.federation.declare.release import Release
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.scale import Scale
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import NoiseSource

Floats = NDArray[np.float64]

_FEW_PARTS = 3
"""So many parts are drawn one by one, as their parties draw them."""
_WIDE_PART = 500.0
_MANY_COORDINATES = 1000
"""More coordinates than these are drawn as so many blocks."""


@dataclass(frozen=True)
class Twin:
    """A broken copy of a mechanism, which an audit must catch: noise divided by `shrink`, or without one part."""

    name: str
    shrink: float = 1.0
    missing_part: bool = False


HONEST = Twin("none")


@dataclass(frozen=True, eq=False)
class Drawn:
    """Draws of the honest noise, (draws, coordinates): the last part by itself, and the sum of the others."""

    rest: Floats
    last: Floats

    def under(self, twin: Twin) -> Floats:
        """The noise as this twin would have drawn it. The same draws serve every twin."""
        return np.asarray((self.rest if twin.missing_part else self.rest + self.last) / twin.shrink)

    def __matmul__(self, weights: Floats) -> Drawn:
        return Drawn(self.rest @ weights, self.last @ weights)

    def __add__(self, other: Drawn) -> Drawn:
        return Drawn(self.rest + other.rest, self.last + other.last)


@dataclass(frozen=True, eq=False)
class Shift:
    """How far one opened value moves between two neighbours, and the noise on it that the reader does not know.

    `units` are the coordinates that move, in grid units. The others carry independent noise and tell nothing.
    """

    release: str
    noise: Noise
    scale: Scale
    parts: int
    dimensions: int
    units: NDArray[np.int64]

    @classmethod
    def between(
        cls, release: Release, consortium: Consortium, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> Shift:
        assert release.noise is not None
        moved = (np.asarray(second, np.int64) - np.asarray(first, np.int64)).ravel()
        return cls(
            release.name,
            release.noise,
            release.scale(consortium),
            release.parts(consortium),
            moved.size,
            moved[moved != 0],
        )

    @property
    def gaussian(self) -> bool:
        return isinstance(self.noise, Gaussian)

    @property
    def mu(self) -> float:
        """What its Gaussian noise lets a reader tell at most: the distance in standard deviations."""
        deviation = self.scale.part * math.sqrt(self.parts)
        return float(np.linalg.norm(self.units.astype(np.float64))) / deviation

    @property
    def epsilons(self) -> Floats:
        """What its pure noise lets a reader tell at most, by coordinate that moves."""
        if isinstance(self.noise, Laplace) or self.dimensions == 1:
            return np.abs(self.units) / self.scale.total
        # Spherical noise in several dimensions is one number: the distance.
        return np.array([np.linalg.norm(self.units.astype(np.float64)) / self.scale.total])

    @property
    def merges_parts(self) -> bool:
        """Whether all honest parts but one are drawn as one: parts of Gaussian noise, where they are many, and so wide
        that their rounding counts for little."""
        return self.gaussian and self.parts > _FEW_PARTS and self.scale.part >= _WIDE_PART

    @property
    def weights(self) -> Floats:
        """What the score of Gaussian noise multiplies the drawn coordinates with. Where many coordinates move, blocks
        of them are drawn as one: Σ sᵢzᵢ over a block is |s|·z for one z like the others."""
        units = self.units.astype(np.float64)
        if not self.gaussian or len(units) <= _MANY_COORDINATES:
            return units
        starts = np.linspace(0, len(units), _MANY_COORDINATES, endpoint=False).astype(int)
        return np.asarray(np.sqrt(np.add.reduceat(units**2, starts)), np.float64)

    @property
    def drawn_numbers(self) -> int:
        """How many numbers one draw takes."""
        return len(self.weights) * (2 if self.merges_parts else self.parts)

    def rounding(self, miss: float) -> float:
        """How far merging moves ⟨z, units⟩, except with probability `miss`.

        Each coordinate of a part is rounded to whole units by itself, a merged draw once. A rounding error lies in
        [−½, ½] and has mean 0, because the Gaussian is symmetric; those of all parts and coordinates are independent.
        Hoeffding's inequality bounds the errors that are made in a run, and those of the merged draws.
        """
        if not self.merges_parts and len(self.weights) == len(self.units):
            return 0.0
        each = math.sqrt(math.log(4 / miss) / 2) * float(np.linalg.norm(self.weights))
        return (math.sqrt(self.parts) + math.sqrt(2 if self.merges_parts else self.parts)) * each

    def draw(self, source: NoiseSource, count: int) -> Drawn:
        """`count` draws of the honest noise on the coordinates that move, or blocks of them, in grid units."""
        width = self.dimensions if isinstance(self.noise, Spherical) else len(self.weights)
        if self.merges_parts:
            # A sum of Gaussians is one Gaussian, from the sampler that draws the parts.
            wide = self.scale.part * math.sqrt(self.parts - 1)
            merged = source.rounded_gaussian(wide, (count, width), permit=simulated_permit(self.release))
            return Drawn(np.asarray(merged, np.float64), self._part(source, count, width))
        rest = np.zeros((count, len(self.weights)))
        for _ in range(self.parts - 1):
            rest += self._part(source, count, width)
        return Drawn(rest, self._part(source, count, width))

    def _part(self, source: NoiseSource, count: int, width: int) -> Floats:
        permit, part = partial(simulated_permit, self.release), self.parts > 1
        if not isinstance(self.noise, Spherical):
            drawn = self.noise.draw(source, self.scale, (count, width), permit=permit(), part=part)
            return np.asarray(drawn, np.float64)
        # One vector a draw: its coordinates share a radius.
        rows = [self.noise.draw(source, self.scale, (width,), permit=permit(), part=part) for _ in range(count)]
        return np.asarray(rows, np.float64)[:, : len(self.units)]


def design_mu(shifts: Sequence[Shift]) -> float:
    """The μ that the pair could show with all draws of the world: squares add up over independent releases."""
    return math.sqrt(sum(shift.mu**2 for shift in shifts))


def design_epsilon(shifts: Sequence[Shift]) -> float:
    """The same for pure noise: losses of independent coordinates add up."""
    return float(sum(shift.epsilons.sum() for shift in shifts))

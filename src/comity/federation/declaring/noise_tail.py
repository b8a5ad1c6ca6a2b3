"""How far noise and rounding can carry what is opened: tail bounds for linear figures and for the norm of a sum.

A check of an opened sum must not end an honest run. Each bound here fails with probability at most `FALSE_ALARM` for
all figures of one check together, so that a run of up to 100,000 checks is ended without cause with probability below
1e-9. With x = log(8 m / FALSE_ALARM) for m figures, a figure ⟨a, η⟩ of noise η exceeds in magnitude

    Gaussian     σ·√(2x)·|a|₂                             (Chernoff)
    Laplace      b·(2·√(k·x)·|a|₂ + x·|a|∞)               (sub-gamma: log E exp(tη) <= −k·log(1 − b²t²) for each entry)
    spherical    √(2x·V)·|a|₂,  V = 2β²(s + √(2sx) + x)   (Gaussian given its variance, which is a Gamma of shape s)

with probability at most 2·exp(−x), twice that for spherical noise. σ is the deviation of all parts that were added, k
the number of parts over those that the noise was laid out for, s = (d + 1)/2·k. A discrete Laplace difference has at
most the moments of the continuous one: sinh(t/2)/sinh(1/(2b)) <= t·b for |t| <= 1/b. Rounding moves each contribution
and each part of the noise by half a unit of the grid at most, which is added on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, prod, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comity.federation.declaring.protection import Noised, Summed
from comity.federation.declaring.ranges import Weights
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.sampling.infinitely_divisible import SMOOTHING

if TYPE_CHECKING:
    from comity.federation.declaring.consortium import Consortium
    from comity.federation.declaring.release import Release

Floats = NDArray[np.float64]

FALSE_ALARM = 1e-14
"""Probability that one check of an honest sum fails."""

# Noise of another kind is given so many standard deviations.
_DEVIATIONS = 40.0


@dataclass(frozen=True)
class NoiseTail:
    """The noise and the rounding in an opened sum over `parties` contributions, in the units of the value."""

    release: Release
    who: Consortium
    parties: int

    def of_figures(self, weights: Weights, figures: int) -> Floats | float:
        """How far noise and rounding carry any of so many weighted sums of coordinates."""
        x = _exponent(figures)
        return self._rounding * weights.l1 + self._deviation(x) * weights.l2 + self._exponential(x) * weights.largest

    def of_norm(self, size: int) -> float:
        """How far they carry the L2 norm of `size` coordinates."""
        x = _exponent(1)
        rounding = self._rounding * sqrt(size)
        if isinstance(self._noise, Laplace):
            # No coordinate is further than this, all at once.
            return rounding + sqrt(size) * float(self.of_figures(Weights(l1=0.0), size))
        # A norm moves by no more than its vector: √d on average, and the same tail as a coordinate.
        return rounding + self._deviation(x) * (1.0 + sqrt(size / (2 * x)))

    @property
    def _noise(self) -> object:
        return self.release.noise if isinstance(self.release.protection, Summed | Noised) else None

    @property
    def _rounding(self) -> float:
        return self.parties * self.release.spacing(self.who)

    @property
    def _share(self) -> float:
        """Parts that were added, over those that the noise was laid out for."""
        return self.parties / self.release.parts(self.who)

    def _deviation(self, x: float) -> float:
        """What is multiplied by the L2 norm of the weights."""
        noise = self._noise
        if noise is None:
            return 0.0
        scale = self.release.scale(self.who)
        if isinstance(noise, Gaussian):
            return scale.total * scale.grid * sqrt(self._share * 2 * x)
        if isinstance(noise, Laplace):
            return scale.total * scale.grid * 2 * sqrt(self._share * x)
        if isinstance(noise, Spherical):
            shape = (prod(self.release.shape) + 1) / 2 * self._share
            variance = 2 * scale.total**2 * (shape + sqrt(2 * shape * x) + x) + SMOOTHING * self.parties
            return scale.grid * sqrt(2 * x * variance)
        return _DEVIATIONS * self.release.opened_deviation(self.who, self.parties)

    def _exponential(self, x: float) -> float:
        """What is multiplied by the largest of the weights."""
        if not isinstance(self._noise, Laplace):
            return 0.0
        scale = self.release.scale(self.who)
        return scale.total * scale.grid * x


def _exponent(figures: int) -> float:
    # Some figures are made of up to three coordinates, each of which must stay within its own tail.
    return log(8 * max(1, figures) / FALSE_ALARM)

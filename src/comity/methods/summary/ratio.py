"""The density ratio of consumer to owners as a clipped linear function, from released moments alone.

Owners' records are taken for standard normal in whitened coordinates g. Of all ratios r = clip(θ·(1, g), 0, B) the one
whose mean is one and whose mean of r·g is the consumer's mean is the minimiser of a convex function of θ; its integrals
have closed forms, since θ·(1, g) is normal itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from comity.data.row_products import row_sums
from comity.methods.summary.spectrum import Spectrum

Floats = NDArray[np.float64]

MOST = 5.0
"""B: no record counts for more than so many. Settled on MNIST."""
# The penalty of each coordinate is twice the variance of its noise, and this. Settled on MNIST.
_RIDGE = 0.1


@dataclass(frozen=True, eq=False)
class Ratio:
    """r(x) = clip(θ·(1, g(x)), 0, B), made from what was released."""

    spectrum: Spectrum
    theta: Floats

    def __call__(self, features: Floats) -> Floats:
        """(n,): how much more often such a record is the consumer's than an owner's."""
        # A coordinator may send any ratio: what is no number counts for nothing. Terms are added in a fixed order.
        with np.errstate(all="ignore"):
            linear = self.theta[0] + row_sums(self.spectrum.whitened(features) * self.theta[1:])
        return np.asarray(np.clip(np.nan_to_num(linear, nan=0.0, posinf=MOST), 0.0, MOST), np.float64)


def fitted(mean: Floats, variance: Floats) -> Floats:
    """θ (1 + k,): least E h(θ·(1, g)) + ½ θᵀΛθ − θ·(1, mean) over standard normal g, with h' = clip(·, 0, B).

    `mean` (k,) is the consumer's, in whitened coordinates, `variance` (k,) that of its noise, so that noisy coordinates
    count for less.
    """
    # A plan imports this file, and needs no library of minimisers.
    from scipy.optimize import minimize

    penalty = np.concatenate([[_RIDGE], 2 * variance + _RIDGE])
    wanted = np.concatenate([[1.0], mean])

    def risk(theta: Floats) -> tuple[float, Floats]:
        level, slope = float(theta[0]), theta[1:]
        spread = sqrt(float(slope @ slope) + 1e-12)
        value, clipped, inside = _expected(level, spread)
        gradient = np.concatenate([[clipped], inside * slope]) + penalty * theta - wanted
        return value + 0.5 * float(penalty @ theta**2) - float(wanted @ theta), gradient

    start = np.zeros(len(wanted))
    start[0] = 1.0
    return np.asarray(minimize(risk, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x, np.float64)


def _expected(level: float, spread: float) -> tuple[float, float, float]:
    """E h(t), E h'(t) and E h''(t) of a normal t: h is 0 below 0, t²/2 up to B, and Bt − B²/2 beyond."""
    low, high = -level / spread, (MOST - level) / spread
    below, above = float(ndtr(low)), float(ndtr(-high))
    inside = max(0.0, 1.0 - below - above)
    at_low, at_high = (float(np.exp(-0.5 * edge * edge)) / sqrt(2 * np.pi) for edge in (low, high))
    first = level * inside + spread * (at_low - at_high)
    second = (level**2 + spread**2) * inside + spread * (level * (at_low - at_high) - MOST * at_high)
    beyond = level * above + spread * at_high
    value = 0.5 * second + MOST * beyond - 0.5 * MOST**2 * above
    return value, first + MOST * above, inside


def discrepancies(spectrum: Spectrum, theta: Floats, mean: Floats, variance: Floats) -> tuple[float, float]:
    """MMD² between owners and consumer before and after the ratio, along the kept directions, from releases alone.

    Before, it is Σ v·mean² less what the noise adds to it; after, what the ratio leaves of the mean where owners'
    records are normal.
    """
    slope = theta[1:]
    _, _, inside = _expected(float(theta[0]), sqrt(float(slope @ slope) + 1e-12))
    left = mean - inside * slope
    weighed = spectrum.variances
    before = float(weighed @ (mean**2 - variance))
    after = float(weighed @ left**2)
    return max(0.0, before), min(max(0.0, before), max(0.0, after))

"""From noisy moments to quotas: the spectrum of the owners' features, the density ratio, and each owner's quota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from comity.data.row_products import clip_received, rough_unit_products, row_sums
from comity.errors import StudyError
from comity.learn.record_sum import in_unit_ball

# The spectrum: directions in which the owners' records vary, with eigenvalues above the noise shrunk to what they were.
#
# The noise of a symmetric matrix whose entries off the diagonal have deviation σ has eigenvalues up to 2e, e = σ·√D
# (Wigner's semicircle). An eigenvalue v > e of the exact matrix is seen at l = v + e²/v; smaller ones are not seen.

Floats = NDArray[np.float64]

MAX_RANK = 64
"""Directions that are kept at most: a limit of size, and the shape of what the consumer releases."""
NOISE_EDGE = 2.2
"""Eigenvalues are kept from so many e on; 2 is the edge of the noise. Settled on MNIST."""
# Ranges of received numbers: noise makes a mean and a variance longer than 1, not so long.
_SMALLEST_VARIANCE, _LARGEST_VARIANCE, _LARGEST_MEAN = 1e-12, 2.0**20, 2.0**20


@dataclass(frozen=True, eq=False)
class Spectrum:
    """`mean` (D,) of the features, `axes` (D, k) and the `variances` (k,) along them, largest first. All of it is made
    from released moments. k is 0 where noise covers everything."""

    mean: Floats
    axes: Floats
    variances: Floats

    @property
    def rank(self) -> int:
        return len(self.variances)

    @property
    def radius(self) -> float:
        """R: how long a record is typically in the consumer's coordinates, √Σ√v."""
        return float(np.sqrt(np.sqrt(self.variances).sum()))

    def whitened(self, features: Floats) -> Floats:
        """(n, k): coordinates of variance one each, of a record the same beside any other records, to the last bit."""
        along = rough_unit_products(features, self.axes.T) - self.mean @ self.axes
        return np.asarray(along / np.sqrt(self.variances), np.float64)

    def in_ball(self, features: Floats) -> Floats:
        """(n, k), each row in the unit ball: v^(−¼)·Qᵀ(φ − m) divided by R, and longer rows by their length.

        Between the plain coordinates, in which noise drowns the small directions, and the whitened ones, in which they
        cost as much as the large: the root of the variance in each is what their noise is worth.
        """
        if not self.rank:
            return np.zeros((len(features), 0))
        # A coordinator may send any spectrum: what overflows is no row.
        with np.errstate(all="ignore"):
            rows = self.whitened(features) * (self.variances**0.25 / self.radius)
        return in_unit_ball(rows)

    def in_range(self) -> Spectrum:
        """What a site makes of the numbers that it received. Means and axes of features of length one have no entry
        above 1, and variances lie between what `denoised` keeps and 1."""
        variances = np.clip(self.variances, _SMALLEST_VARIANCE, _LARGEST_VARIANCE)
        return Spectrum(clip_received(self.mean, _LARGEST_MEAN), clip_received(self.axes, 1.0), variances)

    def from_ball(self, mean: Floats) -> Floats:
        """A mean of such rows, in whitened coordinates."""
        return np.asarray(mean * self.radius / self.variances**0.25, np.float64)


def denoise_spectrum(moment: Floats, mean: Floats, deviation: float) -> Spectrum:
    """Of Σφφᵀ/N and Σφ/N, both noisy; `deviation` is that of the noise in an entry of the first off its diagonal."""
    covariance = moment - np.outer(mean, mean)
    found, axes = np.linalg.eigh(covariance)
    noise = deviation * sqrt(len(mean))
    seen, axes = found[::-1][:MAX_RANK], axes[:, ::-1][:, :MAX_RANK]
    # A constant feature has no variance: what is left of it is rounding.
    kept = seen > max(NOISE_EDGE * noise, 1e-12)
    seen, axes = seen[kept], axes[:, kept]
    variances = (seen + np.sqrt(np.maximum(seen**2 - 4 * noise**2, 0.0))) / 2
    # Each axis points where its largest entry is positive, so that machines agree on the signs.
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return Spectrum(np.asarray(mean, np.float64), np.asarray(axes * signs, np.float64), variances)


# The density ratio of consumer to owners as a clipped linear function, from released moments alone.
#
# Owners' records are taken as standard normal in whitened coordinates g. Of all ratios r = clip(θ·(1, g), 0, B), the
# one whose mean is one and whose mean of r·g is the consumer's mean minimises a convex function of θ. Its integrals
# have closed forms, because θ·(1, g) is normal.

MAX_RATIO = 5.0
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
        return np.asarray(np.clip(np.nan_to_num(linear, nan=0.0, posinf=MAX_RATIO), 0.0, MAX_RATIO), np.float64)


def fit_ratio(mean: Floats, variance: Floats) -> Floats:
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
        value, clip_received, inside = _clipped_normal_moments(level, spread)
        gradient = np.concatenate([[clip_received], inside * slope]) + penalty * theta - wanted
        return value + 0.5 * float(penalty @ theta**2) - float(wanted @ theta), gradient

    start = np.zeros(len(wanted))
    start[0] = 1.0
    return np.asarray(minimize(risk, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x, np.float64)


def _clipped_normal_moments(level: float, spread: float) -> tuple[float, float, float]:
    """E h(t), E h'(t) and E h''(t) of a normal t: h is 0 below 0, t²/2 up to B, and Bt − B²/2 beyond."""
    low, high = -level / spread, (MAX_RATIO - level) / spread
    below, above = float(ndtr(low)), float(ndtr(-high))
    inside = max(0.0, 1.0 - below - above)
    at_low, at_high = (float(np.exp(-0.5 * edge * edge)) / sqrt(2 * np.pi) for edge in (low, high))
    first = level * inside + spread * (at_low - at_high)
    second = (level**2 + spread**2) * inside + spread * (level * (at_low - at_high) - MAX_RATIO * at_high)
    beyond = level * above + spread * at_high
    value = 0.5 * second + MAX_RATIO * beyond - 0.5 * MAX_RATIO**2 * above
    return value, first + MAX_RATIO * above, inside


def estimate_discrepancies(spectrum: Spectrum, theta: Floats, mean: Floats, variance: Floats) -> tuple[float, float]:
    """MMD² between owners and consumer before and after the ratio, along the kept directions, from releases alone.

    Before, it is Σ v·mean² less what the noise adds to it; after, what the ratio leaves of the mean where owners'
    records are normal.
    """
    slope = theta[1:]
    _, _, inside = _clipped_normal_moments(float(theta[0]), sqrt(float(slope @ slope) + 1e-12))
    left = mean - inside * slope
    weighed = spectrum.variances
    before = float(weighed @ (mean**2 - variance))
    after = float(weighed @ left**2)
    return max(0.0, before), min(max(0.0, before), max(0.0, after))


# Quotas: shares of noisy masses, capped by public sizes, before any record is read.


def allot_quotas(masses: Mapping[str, float], sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """`count` places dealt to owners in proportion to their masses, no owner more than its public size.

    A noisy mass may be negative: it counts as none. What a cap leaves over goes to the others, by their masses, and by
    their room where none of them has any. Largest remainders get the last places, ties in the order of the study.
    """
    room = dict(sizes)
    if not 0 <= count <= sum(room.values()):
        raise StudyError(
            f"summary.records = {count} asks for more than the owners have, {sum(room.values())} by summary.sizes; "
            "lower it",
            key="summary.records",
        )
    dealt = dict.fromkeys(room, 0)
    left = count
    while left:
        open_ = [owner for owner in room if dealt[owner] < room[owner]]
        weights = np.array([max(0.0, masses[owner]) for owner in open_])
        if not weights.sum() > 0:
            weights = np.array([float(room[owner] - dealt[owner]) for owner in open_])
        ideal = left * weights / weights.sum()
        if all(dealt[owner] + wanted <= room[owner] for owner, wanted in zip(open_, ideal)):
            whole = np.floor(ideal).astype(int)
            order = np.argsort(-(ideal - whole), kind="stable")
            whole[order[: left - int(whole.sum())]] += 1
        else:
            whole = np.floor(ideal).astype(int)
        for owner, wanted in zip(open_, whole):
            dealt[owner] += int(min(wanted, room[owner] - dealt[owner]))
        spread = count - sum(dealt.values())
        if spread == left:
            # Less than one place for each of them: the largest share first.
            best = open_[int(np.argmax(weights))]
            dealt[best] += 1
            spread -= 1
        left = spread
    return dealt

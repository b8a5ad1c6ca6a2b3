"""From noisy moments to quotas: the spectrum of the owners' features, the density ratio, and each owner's quota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.data.row_products import clip_received, rough_unit_products, row_sums
from comity.errors import StudyError
from comity.learn.record_sum import in_unit_ball
from comity.special import ndtr

# The spectrum: the directions in which the owners' records vary, with eigenvalues corrected for the noise.
#
# A symmetric matrix of noise whose entries off the diagonal have deviation σ has eigenvalues up to 2e, e = σ·√D
# (Wigner's semicircle). An eigenvalue v > e of the exact matrix appears at l = v + e²/v; smaller ones do not appear.

Floats = NDArray[np.float64]

MAX_RANK = 64
"""The most directions that are kept: a limit of size, and the shape of the consumer's release."""
NOISE_EDGE = 2.2
"""Eigenvalues above this many e are kept; 2 is the edge of the noise. Settled on MNIST."""
# Ranges of received numbers. Noise may bring a mean or a variance above 1, but not that far.
_SMALLEST_VARIANCE, _LARGEST_VARIANCE, _LARGEST_MEAN = 1e-12, 2.0**20, 2.0**20


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The `mean` (D,) of the features, `axes` (D, k), and the `variances` (k,) along them, largest first. All come from
    released moments. k is 0 where noise covers everything."""

    mean: Floats
    axes: Floats
    variances: Floats

    @property
    def rank(self) -> int:
        return len(self.variances)

    @property
    def radius(self) -> float:
        """R = √Σ√v: the typical length of a record in the consumer's coordinates."""
        return float(np.sqrt(np.sqrt(self.variances).sum()))

    def whitened(self, features: Floats) -> Floats:
        """(n, k): coordinates of variance one. Those of a record do not depend on other records, to the last bit."""
        along = rough_unit_products(features, self.axes.T) - self.mean @ self.axes
        return np.asarray(along / np.sqrt(self.variances), np.float64)

    def in_ball(self, features: Floats) -> Floats:
        """(n, k), each row in the unit ball: v^(−¼)·Qᵀ(φ − m)/R, with longer rows divided by their length.

        These coordinates lie between the plain ones, in which noise covers small directions, and the whitened ones, in
        which small directions cost as much as large ones. They give the smallest error of MMD² (proof.md, 2).
        """
        if not self.rank:
            return np.zeros((len(features), 0))
        # A coordinator may send any spectrum: rows that overflow become zero.
        with np.errstate(all="ignore"):
            rows = self.whitened(features) * (self.variances**0.25 / self.radius)
        return in_unit_ball(rows)

    def in_range(self) -> Spectrum:
        """The spectrum with every number clipped to a public range. An honest one is not changed: axes have no entry
        above 1, and `denoise_spectrum` keeps no variance below the range."""
        variances = np.clip(self.variances, _SMALLEST_VARIANCE, _LARGEST_VARIANCE)
        return Spectrum(clip_received(self.mean, _LARGEST_MEAN), clip_received(self.axes, 1.0), variances)

    def from_ball(self, mean: Floats) -> Floats:
        """A mean of rows of `in_ball`, in whitened coordinates."""
        return np.asarray(mean * self.radius / self.variances**0.25, np.float64)


def denoise_spectrum(moment: Floats, mean: Floats, deviation: float) -> Spectrum:
    """The spectrum of noisy Σφφᵀ/N and Σφ/N. `deviation` is that of the noise in an entry of the former off its
    diagonal."""
    covariance = moment - np.outer(mean, mean)
    values, axes = np.linalg.eigh(covariance)
    noise = deviation * sqrt(len(mean))
    values, axes = values[::-1][:MAX_RANK], axes[:, ::-1][:, :MAX_RANK]
    # A constant feature has no variance beyond rounding.
    kept = values > max(NOISE_EDGE * noise, 1e-12)
    values, axes = values[kept], axes[:, kept]
    variances = (values + np.sqrt(np.maximum(values**2 - 4 * noise**2, 0.0))) / 2
    # The largest entry of each axis is positive, so all machines agree on the signs.
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return Spectrum(np.asarray(mean, np.float64), np.asarray(axes * signs, np.float64), variances)


# The density ratio of consumer to owners as a clipped linear function, from released moments alone.
#
# The fit takes owners' records as standard normal in whitened coordinates g. Of all ratios r = clip(θ·(1, g), 0, B),
# the one with mean one whose mean of r·g is the consumer's mean minimises a convex function of θ. Its integrals have
# closed forms, because θ·(1, g) is normal.

MAX_RATIO = 5.0
"""B: the largest ratio of a record. Settled on MNIST."""
# The penalty of each coordinate is this plus twice the variance of its noise. Settled on MNIST.
_RIDGE = 0.1


@dataclass(frozen=True, eq=False)
class Ratio:
    """r(x) = clip(θ·(1, g(x)), 0, B), from releases alone."""

    spectrum: Spectrum
    theta: Floats

    def __call__(self, features: Floats) -> Floats:
        """(n,): how much more likely each record is at the consumer than at the owners."""
        # A coordinator may send any ratio: NaN counts as 0. Terms are added in a fixed order.
        with np.errstate(all="ignore"):
            linear = self.theta[0] + row_sums(self.spectrum.whitened(features) * self.theta[1:])
        return np.asarray(np.clip(np.nan_to_num(linear, nan=0.0, posinf=MAX_RATIO), 0.0, MAX_RATIO), np.float64)


def fit_ratio(mean: Floats, variance: Floats) -> Floats:
    """θ (1 + k,) that minimises E h(θ·(1, g)) + ½ θᵀΛθ − θ·(1, mean) over standard normal g, with h' = clip(·, 0, B).

    `mean` (k,) is the consumer's in whitened coordinates, `variance` (k,) that of its noise, by which Λ weakens noisy
    coordinates.
    """
    # Imported late, because a plan imports this file and needs no minimiser.
    from scipy.optimize import minimize

    penalty = np.concatenate([[_RIDGE], 2 * variance + _RIDGE])
    wanted = np.concatenate([[1.0], mean])

    def risk(theta: Floats) -> tuple[float, Floats]:
        level, slope = float(theta[0]), theta[1:]
        spread = sqrt(float(slope @ slope) + 1e-12)
        value, mean_ratio, inside = _clipped_normal_moments(level, spread)
        gradient = np.concatenate([[mean_ratio], inside * slope]) + penalty * theta - wanted
        return value + 0.5 * float(penalty @ theta**2) - float(wanted @ theta), gradient

    start = np.zeros(len(wanted))
    start[0] = 1.0
    return np.asarray(minimize(risk, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x, np.float64)


def _clipped_normal_moments(level: float, spread: float) -> tuple[float, float, float]:
    """E h(t), E h'(t) and E h''(t) of a normal t, where h is 0 below 0, t²/2 up to B, and Bt − B²/2 beyond."""
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

    Before it is Σ v·mean² less what noise adds to that. After it is the part of the mean that the ratio would not
    explain if the owners' records were normal.
    """
    slope = theta[1:]
    _, _, inside = _clipped_normal_moments(float(theta[0]), sqrt(float(slope @ slope) + 1e-12))
    left = mean - inside * slope
    before = float(spectrum.variances @ (mean**2 - variance))
    after = float(spectrum.variances @ left**2)
    return max(0.0, before), min(max(0.0, before), max(0.0, after))


# Quotas: shares of noisy masses, capped by public sizes, before any record is read.


def allot_quotas(masses: Mapping[str, float], sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """Divide `count` records over owners in proportion to their masses, at most its public size for each.

    A noisy mass may be negative and then counts as zero. What the sizes cut off goes to the other owners by their
    masses, or by their remaining records if all those masses are zero. The largest remainders get the last records;
    ties go in the order of the study.
    """
    if not 0 <= count <= sum(sizes.values()):
        raise StudyError(
            f"summary.records = {count} asks for more than the owners have, {sum(sizes.values())} by summary.sizes; "
            "lower it",
            key="summary.records",
        )
    quotas = dict.fromkeys(sizes, 0)
    left = count
    while left:
        unfilled = [owner for owner in sizes if quotas[owner] < sizes[owner]]
        weights = np.array([max(0.0, masses[owner]) for owner in unfilled])
        if not weights.sum() > 0:
            weights = np.array([float(sizes[owner] - quotas[owner]) for owner in unfilled])
        ideal = left * weights / weights.sum()
        whole = np.floor(ideal).astype(int)
        if all(quotas[owner] + wanted <= sizes[owner] for owner, wanted in zip(unfilled, ideal)):
            order = np.argsort(-(ideal - whole), kind="stable")
            whole[order[: left - int(whole.sum())]] += 1
        for owner, wanted in zip(unfilled, whole):
            quotas[owner] += int(min(wanted, sizes[owner] - quotas[owner]))
        remaining = count - sum(quotas.values())
        if remaining == left:
            # Less than one record for each of them: the largest weight gets it.
            quotas[unfilled[int(np.argmax(weights))]] += 1
            remaining -= 1
        left = remaining
    return quotas

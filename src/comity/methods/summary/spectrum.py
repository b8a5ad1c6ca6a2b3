"""The directions in which the owners' records vary, from noisy moments of their features: eigenvalues above the noise,
shrunk back to what they were before it.

The noise of a symmetric matrix whose entries off the diagonal have deviation σ has eigenvalues up to 2e, e = σ·√D
(Wigner's semicircle). An eigenvalue v > e of the exact matrix is seen at l = v + e²/v; below, nothing of it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.data.row_products import clipped, rough_unit_products
from comity.learn.record_sum import in_unit_ball

Floats = NDArray[np.float64]

MOST = 64
"""Directions that are kept at most: a limit of size, and the shape of what the consumer releases."""
EDGE = 2.2
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
        return Spectrum(clipped(self.mean, _LARGEST_MEAN), clipped(self.axes, 1.0), variances)

    def from_ball(self, mean: Floats) -> Floats:
        """A mean of such rows, in whitened coordinates."""
        return np.asarray(mean * self.radius / self.variances**0.25, np.float64)


def denoised(moment: Floats, mean: Floats, deviation: float) -> Spectrum:
    """Of Σφφᵀ/N and Σφ/N, both noisy; `deviation` is that of the noise in an entry of the first off its diagonal."""
    covariance = moment - np.outer(mean, mean)
    found, axes = np.linalg.eigh(covariance)
    noise = deviation * sqrt(len(mean))
    seen, axes = found[::-1][:MOST], axes[:, ::-1][:, :MOST]
    # A constant feature has no variance: what is left of it is rounding.
    kept = seen > max(EDGE * noise, 1e-12)
    seen, axes = seen[kept], axes[:, kept]
    variances = (seen + np.sqrt(np.maximum(seen**2 - 4 * noise**2, 0.0))) / 2
    # Each axis points where its largest entry is positive, so that machines agree on the signs.
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return Spectrum(np.asarray(mean, np.float64), np.asarray(axes * signs, np.float64), variances)

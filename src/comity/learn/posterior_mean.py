"""A linear model from noisy moments: the mean of the weights that moments and their known noise leave possible.

Opened are G + E and m + e for the exact moments G = Σxxᵀ and m = Σxy = Gβ. Weights are drawn from N(0, τ²I) before
moments are seen, and τ² says how much of the target's variance the columns explain: any share from 0 to 1 is equally
likely. Then

    m + e = Gβ + e,    Cov(e) and the variances of E are public,

so moments that noise may have made give weights near 0, a mean of the target, and clear ones the least-squares fit.
Without that a model of few records, or of a target that varies little within its bounds, would be worse than the mean.
Everything here is computed from opened values: nothing more is released.

G + E is drawn towards a diagonal as far as its noise reaches (Ledoit and Wolf 2004, with a known variance), because an
inverse makes most of the smallest eigenvalues, which are the noisiest.
"""

from __future__ import annotations

from math import exp, pi, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from comity.learn.noisy_regression import NoisyMoments
from comity.special import log_ndtr

Floats = NDArray[np.float64]

_SHARES: Final = np.append(0.0, np.geomspace(1e-4, 1.0, 60))
"""Shares of the target's variance that columns may explain."""
_TIMES: Final = 3
"""How often the residuals' variance is estimated anew from the weights that it leads to."""
_TINY: Final = 1e-300


def mean_weights(found: NoisyMoments, square_variance: float) -> Floats:
    """The mean weights, a constant's last. `square_variance` is that of the noise in the sum of squared labels."""
    if not found.constant:
        return _mean_weights(found, square_variance)
    constant = float(found.gram[-1, -1])
    means, middle = found.gram[:-1, -1] / constant, float(found.moment[-1]) / constant
    weights = _mean_weights(_about_means(found, means, middle), square_variance)
    # The mean target is anywhere within its bounds before it is seen.
    before = found.label**2 / 3 * found.rows / constant
    known = before / (before + float(found.moment_variances[-1]) / constant**2)
    return np.append(weights, known * middle - means @ weights)


def _about_means(found: NoisyMoments, means: Floats, middle: float) -> NoisyMoments:
    """Moments about the mean columns and the mean target; their noise to first order."""
    constant, of_means = float(found.gram[-1, -1]), found.variances[:-1, -1]
    own = found.variances[:-1, :-1] + np.outer(means**2, of_means) + np.outer(of_means, means**2)
    return NoisyMoments(
        gram=found.gram[:-1, :-1] - constant * np.outer(means, means),
        moment=found.moment[:-1] - means * found.moment[-1],
        square=found.square - constant * middle**2,
        variances=own,
        moment_variances=found.moment_variances[:-1] + means**2 * found.moment_variances[-1] + middle**2 * of_means,
        rows=found.rows,
        label=found.label,
        constant=False,
        spread=found.spread[:-1],
    )


def _mean_weights(found: NoisyMoments, square_variance: float) -> Floats:
    gram, variances = _towards_diagonal((found.gram + found.gram.T) / 2, found.variances)
    values, axes = np.linalg.eigh(gram)
    values, along = np.maximum(values, 0.0), axes.T @ found.moment
    if not values.any():
        return np.zeros(len(values))
    # Along each axis: the noise of the moment, and that of the matrix under weights of variance 1.
    of_moment = np.einsum("ji,j->i", axes**2, found.moment_variances)
    of_matrix = np.einsum("ji,j->i", axes**2, variances.sum(axis=1))
    most = found.label**2 * found.rows
    target = min(most, _mean_above_zero(found.square, sqrt(square_variance)))
    spread = _SHARES[:, None] * target / float(values.sum())
    residual, weights = min(most, max(0.0, found.square)) / found.rows, np.zeros(len(values))
    for _ in range(_TIMES):
        seen = values**2 * spread + of_moment + of_matrix * spread + residual * values + _TINY
        likely = -0.5 * (np.log(seen) + along**2 / seen).sum(axis=1)
        share = np.gradient(_SHARES) * np.exp(likely - likely.max())
        weights = axes @ ((share / share.sum()) @ (values * spread / seen) * along)
        left = found.square - 2 * float(weights @ found.moment) + float(weights @ gram @ weights)
        residual = min(most, max(0.0, left)) / found.rows
    return np.asarray(weights, np.float64)


def _towards_diagonal(gram: Floats, variances: Floats) -> tuple[Floats, Floats]:
    """The matrix between itself, its diagonal and the mean of that, and the variances that are left. A mean that noise
    may have made is taken for larger than it is: weights are then smaller."""
    beside, own = ~np.eye(len(gram), dtype=np.bool_), np.diag(variances)
    diagonal, noise_of_mean = np.diag(gram), float(own.mean()) / len(gram)
    mean = float(diagonal.mean())
    off, on = _kept(gram[beside], variances[beside]), _kept(diagonal - mean, own)
    middle = float(np.sqrt(max(0.0, mean) ** 2 + noise_of_mean))
    drawn = np.where(beside, off * gram, 0.0) + np.diag(np.maximum(0.0, middle + on * (diagonal - mean)))
    left = np.where(beside, off * variances, np.diag(on * own + (1 - on) * noise_of_mean))
    return drawn, left


def _mean_above_zero(value: float, deviation: float) -> float:
    """The mean of a number that is not negative, of which this value is known with normal noise."""
    if deviation == 0 or value > 8 * deviation:
        return max(0.0, value)
    ratio = value / deviation
    return value + deviation * exp(-(ratio**2) / 2 - log_ndtr(ratio)) / sqrt(2 * pi)


def _kept(values: Floats, variances: Floats) -> float:
    """The share of these squares that is not noise."""
    total = float((values**2).sum())
    return max(0.0, 1.0 - float(variances.sum()) / total) if total > 0 else 0.0

"""The other private methods of the paper's tables: noisy gradient descent and noisy Frank–Wolfe.

The paper gives no settings for either. DPSGD makes 20 passes at a step of 200 over rows of L1 norm 1; DPFW is
(ε, δ)-private, as in the paper, with the radius and steps of each table. All of these were picked among a dozen by
looking at errors, which favours both. Over K parties the original shares noisy projections of residuals (Lou and Cheung
2018); here each party fits the label by its own columns with a share of 1/K of the loss, and weights are put side by
side.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from comity.privacy import Laplace, NoiseSource, NoisyMax, Pure, simulated_permit

Floats = NDArray[np.float64]

PASSES = 20
STEP = 200.0


def dpsgd(features: Floats, labels: Floats, *, epsilon: float, source: NoiseSource) -> Floats:
    """Full gradients of the logistic loss, rows clipped to L1 norm 1, Laplace noise, ε shared by all passes.

    A replaced record moves a sum of gradients (σ(x·w) − y)x by at most 2 in L1.
    """
    rows = features / np.maximum(1.0, np.abs(features).sum(axis=1, keepdims=True))
    count, width = rows.shape
    noise = Laplace(Pure(epsilon / PASSES))
    scale = noise.scale(sensitivity=2.0, shape=(width,))
    weights = np.zeros(width)
    for number in range(PASSES):
        gradient = rows.T @ (expit(rows @ weights) - labels)
        drawn = noise.draw(source, scale, (width,), permit=simulated_permit("gradient", number)) * scale.grid
        weights -= STEP * (gradient + drawn) / count
    return weights


def frank_wolfe(
    features: Floats,
    labels: Floats,
    *,
    rho: float,
    source: NoiseSource,
    radius: float = 1.0,
    steps: int = 30,
) -> Floats:
    """Least squares over an L1 ball by steps towards the vertex of the noisily steepest descent (after Talwar, Thakurta
    and Zhang 2015), with ρ shared by all steps: an ε-DP choice is ε²/2-zCDP.

    Rows lie in [−1, 1]^d and labels in [−1, 1]; a residual is clipped to 1 + radius, so that a replaced record moves
    any coordinate of Σ (x·w − y)x by at most 2(1 + radius).
    """
    width = features.shape[1]
    choose = NoisyMax(loss=Pure(sqrt(2 * rho / steps)), sensitivity=2 * (1 + radius))
    weights = np.zeros(width)
    for number in range(steps):
        residual = np.clip(features @ weights - labels, -1 - radius, 1 + radius)
        gradient = features.T @ residual
        scores = np.concatenate([-gradient, gradient])
        best = int(choose.run(source, scores, permit=simulated_permit("vertex", number)))
        vertex = np.zeros(width)
        vertex[best % width] = radius if best < width else -radius
        weights += 2.0 / (number + 2) * (vertex - weights)
    return weights

"""The published vertical method with all columns in one place: what it releases, without a run."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.methods.vertical.published import Repair, coefficients, minimise_polynomial, printed_sensitivity
from comity.privacy import Laplace, NoiseSource, Pure, simulated_permit

Floats = NDArray[np.float64]


def functional_mechanism(
    features: Floats,
    labels: Floats,
    *,
    epsilon: float,
    source: NoiseSource,
    logistic: bool = True,
    repair: Repair = "floor",
) -> Floats:
    """The published result with all columns in one place: rows in [−1, 1]^d, labels 0/1 or in [−1, 1].

    `repair` is the option of the method; "none" is Algorithm 1 as printed.
    """
    polynomial = objective(features, labels, logistic=logistic)
    return solve_noisily(
        polynomial, features.shape[1], epsilon=epsilon, source=source, logistic=logistic, repair=repair
    )


def objective(features: Floats, labels: Floats, *, logistic: bool) -> Floats:
    """The coefficients of the objective, without noise."""
    moment = features.T @ (labels - 0.5 if logistic else labels)
    return coefficients(features.T @ features, moment, logistic=logistic)


def solve_noisily(
    polynomial: Floats, features: int, *, epsilon: float, source: NoiseSource, logistic: bool, repair: Repair
) -> Floats:
    """Lines 7, 12 and 16 of Algorithm 1, on coefficients that are known."""
    noise = Laplace(Pure(epsilon))
    sensitivity = float(printed_sensitivity(features, logistic=logistic))
    scale = noise.scale(sensitivity=sensitivity, shape=polynomial.shape)
    drawn = noise.draw(source, scale, polynomial.shape, permit=simulated_permit("polynomial"))
    deviation = sqrt(2) * scale.total * scale.grid
    return minimise_polynomial(polynomial + drawn * scale.grid, features, deviation, repair)

"""The published vertical method with all columns in one place: what it releases, without a run."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.methods.vertical.published import coefficients, minimise_polynomial, printed_sensitivity
from comity.privacy import Laplace, NoiseSource, Pure, simulated_permit

Floats = NDArray[np.float64]


def functional_mechanism(
    features: Floats, labels: Floats, *, epsilon: float, source: NoiseSource, logistic: bool = True
) -> Floats:
    """The published result with all columns in one place: rows in [−1, 1]^d, labels 0/1 or in [−1, 1]."""
    width = features.shape[1]
    polynomial = coefficients(
        features.T @ features, features.T @ (labels - 0.5 if logistic else labels), logistic=logistic
    )
    noise = Laplace(Pure(epsilon))
    sensitivity = float(printed_sensitivity(width, logistic=logistic))
    scale = noise.scale(sensitivity=sensitivity, shape=polynomial.shape)
    drawn = noise.draw(source, scale, polynomial.shape, permit=simulated_permit("polynomial"))
    return minimise_polynomial(polynomial + drawn * scale.grid, width, sqrt(2) * scale.total * scale.grid)

"""What a record adds to the owners' sums: its features, and their products with each other, as one vector.

Sensitivity  (proof.md, 1) For two records with features φ, ψ of length one at most and s = φ·ψ, the vector (φφᵀ, cφ)
             moves by ‖φφᵀ − ψψᵀ‖² + c²·|φ − ψ|² <= 2 − 2s² + c²·(2 − 2s) in square, at most 2·(1 + c²/2)², at
             s = −c²/2. One noise for both is a little less than a noise for each, and one sum instead of two.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.learn.record_sum import from_upper_triangle
from comity.methods.summary.features import LENGTH, FourierFeatures

Floats = NDArray[np.float64]

MEAN = 0.2
"""c: how much the mean counts beside the products. It needs far fewer digits. Settled on MNIST."""
# Rows at a time: a limit of memory.
_ROWS = 4096

MOVED = sqrt(2) * (1 + MEAN**2 / 2) * LENGTH**2
"""How far one record that is replaced moves the sum."""
REACH = sqrt(1 + MEAN**2) * LENGTH**2
"""How long one record's vector is at most."""


def size(dimensions: int) -> int:
    """How many numbers the vector has."""
    return dimensions * (dimensions + 1) // 2 + dimensions


def summed(rows: Floats, features: FourierFeatures) -> Floats:
    """Σ (φφᵀ, cφ) over rows, products as their upper triangle, off the diagonal times √2."""
    width = features.dimensions
    product, total = np.zeros((width, width)), np.zeros(width)
    for start in range(0, len(rows), _ROWS):
        some = features(rows[start : start + _ROWS])
        product += some.T @ some
        total += some.sum(axis=0)
    row, column = np.triu_indices(width)
    triangle = product[row, column] * np.where(row == column, 1.0, sqrt(2.0))
    return np.concatenate([triangle, MEAN * total])


def opened(vector: Floats, dimensions: int) -> tuple[Floats, Floats]:
    """Σφφᵀ and Σφ of such a sum."""
    products = len(vector) - dimensions
    return from_upper_triangle(vector[:products], dimensions), np.asarray(vector[products:] / MEAN, np.float64)

"""A sum over a party's records: how far one record moves it, and how large it can be.

The bound of a whole party's contribution says nothing about one record. Here each record's part is bounded before the
sum is formed (rows in the unit ball, residuals clipped), and the sum is then projected on a ball that holds every sum
of so many records. Projection on a convex set brings no two points further apart, so the sensitivity survives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.federation.bounds import Ball

Floats = NDArray[np.float64]

# Norms of rows and residuals are rounded; this is far more than d roundings of a double can add.
_ROUNDING = 1 + 1e-9
# Each of two neighbours' sums of n terms is off by n·2^-53 times the sum of the terms' norms, in whatever order.
_ADDING = 2.0**-52


@dataclass(frozen=True)
class RecordSum:
    """`moved`: L2 distance that one record makes; `radius`: of the ball that the sum of `records` is projected on."""

    neutral_within: ClassVar[bool] = False

    moved: float
    radius: float
    records: int = 1

    @property
    def l2(self) -> float:
        return self.moved * _ROUNDING + self.records * self.radius * _ADDING

    @property
    def l1(self) -> float:
        return float("inf")

    @property
    def limit(self) -> float:
        return self.radius * _ROUNDING

    def enforce(self, value: Floats, shape: tuple[int, ...]) -> Floats:
        return Ball(self.radius).enforce(value, shape)

    def neutral(self, shape: tuple[int, ...]) -> Floats:
        return np.zeros(shape)


def in_unit_ball(rows: Floats) -> Floats:
    """Rows (..., d), longer ones than 1 divided by their norm; a row that is not finite becomes zero."""
    rows = np.where(np.isfinite(rows).all(-1, keepdims=True), rows, 0.0)
    largest = np.maximum(np.abs(rows).max(-1, keepdims=True, initial=0.0), 1.0)
    norms = largest * np.sqrt(((rows / largest) ** 2).sum(-1, keepdims=True))
    return np.asarray(rows / np.maximum(norms, 1.0), np.float64)


def upper_triangle(rows: Floats) -> Floats:
    """Σ x xᵀ as the vector (..., d(d+1)/2) of its upper triangle, off the diagonal times √2.

    So the Euclidean norm of the vector is the Frobenius norm of the matrix: each entry below the diagonal repeats one
    above it, and noise of deviation s on the vector is s on the matrix's diagonal and s/√2 off it.
    """
    moment = rows.swapaxes(-1, -2) @ rows
    row, column = np.triu_indices(rows.shape[-1])
    return np.asarray(moment[..., row, column] * np.where(row == column, 1.0, np.sqrt(2.0)), np.float64)


def from_upper_triangle(vector: Floats, features: int) -> Floats:
    """The symmetric matrix of such a vector."""
    row, column = np.triu_indices(features)
    matrix = np.zeros((features, features))
    matrix[row, column] = vector / np.where(row == column, 1.0, np.sqrt(2.0))
    return np.asarray(matrix + np.triu(matrix, 1).T, np.float64)

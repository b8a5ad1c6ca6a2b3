"""What one record adds to a sum: a row inside the unit ball, or its second moment as a vector of the matrix's norm."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.data.row_products import in_blocks, row_norms

Floats = NDArray[np.float64]

# Squared norms differ by less than this if they are added in another order: a row is left unchanged only if it is
# inside in every order.
SURELY_INSIDE = 1 - 1e-9


def in_unit_ball(rows: Floats) -> Floats:
    """Divide rows (..., d) longer than 1 by their norm; a row that is not finite becomes zero.

    The result of a row does not depend on the other rows, to the last bit: rows that pass the shortcuts below would
    also pass one by one.
    """
    # Encoded rows lie inside. Both comparisons are false for NaN.
    if _peaks_are_inside(rows):
        return rows
    if (np.einsum("...i,...i->...", rows, rows) <= SURELY_INSIDE).all():
        return rows
    return in_blocks(_shorten, rows, rows.shape[-1])


def _shorten(rows: Floats) -> Floats:
    """`in_unit_ball` of rows (n, d), with norms added in an order that depends on d only."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = row_norms(rows)
        found = rows / np.maximum(norms, 1.0)[:, None]
    # True for NaN too.
    beyond = ~(norms < np.inf)
    if beyond.any():
        found[beyond] = _shorten_huge(rows[beyond])
    return np.asarray(found, np.float64)


def _shorten_huge(rows: Floats) -> Floats:
    """`in_unit_ball` of rows whose squares overflow: they are divided by their largest entry first."""
    rows = np.where(np.isfinite(rows).all(-1, keepdims=True), rows, 0.0)
    rows = rows / np.maximum(np.abs(rows).max(-1, keepdims=True, initial=0.0), 1.0)
    return np.asarray(rows / np.maximum(row_norms(rows), 1.0)[:, None], np.float64)


def _peaks_are_inside(rows: Floats) -> bool:
    """Whether the largest entry of all rows shows that every row is inside: quicker than norms.

    d times the square of that entry bounds every squared norm. Its computed value is too small by a factor of at least
    1 − 2·2⁻⁵³; a squared norm, its squares added in any order, is too large by a factor of at most 1 + (d + 3)·2⁻⁵³. So
    a row that passes has a norm of at most 1 in every order of adding.
    """
    if not rows.size:
        return True
    features = int(rows.shape[-1])
    peak = max(float(rows.max()), -float(rows.min()))
    return features * (peak * peak) <= 1 - (features + 8) * 2.0**-53


def upper_triangle(rows: Floats) -> Floats:
    """Σ x xᵀ as the vector (..., d(d+1)/2) of its upper triangle, off the diagonal times √2.

    So the Euclidean norm of the vector is the Frobenius norm of the matrix, whose entries below the diagonal repeat
    those above it. Noise of deviation s on the vector is s on the matrix's diagonal and s/√2 off it.
    """
    return upper_products(rows) * triangle_weights(rows.shape[-1])


def upper_products(rows: Floats) -> Floats:
    """The upper triangle (..., d(d+1)/2) of Σ x xᵀ without factors: exact for rows on the grid of exact sums."""
    moment = rows.swapaxes(-1, -2) @ rows
    row, column = np.triu_indices(rows.shape[-1])
    return np.asarray(moment[..., row, column], np.float64)


def triangle_weights(features: int) -> Floats:
    """1 on the diagonal of an upper triangle and √2 beside it."""
    row, column = np.triu_indices(features)
    return np.where(row == column, 1.0, np.sqrt(2.0))


def from_upper_triangle(vector: Floats, features: int) -> Floats:
    """The symmetric matrix whose `upper_triangle` is the vector."""
    row, column = np.triu_indices(features)
    matrix = np.zeros((features, features))
    matrix[row, column] = vector / triangle_weights(features)
    return np.asarray(matrix + np.triu(matrix, 1).T, np.float64)

"""Penalised multinomial regression with hard or soft labels, for one party or a stack of them.

    minimise  mean_i [ log sum_c exp(W_c·x_i) − sum_c y_ic·W_c·x_i ] + l2/2·|W|²      (|W| the Frobenius norm)

with y_i in the simplex. The gradient of the mean is (p_i − y_i) x_iᵀ, whose class rows sum to zero, so the
minimiser's rows do too. The solver works in an orthonormal basis of that subspace: C − 1 margins per
record, the same norm, and rows that sum to zero by construction. Noise for W then needs (C − 1)·d
dimensions only, as long as every y_i sums to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comity.errors import DataError
from comity.learn.fitting.fit import Fit, checked_settings, weighted_records
from comity.learn.fitting.newton import Floats, minimise
from comity.learn.voters.voting import one_hot

_SIMPLEX = 1e-9


def contrasts(classes: int) -> Floats:
    """Orthonormal rows (C − 1, C), each summing to zero: the first c classes against the next one."""
    rows = np.tril(np.ones((classes - 1, classes)))
    first = np.arange(1, classes)
    rows[first - 1, first] = -first
    return np.asarray(rows / np.sqrt(first * (first + 1.0))[:, None], np.float64)


@dataclass(frozen=True, eq=False)
class Softmax:
    """Cross-entropy of C classes whose scores are u·basis, u being the C − 1 margins of a record."""

    basis: Floats

    @property
    def width(self) -> int:
        return len(self.basis)

    def evaluate(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        scores = margins @ self.basis
        scores -= scores.max(-1, keepdims=True)
        grown = np.exp(scores)
        total = grown.sum(-1)
        loss = np.log(total) - (labels * scores).sum(-1)
        return loss, grown / total[:, :, None]

    def residual(self, probabilities: Floats, labels: Floats) -> Floats:
        return (probabilities - labels) @ self.basis.T

    def curvature(self, probabilities: Floats) -> Floats:
        mean = probabilities @ self.basis.T
        second = (probabilities[:, :, None, :] * self.basis) @ self.basis.T
        return np.asarray(second - mean[:, :, :, None] * mean[:, :, None, :], np.float64)

    def bend(self, probabilities: Floats, direction: Floats) -> Floats:
        """The variance of the scores' change under the probabilities."""
        change = direction @ self.basis
        mean = (probabilities * change).sum(-1, keepdims=True)
        return np.asarray((probabilities * (change - mean) ** 2).sum(-1), np.float64)


def softmax(
    x: Floats,
    y: ArrayLike,
    l2: float,
    *,
    classes: int | None = None,
    mask: NDArray[np.bool_] | None = None,
    tol: float = 1e-10,
    most: int = 100,
) -> Fit:
    """Weights (..., C, d) for features x (..., n, d); every leading index is a party.

    y is (..., n, C), rows in the simplex, or class indices (..., n) together with `classes`. `mask` (...,
    n) marks the real records of parties padded to one size: padding is not read, and a party without any
    record gets W = 0.
    """
    checked_settings(l2, tol, most)
    x, weight = weighted_records(x, mask)
    before, (n, d) = x.shape[:-2], x.shape[-2:]
    labels = _simplex_rows(y, classes, weight)
    loss = Softmax(contrasts(labels.shape[-1]))
    parties, count = prod(before), labels.shape[-1]
    stack = x.reshape(parties, n, d), labels.reshape(parties, n, count), weight.reshape(parties, n)
    point, norms = minimise(*stack, l2, loss, tol=tol, most=most)
    weights = (point @ loss.basis).swapaxes(-1, -2)
    return Fit(np.ascontiguousarray(weights).reshape(*before, count, d), norms.reshape(before), tol)


def _simplex_rows(y: ArrayLike, classes: int | None, weight: Floats) -> Floats:
    labels = np.asarray(y)
    real = weight > 0
    if classes is not None and labels.shape == weight.shape:
        labels = one_hot(np.where(real, labels, 0), classes)
    if labels.shape[:-1] != weight.shape or labels.shape[-1] < 2 or classes not in (None, labels.shape[-1]):
        raise DataError(
            f"labels must be class indices {weight.shape} with classes=C, or rows (..., C >= 2); "
            f"found shape {labels.shape} and classes={classes}"
        )
    # Padding gets a valid row of its own; its weight is zero.
    rows = np.where(real[..., None], labels, 1.0 / labels.shape[-1]).astype(np.float64)
    if not ((rows >= 0).all() and (np.abs(rows.sum(-1) - 1.0) <= _SIMPLEX).all()):
        raise DataError("every row of soft labels must lie in the simplex: entries >= 0 that sum to 1")
    # What is left of the tolerance would be a gradient outside the subspace in which the solver looks.
    return np.asarray(rows / rows.sum(-1, keepdims=True), np.float64)

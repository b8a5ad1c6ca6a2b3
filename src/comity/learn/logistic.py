"""Penalised logistic regression with hard or soft labels, for one party or a stack of them.

    minimise  mean_i [ y_i·l(w·x_i) + (1 − y_i)·l(−w·x_i) ] + l2/2·|w|²

with l(t) = log(1 + exp(−t)) and y_i in [0, 1] (the weighted risk of Hamm, Cao, Belkin 2016; with y_i in {0,
1} the usual one). There is no separate intercept: a constant feature is one, and is penalised like the
others, which is what the norm bound of the minimiser rests on.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comity.errors import DataError
from comity.learn.fit import Fit, checked_settings, weighted_records
from comity.learn.newton import Floats, minimise


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(u)) − y·u, one margin per record."""

    width: int = 1

    def evaluate(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        u = margins[:, :, 0]
        small = np.exp(-np.abs(u))
        loss = np.maximum(u, 0.0) - labels * u + np.log1p(small)
        return loss, np.where(u >= 0, 1.0, small) / (1.0 + small)

    def residual(self, probabilities: Floats, labels: Floats) -> Floats:
        return (probabilities - labels)[:, :, None]

    def curvature(self, probabilities: Floats) -> Floats:
        return (probabilities * (1.0 - probabilities))[:, :, None, None]

    def bend(self, probabilities: Floats, direction: Floats) -> Floats:
        return probabilities * (1.0 - probabilities) * direction[:, :, 0] ** 2


def logistic(
    x: Floats,
    y: ArrayLike,
    l2: float,
    *,
    mask: NDArray[np.bool_] | None = None,
    tol: float = 1e-10,
    most: int = 100,
) -> Fit:
    """Weights (..., d) for features x (..., n, d) and labels y (..., n) in [0, 1]; a leading index is a
    party.

    `mask` (..., n) marks the real records of parties padded to one size: padding is not read, and a party
    without any record gets w = 0. `Fit` says how the gradient norm is to be read; at |x| <= 1 and l2 >=
    1e-9 it is below 1e-10.
    """
    checked_settings(l2, tol, most)
    x, weight = weighted_records(x, mask)
    labels = np.asarray(y, np.float64)
    if labels.shape != x.shape[:-1]:
        raise DataError(f"labels must have one entry per record, shape {x.shape[:-1]}; found {labels.shape}")
    labels = np.where(weight > 0, labels, 0.0)
    if not ((labels >= 0) & (labels <= 1)).all():
        raise DataError("labels of a logistic fit must lie between 0 and 1: use class indices 0/1 or shares of votes")
    before, (n, d) = x.shape[:-2], x.shape[-2:]
    parties = prod(before)
    stack = x.reshape(parties, n, d), labels.reshape(parties, n), weight.reshape(parties, n)
    point, norms = minimise(*stack, l2, Logistic(), tol=tol, most=most)
    return Fit(point[:, :, 0].reshape(*before, d), norms.reshape(before), tol)

"""Penalised logistic regression with hard or soft labels, for one party or a stack of them.

    minimise  mean_i [ y_i·l(w·x_i) + (1 − y_i)·l(−w·x_i) ] + l2/2·|w|²

with l(t) = log(1 + exp(−t)) and y_i in [0, 1] (the weighted risk of Hamm, Cao, Belkin 2016; with y_i in {0,
1} the usual one). There is no separate intercept: a constant feature is one, and is penalised like the
others, which is what the norm bound of the minimiser rests on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comity.learn.fitting.fit import Fit
from comity.learn.fitting.newton import Floats
from comity.learn.fitting.one_margin import fitted


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
    return fitted(
        x,
        y,
        l2,
        Logistic(),
        mask=mask,
        tol=tol,
        most=most,
        low=0.0,
        high=1.0,
        wrong="labels of a logistic fit must lie between 0 and 1: use class indices 0/1 or shares of votes",
    )

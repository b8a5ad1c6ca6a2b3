"""Penalised support-vector machine with a smoothed hinge, for one party or a stack of them.

    minimise  mean_i h(s_i·w·x_i) + l2/2·|w|²,     s_i = 2·y_i − 1,

    h(m) = 1/2 − m for m < 0,   (1 − m)²/2 for 0 <= m <= 1,   0 for m > 1      (Rennie 2005)

The slope of h lies in [−1, 0] and its curvature in [0, 1]: the plain hinge has no second derivative.
There is no separate intercept: a constant feature is one, and is penalised like the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comity.learn.fitting.fit import Fit
from comity.learn.fitting.newton import Floats
from comity.learn.fitting.one_margin import fitted


@dataclass(frozen=True)
class SmoothedHinge:
    """h of the signed margin; labels are 0 and 1. What stands for the probabilities is the signed margin itself."""

    width: int = 1

    def evaluate(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        signed = (2.0 * labels - 1.0) * margins[:, :, 0]
        short = np.clip(1.0 - signed, 0.0, 1.0)
        # Below zero the line 1/2 − m continues the parabola: short is 1 there.
        return short * short / 2 - np.minimum(signed, 0.0), signed

    def residual(self, probabilities: Floats, labels: Floats) -> Floats:
        return (-(2.0 * labels - 1.0) * np.clip(1.0 - probabilities, 0.0, 1.0))[:, :, None]

    def curvature(self, probabilities: Floats) -> Floats:
        return ((probabilities > 0) & (probabilities < 1)).astype(np.float64)[:, :, None, None]

    def bend(self, probabilities: Floats, direction: Floats) -> Floats:
        return np.asarray(self.curvature(probabilities)[:, :, 0, 0] * direction[:, :, 0] ** 2, np.float64)


def smoothed_hinge(
    x: Floats,
    y: ArrayLike,
    l2: float,
    *,
    mask: NDArray[np.bool_] | None = None,
    tol: float = 1e-10,
    most: int = 200,
) -> Fit:
    """Weights (..., d) for features x (..., n, d) and labels y (..., n), 0 or 1; a leading index is a party."""
    return fitted(
        x,
        y,
        l2,
        SmoothedHinge(),
        mask=mask,
        tol=tol,
        most=most,
        low=0.0,
        high=1.0,
        whole=True,
        wrong="labels of a support-vector machine must be 0 or 1: use class indices",
    )

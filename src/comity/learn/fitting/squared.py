"""Ridge regression of a bounded target, for one party or a stack of them.

    minimise  mean_i q(w·x_i − y_i) + l2/2·|w|²

with y_i in [−1, 1] and q(e) = e²/2 for |e| <= 1, |e| − 1/2 beyond (Huber 1964). Predictions and targets share the range
[−1, 1], so that a sound fit is the least-squares one; but no record can pull harder than 1, whatever the weights, and a
record's pull is what a private fit pays for. There is no separate intercept: a constant feature is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comity.learn.fitting.fit import Fit
from comity.learn.fitting.newton import Floats
from comity.learn.fitting.one_margin import fitted


@dataclass(frozen=True)
class Huber:
    """q of the distance; what stands for the probabilities is the distance itself."""

    width: int = 1

    def evaluate(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        distance = margins[:, :, 0] - labels
        near = np.clip(distance, -1.0, 1.0)
        return near * near / 2 + np.abs(distance - near), distance

    def residual(self, probabilities: Floats, labels: Floats) -> Floats:
        return np.clip(probabilities, -1.0, 1.0)[:, :, None]

    def curvature(self, probabilities: Floats) -> Floats:
        return (np.abs(probabilities) < 1).astype(np.float64)[:, :, None, None]

    def bend(self, probabilities: Floats, direction: Floats) -> Floats:
        return np.asarray(self.curvature(probabilities)[:, :, 0, 0] * direction[:, :, 0] ** 2, np.float64)


def ridge(
    x: Floats,
    y: ArrayLike,
    l2: float,
    *,
    mask: NDArray[np.bool_] | None = None,
    tol: float = 1e-10,
    most: int = 200,
) -> Fit:
    """Weights (..., d) for features x (..., n, d) and targets y (..., n) in [−1, 1]; a leading index is a party."""
    return fitted(
        x,
        y,
        l2,
        Huber(),
        mask=mask,
        tol=tol,
        most=most,
        low=-1.0,
        high=1.0,
        name="targets",
        wrong="targets of a regression must lie between -1 and 1: scale them by the schema's bounds",
    )

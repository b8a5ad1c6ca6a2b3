"""Private predictors to compare with: what owners would share instead of records, and how their predictors decide.

    classes    each owner's fit by objective perturbation (Chaudhuri, Monteleoni, Sarwate 2011); majority vote
    numbers    each owner's fit by the functional mechanism (Zhang et al. 2012); the mean of the committee

Against whoever sees the predictors, for a record that is replaced among a public number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from comity.errors import DataError
from comity.learn import Logistic, SmoothedHinge
from comity.privacy import NoiseSource, Permit, Pure, Spherical
from experiments.papers.vertical.functional_mechanism import functional_mechanism

Floats = NDArray[np.float64]

_CURVATURE = {"logistic": 0.25, "svm": 1.0}
_LENGTH = 1 + 1e-9


def perturbed_budget(epsilon: float, records: int, l2: float, curvature: float) -> tuple[float, float]:
    """ε' that is left for the noise, and the penalty.

    The density of the noise behind a minimiser changes with the data through a determinant too, which costs
    ln(1 + 2c/(nλ) + c²/(nλ)²) of ε; where that leaves nothing, the penalty grows until half of ε is left.
    """
    left = epsilon - log(1 + 2 * curvature / (records * l2) + (curvature / (records * l2)) ** 2)
    if left > 0:
        return left, l2
    return epsilon / 2, max(l2, curvature / (records * (exp(epsilon / 4) - 1)))


def objective_perturbation(
    rows: Floats,
    labels: NDArray[np.int64] | Floats,
    *,
    model: str = "logistic",
    epsilon: float,
    l2: float,
    source: NoiseSource,
    permit: Permit,
) -> Floats:
    """Weights (d,) that minimise the penalised mean loss with a random linear term b·w/n, |b| ~ Gamma(d, 2/ε').

    Rows lie in the unit ball. Replacing a record moves the gradient of n times the loss by at most 2, so that b needs
    the density exp(−|b|·ε'/2): spherical noise for a sensitivity of 2. The proof is for the exact minimiser; here the
    gradient is brought below 1e-9.
    """
    count, width = rows.shape
    if not count or float(np.linalg.norm(rows, axis=1).max()) > _LENGTH:
        raise DataError("objective perturbation: expected records in the unit ball, found none or longer ones")
    left, penalty = perturbed_budget(epsilon, count, l2, _CURVATURE[model])
    noise = Spherical(Pure(left))
    scale = noise.scale(sensitivity=2.0, shape=(width,))
    pull = noise.draw(source, scale, (width,), permit=permit) * scale.grid / count
    loss = SmoothedHinge() if model == "svm" else Logistic()
    wanted = np.asarray(labels, np.float64)[None]

    def valued(weights: Floats) -> tuple[float, Floats]:
        losses, shares = loss.evaluate((rows @ weights)[None, :, None], wanted)
        slope = loss.residual(shares, wanted)[0, :, 0]
        value = losses.mean() + penalty / 2 * weights @ weights + pull @ weights
        return float(value), np.asarray(rows.T @ slope / count + penalty * weights + pull)

    options = {"maxiter": 2000, "ftol": 0.0, "gtol": 1e-9}
    return np.asarray(minimize(valued, np.zeros(width), jac=True, method="L-BFGS-B", options=options).x, np.float64)


def functional(rows: Floats, targets: Floats, *, epsilon: float, source: NoiseSource) -> Floats:
    """Weights (d,) of a least-squares fit whose polynomial was noised; rows in [−1, 1]^d, targets in [−1, 1]."""
    return functional_mechanism(rows, targets, epsilon=epsilon, source=source, logistic=False)


def by_majority(predictors: Sequence[Floats], rows: Floats) -> NDArray[np.int64]:
    """The class, 0 or 1, that most predictors give each row; 0 where they are even."""
    votes = (rows @ np.stack(predictors).T > 0).sum(axis=1)
    return np.asarray(2 * votes > len(predictors), np.int64)


def by_committee(predictors: Sequence[Floats], rows: Floats) -> Floats:
    """The mean of the predictions, each within the target's range [−1, 1]."""
    return np.asarray(np.clip(rows @ np.stack(predictors).T, -1.0, 1.0).mean(axis=1), np.float64)

"""DP-Pred, the private predictors that the paper compares with: what agents share instead of records.

    classes    each agent's fit by objective perturbation (Chaudhuri, Monteleoni 2009); majority vote
    numbers    each agent's fit by the functional mechanism (Zhang et al. 2012); the mean of the committee

Both are about a record that is replaced among a public number of them, against everyone who sees the predictors.
Section 5 of the paper prints the noise of objective perturbation with the scale of another mechanism
(`../proof.md`, 7): `noise="printed"` draws that, and `printed_loss` says what it costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from comity.errors import DataError
from comity.learn.fits import Logistic, SmoothedHinge
from comity.privacy import Laplace, NoiseSource, Permit, Pure, Spherical

Floats = NDArray[np.float64]
Noise = Literal["printed", "corrected"]

CURVATURE = {"logistic": 0.25, "svm": 1.0}
"""The largest second derivative of each loss. That of the hinge is unbounded, so its smoothed form is taken."""
_LENGTH = 1 + 1e-9


def perturbed_budget(epsilon: float, records: int, l2: float, curvature: float) -> tuple[float, float]:
    """ε' that is left for the noise, and the penalty.

    The density of the noise behind a minimiser changes with the data through a determinant too, which costs
    ln(1 + 2c/(nλ) + c²/(nλ)²) of ε; where that leaves nothing, the penalty grows until half of ε is left.
    """
    left = epsilon - _determinant(records * l2, curvature)
    if left > 0:
        return left, l2
    return epsilon / 2, max(l2, curvature / (records * (exp(epsilon / 4) - 1)))


def printed_loss(epsilon: float, records: int, l2: float, curvature: float) -> float:
    """What the printed noise loses at most: nλε for the noise of scale 2/(nλε), and the determinant."""
    return records * l2 * epsilon + _determinant(2 * records * l2, curvature)


def _determinant(strength: float, curvature: float) -> float:
    return 2 * log(1 + curvature / strength)


def objective_perturbation(
    rows: Floats,
    labels: NDArray[np.int64] | Floats,
    *,
    model: str = "logistic",
    epsilon: float,
    l2: float,
    source: NoiseSource,
    permit: Permit,
    noise: Noise = "corrected",
) -> Floats:
    """Weights (d,) that minimise the penalised mean loss with a random linear term b·w/n.

        corrected    |b| ~ Gamma(d, 2/ε'), penalty λ/2·|w|²           ε-DP
        printed      |b| ~ Gamma(d, 2/(nλε)), penalty λ|w|²           `printed_loss`

    Rows lie in the unit ball. Replacing a record moves the gradient of n times the loss by at most 2, so b needs the
    density exp(−|b|·ε'/2): spherical noise for a sensitivity of 2. The proof is for the exact minimiser; here the
    gradient is brought below 1e-9.
    """
    count, width = rows.shape
    if not count or float(np.linalg.norm(rows, axis=1).max()) > _LENGTH:
        raise DataError("objective perturbation: expected records in the unit ball, found none or longer ones")
    left, penalty = perturbed_budget(epsilon, count, l2, CURVATURE[model])
    if noise == "printed":
        left, penalty = count * l2 * epsilon, 2 * l2
    spherical = Spherical(Pure(left))
    scale = spherical.scale(sensitivity=2.0, shape=(width,))
    pull = spherical.draw(source, scale, (width,), permit=permit) * scale.grid / count
    loss = SmoothedHinge() if model == "svm" else Logistic()
    wanted = np.asarray(labels, np.float64)[None]

    def valued(weights: Floats) -> tuple[float, Floats]:
        losses, shares = loss.evaluate((rows @ weights)[None, :, None], wanted)
        slope = loss.residual(shares, wanted)[0, :, 0]
        value = losses.mean() + penalty / 2 * weights @ weights + pull @ weights
        return float(value), np.asarray(rows.T @ slope / count + penalty * weights + pull)

    options = {"maxiter": 2000, "ftol": 0.0, "gtol": 1e-9}
    return np.asarray(minimize(valued, np.zeros(width), jac=True, method="L-BFGS-B", options=options).x, np.float64)


def functional_mechanism(
    rows: Floats, targets: Floats, *, epsilon: float, source: NoiseSource, permit: Permit
) -> Floats:
    """Weights (d,) of a least-squares fit whose polynomial was noised; rows in [−1, 1]^d, targets in [−1, 1].

    Σ (w·x − y)² has the coefficients Σ x xᵀ and −2 Σ y x. As printed, each gets Laplace noise for a sensitivity of
    2(1 + 2d + d²); the paper writes d + 1 where d counts the constant here. A replaced record moves them by at most
    2(2d + d²) in L1. As Zhang et al. suggest, four deviations of the noise are added to the diagonal, and directions
    whose curvature is not positive then are left out.
    """
    width = rows.shape[1]
    polynomial = np.concatenate([(rows.T @ rows).reshape(-1), -2 * rows.T @ targets])
    noise = Laplace(Pure(epsilon))
    scale = noise.scale(sensitivity=2.0 * (1 + 2 * width + width**2), shape=polynomial.shape)
    noisy = polynomial + noise.draw(source, scale, polynomial.shape, permit=permit) * scale.grid
    second = noisy[: width**2].reshape(width, width)
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    values = values + 4 * sqrt(2) * scale.total * scale.grid
    kept = values > 0
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    return np.asarray(-inverse @ noisy[width**2 :] / 2, np.float64)


def by_majority(predictors: Sequence[Floats], rows: Floats) -> NDArray[np.int64]:
    """The class, 0 or 1, that most predictors give each row; 0 where they are even."""
    votes = (rows @ np.stack(predictors).T > 0).sum(axis=1)
    return np.asarray(2 * votes > len(predictors), np.int64)


def by_committee(predictors: Sequence[Floats], rows: Floats) -> Floats:
    """The mean of the predictions, each within the target's range [−1, 1]."""
    return np.asarray(np.clip(rows @ np.stack(predictors).T, -1.0, 1.0).mean(axis=1), np.float64)

"""Minimisers of noisy quadratics: positive part, ridge of the size of the noise, and errors that account for both."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CLEAR = 2.0
"""Noise moves an eigenvalue by its norm at most: one that is seen at twice the norm is at least half of that."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Weights, and the matrix that turned the moment into them; `ridge` is what was added to every eigenvalue."""

    weights: Floats
    inverse: Floats
    ridge: float


def spectral_norm(variances: Floats) -> float:
    """About the norm of a symmetric matrix of independent noise with these variances: twice the largest row's
    deviation, which is its limit for equal variances (Wigner) and a bound up to lower order otherwise."""
    return 2.0 * sqrt(float(variances.sum(axis=1).max()))


def solve(gram: Floats, moment: Floats, ridge: float) -> Solution:
    """(G⁺ + ridge)⁻¹ m, with G⁺ the positive part of G: noise can't turn the minimum into a maximum."""
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    kept = np.maximum(values, 0.0) + max(ridge, 1e-12 * float(np.abs(values).max()))
    inverse = np.asarray((vectors / kept) @ vectors.T, np.float64)
    return Solution(np.asarray(inverse @ moment, np.float64), inverse, ridge)


def needed_ridge(gram: Floats, norm: float) -> float:
    """Half the noise's norm, unless the smallest eigenvalue is so far above the noise that none is needed.

    In the spirit of Wang (2018, AdaSSP); the eigenvalue is read off the noisy matrix, so that it costs nothing. Without
    a ridge the solution has no bias, and intervals hold what they promise.
    """
    smallest = float(np.linalg.eigvalsh((gram + gram.T) / 2)[0])
    return 0.0 if smallest > _CLEAR * norm else norm / 2


def covariance(
    solution: Solution, variances: Floats, moment_variances: Floats, gram: Floats, residual: float
) -> Floats:
    """Of the weights, to first order: inverse · (residual·G + Cov[e − E w]) · inverse.

    E is the noise of the Gram matrix, symmetric, its entries independent with `variances`; e that of the moment. So
    Cov[E w]_ii = Σ_k V_ik w_k², and for i ≠ j only the shared entry E_ij couples them: V_ij w_i w_j.
    """
    weights = solution.weights
    noise = variances * np.outer(weights, weights)
    np.fill_diagonal(noise, variances @ weights**2)
    middle = residual * gram + noise + np.diag(moment_variances)
    return np.asarray(solution.inverse @ middle @ solution.inverse, np.float64)

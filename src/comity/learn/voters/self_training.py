"""Self-training on public rows: linear discriminants of guessed labels, guessed again from their own posteriors.

All of it is post-processing: it reads public rows and a first guess at their labels, made from a noisy release.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax as normalise

from comity.errors import DataError

Floats = NDArray[np.float64]

# Both were settled while looking at HAR and MNIST. Added to the weight of each class, so that a class that no row was
# guessed to be still has a centre.
_PRIOR_COUNT = 5.0
# Directions in which classes hardly vary are given at least this share of the largest within-class variance.
_FLOOR = 0.02
# Each move lowers the divergence of mean posteriors from the shares. A limit of work, not tuned on data.
_MOVES = 200
_SETTLED = 1e-6


def discriminant(rows: Floats, shares: Floats) -> Floats:
    """Linear discriminant analysis with one covariance for all classes and soft labels: weights (C, D + 1).

    `shares` (N, C) are each row's probabilities of the classes. The last column is the intercept.
    """
    if rows.ndim != 2 or shares.shape[:1] != rows.shape[:1] or shares.ndim != 2:
        raise DataError(f"a discriminant needs rows (N, D) and shares (N, C), found {rows.shape} and {shares.shape}")
    counts = shares.sum(axis=0) + _PRIOR_COUNT
    centre = rows.mean(axis=0)
    centres = (shares.T @ rows + _PRIOR_COUNT * centre) / counts[:, None]
    second = rows.T @ rows - (shares.sum(axis=0)[:, None] * centres).T @ centres
    # With soft labels the cross terms do not cancel where the centres were pulled towards the middle.
    pulled = (shares.T @ rows - shares.sum(axis=0)[:, None] * centres).T @ centres
    within = (second - pulled - pulled.T) / len(rows)
    values, axes = np.linalg.eigh(within)
    precision = (axes / np.maximum(values, _FLOOR * values[-1])) @ axes.T
    weights = centres @ precision
    intercept = np.log(counts / counts.sum()) - 0.5 * (weights * centres).sum(axis=1)
    return np.concatenate([weights, intercept[:, None]], axis=1)


def posteriors(weights: Floats, rows: Floats) -> Floats:
    """Probabilities (N, C) of the classes under weights (C, D + 1)."""
    return np.asarray(normalise(rows @ weights[:, :-1].T + weights[:, -1], axis=1), np.float64)


def self_trained(rows: Floats, shares: Floats, rounds: int) -> Floats:
    """The last of `rounds` discriminants, each from the posteriors of the one before: weights (C, D + 1)."""
    if rounds < 1:
        raise DataError(f"self-training takes at least one round, found {rounds}")
    weights = discriminant(rows, shares)
    for _ in range(rounds - 1):
        weights = discriminant(rows, posteriors(weights, rows))
    return weights


def with_shares(weights: Floats, rows: Floats, shares: Floats) -> Floats:
    """Weights whose intercepts are moved until their mean posteriors over the rows are these positive shares (C,)."""
    if shares.shape != weights.shape[:1] or not (shares > 0).all():
        raise DataError(f"shares must be {len(weights)} positive numbers, found {shares}")
    moved = weights.copy()
    for _ in range(_MOVES):
        step = np.log(shares / shares.sum() / posteriors(moved, rows).mean(axis=0))
        moved[:, -1] += step
        if np.abs(step).max() < _SETTLED:
            break
    return moved

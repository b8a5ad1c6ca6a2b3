"""Models of public rows from a noisy release: the softmax model of noisy moments, self-training, and clusters.

All of it is post-processing. It reads public rows and what was released, and costs nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.errors import DataError
from comity.learn.fits import contrasts
from comity.special import softmax as normalise

Floats = NDArray[np.float64]

# This and the next were chosen while looking at HAR and MNIST. Added to the count of each class: a class without rows
# still has a centre.
_PRIOR_COUNT = 5.0
# Least within-class variance of a direction, as a share of the largest.
_FLOOR = 0.02
# A limit of work, not tuned on data.
_MAX_MOVES = 200
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
    # With soft labels the cross terms of shrunk centres do not cancel.
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


def self_train(rows: Floats, shares: Floats, rounds: int) -> Floats:
    """The last of `rounds` discriminants, each fitted to the posteriors of the one before: weights (C, D + 1)."""
    if rounds < 1:
        raise DataError(f"self-training takes at least one round, found {rounds}")
    weights = discriminant(rows, shares)
    for _ in range(rounds - 1):
        weights = discriminant(rows, posteriors(weights, rows))
    return weights


def match_shares(weights: Floats, rows: Floats, shares: Floats) -> Floats:
    """Move the intercepts until the mean posteriors over the rows are these positive shares (C,)."""
    if shares.shape != weights.shape[:1] or not (shares > 0).all():
        raise DataError(f"shares must be {len(weights)} positive numbers, found {shares}")
    moved = weights.copy()
    for _ in range(_MAX_MOVES):
        step = np.log(shares / shares.sum() / posteriors(moved, rows).mean(axis=0))
        moved[:, -1] += step
        if np.abs(step).max() < _SETTLED:
            break
    return moved


def softmax_from_moments(
    rows: Floats, moments: Floats, l2: float, *, weight: Floats | None = None, max_iterations: int = 200
) -> Floats:
    """Weights (C, D) of a softmax model for public rows z (N, D) and moments (C − 1, D): A in the basis `contrasts`.

        minimise  mean_i log Σ_c exp(W_c·z_i) − <W, A> + l2/2·|W|²,      A = mean_i (α_i − 1/C) z_iᵀ

    over W whose rows sum to zero. Soft labels α_i enter through A alone, so noise on A is all that private labels need.
    A noisy A may be one that no labels have; the penalty keeps the minimiser finite. `weight` (N,) weights the rows in
    both means. The solver's precision costs no privacy: its input is released.
    """
    from scipy.optimize import minimize

    if rows.ndim != 2 or moments.ndim != 2 or moments.shape[1] != rows.shape[1] or not l2 > 0:
        raise DataError(f"moments must be (C - 1, {rows.shape[-1]}) and l2 above 0, found {moments.shape} and {l2}")
    basis = contrasts(len(moments) + 1)
    part = np.full(len(rows), 1 / len(rows)) if weight is None else weight / weight.sum()

    def risk(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(moments.shape)
        scores = rows @ weights.T @ basis
        top = scores.max(axis=1, keepdims=True)
        grown = np.exp(scores - top)
        total = grown.sum(axis=1, keepdims=True)
        value = (
            float(part @ (np.log(total) + top)[:, 0]) - float((weights * moments).sum()) + l2 / 2 * float(flat @ flat)
        )
        expected = basis @ ((grown * (part[:, None] / total)).T @ rows)
        return value, (expected - moments + l2 * weights).ravel()

    found = minimize(
        risk, np.zeros(moments.size), jac=True, method="L-BFGS-B", options={"maxiter": max_iterations, "gtol": 1e-5}
    )
    return np.asarray(basis.T @ found.x.reshape(moments.shape), np.float64)


# Limits of work, not tuned on data.
_STARTS = 10
_MAX_ROUNDS = 100


def find_clusters(rows: Floats, k: int, stream: Stream) -> Floats:
    """Centres (k, D) by k-means: the best of ten runs, with the starts of Arthur and Vassilvitskii (2007)."""
    if rows.ndim != 2 or not 1 <= k <= len(rows):
        raise DataError(f"{k} clusters need at least as many public rows, found shape {rows.shape}; supply more rows")
    found = [_run_lloyd(rows, _choose_starts(rows, k, stream)) for _ in range(_STARTS)]
    return min(found, key=lambda centres: float(_distances(rows, centres).min(axis=-1).sum()))


def nearest_centre(rows: Floats, centres: Floats) -> NDArray[np.int64]:
    """Index (...,) of the centre next to each row (..., D), the first of equally near ones."""
    return np.asarray(_distances(rows, centres).argmin(axis=-1), np.int64)


def _distances(rows: Floats, centres: Floats) -> Floats:
    """Squared distances (..., k)."""
    squares = (rows**2).sum(axis=-1)[..., None] + (centres**2).sum(axis=-1)
    return np.asarray(np.maximum(squares - 2 * rows @ centres.T, 0.0), np.float64)


def _choose_starts(rows: Floats, k: int, stream: Stream) -> Floats:
    centres = [rows[int(stream.integers(len(rows)))]]
    while len(centres) < k:
        far = _distances(rows, np.stack(centres)).min(axis=-1)
        chance = far if far.sum() > 0 else np.ones(len(rows))
        centres.append(rows[int(stream.choice(chance))])
    return np.stack(centres)


def _run_lloyd(rows: Floats, centres: Floats) -> Floats:
    member = nearest_centre(rows, centres)
    for _ in range(_MAX_ROUNDS):
        sizes = np.bincount(member, minlength=len(centres))
        sums = np.stack([np.bincount(member, column, len(centres)) for column in rows.T], axis=1)
        # A centre without rows stays.
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
        moved = nearest_centre(rows, centres)
        if np.array_equal(moved, member):
            break
        member = moved
    return centres

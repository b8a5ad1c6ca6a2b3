"""Penalised fits of losses with one margin per record, for one party or a stack of them."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comity.errors import DataError
from comity.learn.fitting.fit import Fit, checked_settings, weighted_records
from comity.learn.fitting.newton import Floats, Likelihood, minimise


def fitted(
    x: Floats,
    y: ArrayLike,
    l2: float,
    of: Likelihood,
    *,
    mask: NDArray[np.bool_] | None,
    tol: float,
    most: int,
    low: float,
    high: float,
    whole: bool = False,
    name: str = "labels",
    wrong: str,
) -> Fit:
    """Weights (..., d) for features x (..., n, d) and targets y (..., n) in [low, high], or at their ends if `whole`;
    `wrong` says what to do about others."""
    checked_settings(l2, tol, most)
    x, weight = weighted_records(x, mask)
    targets = np.asarray(y, np.float64)
    if targets.shape != x.shape[:-1]:
        raise DataError(f"{name} must have one entry per record, shape {x.shape[:-1]}; found {targets.shape}")
    # Padding is not read.
    targets = np.where(weight > 0, targets, 0.0)
    proper = (targets == low) | (targets == high) if whole else (targets >= low) & (targets <= high)
    if not proper.all():
        raise DataError(wrong)
    before, (n, d) = x.shape[:-2], x.shape[-2:]
    parties = prod(before)
    stack = x.reshape(parties, n, d), targets.reshape(parties, n), weight.reshape(parties, n)
    point, norms = minimise(*stack, l2, of, tol=tol, most=most)
    return Fit(point[:, :, 0].reshape(*before, d), norms.reshape(before), tol)

"""Votes of linear classifiers on public records."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comity.errors import DataError
from comity.learn.fitting.newton import Floats


def one_hot(labels: ArrayLike, classes: int) -> Floats:
    """Rows (..., classes) with a single 1 at the class index: corners of the simplex, sqrt(2) apart."""
    index = np.asarray(labels)
    if not np.issubdtype(index.dtype, np.integer):
        if not (np.isfinite(index).all() and np.array_equal(np.round(index), index)):
            raise DataError("class indices must be whole numbers, found something else")
        index = index.astype(np.int64)
    if index.size and not (index.min() >= 0 and index.max() < classes):
        raise DataError(f"class indices must lie in 0 … {classes - 1}, found {index.min()} … {index.max()}")
    return np.asarray(index[..., None] == np.arange(classes), np.float64)


# Scores count as equal within this share of |w||x|: more than the rounding of any sum of products, in whatever order a
# library adds them up, and less than what any two records differ by in earnest.
_EQUAL = 2.0**-40


def hard_votes(weights: Floats, x: Floats, *, multiclass: bool = False) -> NDArray[np.int64]:
    """Class indices (..., N) that each party's classifier gives to the records x (N, d).

    Weights are (..., d), a record being of class 1 where w·x > 0, or with `multiclass` (..., C, d), the
    largest score winning and the first of equal ones. Scores that are equal but for the rounding of their sums
    are equal, so that a tie is decided by this rule and not by how many parties are computed at once. A party
    that has no classifier (w = 0) abstains in the protocol, not here. The whole of (..., C, N) is held at once:
    whoever has many parties calls this in blocks.
    """
    axes = 2 if multiclass else 1
    if weights.ndim < axes or x.ndim != 2 or weights.shape[-1] != x.shape[1]:
        raise DataError(
            f"weights (..., {'C, ' if multiclass else ''}d) and records (N, d) must have equally many "
            f"features, found {weights.shape} and {x.shape}"
        )
    scores = (weights.reshape(-1, x.shape[1]) @ x.T).reshape(*weights.shape[:-1], len(x))
    slack = _EQUAL * np.linalg.norm(weights, axis=-1)[..., None] * np.linalg.norm(x, axis=1)
    if multiclass:
        best = scores.max(-2, keepdims=True) - slack.max(-2, keepdims=True)
        return np.asarray((scores >= best).argmax(-2), np.int64)
    return np.asarray(scores > slack, np.int64)

"""The built-in local classifier: penalised logistic or softmax regression, for one party or a stack of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.learn.fitting.logistic import logistic
from comity.learn.fitting.softmax import softmax
from comity.learn.voters.voting import hard_votes, one_hot

Floats = NDArray[np.float64]

# Votes need no exact minimiser: nothing that leaves is scaled for one.
_TOLERANCE = 1e-6


def linear_weights(
    features: Floats, labels: NDArray[np.int64], filled: NDArray[np.bool_], classes: int, l2: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Weights (..., 1 or C, d), and whether each party has any: records, and a fit that converged."""
    if classes == 2:
        fit = logistic(features, labels.astype(np.float64), l2, mask=filled, tol=_TOLERANCE)
        weights = fit.weights[..., None, :]
    else:
        fit = softmax(features, np.where(filled, labels, 0), l2, classes=classes, mask=filled, tol=_TOLERANCE)
        weights = fit.weights
    return weights, np.asarray(filled.any(axis=-1) & fit.converged, np.bool_)


def linear_votes(
    features: Floats,
    labels: NDArray[np.int64],
    filled: NDArray[np.bool_],
    auxiliary: Floats,
    classes: int,
    l2: float,
) -> Floats:
    """Whole votes (..., N, C). A party without records, or whose fit failed, votes 1/C: absence would be a release."""
    weights, usable = linear_weights(features, labels, filled, classes, l2)
    several = classes > 2
    chosen = hard_votes(weights if several else weights[..., 0, :], auxiliary, multiclass=several)
    return np.where(usable[..., None, None], one_hot(chosen, classes), 1.0 / classes)

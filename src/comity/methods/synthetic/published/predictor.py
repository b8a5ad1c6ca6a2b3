"""What an owner learns from shared records and its own: a linear model by penalised empirical risk. It stays with it.

Rows have the constant as their last entry. For fitting they are divided by the longest of them, so that they lie in the
unit ball, where the solvers are at home; weights and penalty are for rows as they are.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from comity.data import Bounded, Classes, Encoding, Target
from comity.errors import StudyError
from comity.learn.fits import hard_votes, logistic, ridge, smoothed_hinge, softmax

if TYPE_CHECKING:
    from comity.learn.classifiers import LinearClassifier
    from comity.learn.regressor import LinearRegressor

Floats = NDArray[np.float64]

Learner = Literal["logistic", "svm", "linear"]

TOLERANCE = 1e-7
"""Gradient norm at which a fit stops: it is released to nobody, and no sensitivity rests on it."""


def checked_learner(learner: str | None, target: Target) -> Learner:
    """The kind of model for this target: what was asked for, or logistic for classes and linear for a number."""
    found = learner or ("linear" if isinstance(target, Bounded) else "logistic")
    if found not in get_args(Learner):
        raise StudyError(
            f"synthetic.learner must be one of {', '.join(get_args(Learner))}, found {found!r}", key="synthetic.learner"
        )
    if (found == "linear") != isinstance(target, Bounded):
        kind = "a number" if isinstance(target, Bounded) else "classes"
        raise StudyError(
            f"synthetic.learner = {found} does not learn {kind}; leave it out, or change [target]",
            key="synthetic.learner",
        )
    if found == "svm" and isinstance(target, Classes) and len(target.values) != 2:
        raise StudyError(
            f"synthetic.learner = svm learns two classes, found {len(target.values)}; use logistic",
            key="synthetic.learner",
        )
    return cast(Learner, found)


def scaled(target: Target, labels: NDArray[np.int64] | Floats) -> Floats:
    """Class indices as they are; numbers on [−1, 1] by the target's bounds."""
    values = np.asarray(labels, np.float64)
    if not isinstance(target, Bounded):
        return values
    return np.clip(2 * (values - target.low) / (target.high - target.low) - 1, -1.0, 1.0)


def trained(learner: Learner, target: Target, rows: Floats, labels: NDArray[np.int64] | Floats, l2: float) -> Floats:
    """Weights (1, d), or (C, d) for more than two classes; zero where there is nothing to learn from."""
    classes = len(target.values) if isinstance(target, Classes) else 0
    if not len(rows):
        return np.zeros((classes if classes > 2 else 1, rows.shape[1]))
    length = max(1.0, sqrt(float((rows * rows).sum(axis=1).max())))
    inside, wanted, penalty = rows / length, scaled(target, labels), l2 / length**2
    if learner == "linear":
        fit = ridge(inside, wanted, penalty, tol=TOLERANCE)
    elif learner == "svm":
        fit = smoothed_hinge(inside, wanted, penalty, tol=TOLERANCE)
    elif classes == 2:
        fit = logistic(inside, wanted, penalty, tol=TOLERANCE)
    else:
        fit = softmax(inside, wanted.astype(np.int64), penalty, classes=classes, tol=TOLERANCE)
    return np.atleast_2d(fit.weights) / length


def as_model(target: Target, weights: Floats, encoding: Encoding) -> LinearClassifier | LinearRegressor:
    """Weights of `trained` as a model that takes tables of the schema."""
    if isinstance(target, Bounded):
        from comity.learn.regressor import LinearRegressor

        return LinearRegressor(weights[0], target.low, target.high, encoding)
    from comity.learn.classifiers import LinearClassifier

    return LinearClassifier(weights, target.values, encoding)


def error(target: Target, weights: Floats, rows: Floats, labels: NDArray[np.int64] | Floats) -> float:
    """Share of records on the wrong side; of numbers the mean squared error, the target's bounds being −1 and 1."""
    if isinstance(target, Bounded):
        return float(np.mean((np.clip(rows @ weights[0], -1.0, 1.0) - scaled(target, labels)) ** 2))
    several = len(weights) > 1
    found = hard_votes(weights if several else weights[0], rows, multiclass=several)
    return float(np.mean(found != np.asarray(labels)))

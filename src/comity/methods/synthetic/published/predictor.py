"""The linear model that an owner fits to shared records and its own by penalised empirical risk. It stays at the site.

The last entry of a row is the constant. For fitting, rows are divided by the length of the longest, so they lie in the
unit ball as the solvers expect; weights and penalty are for rows as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from comity.data import Bounded, Classes, Encoding, Records, Target
from comity.errors import StudyError
from comity.federation.evaluation.assessment import Baseline
from comity.learn.fits import Huber, SmoothedHinge, fit_logistic, fit_one_margin, fit_softmax, hard_votes

if TYPE_CHECKING:
    from comity.learn.classifiers import LinearClassifier
    from comity.learn.regressor import LinearRegressor


Floats = NDArray[np.float64]

Learner = Literal["logistic", "svm", "linear"]

TOLERANCE = 1e-7
"""Gradient norm at which a fit stops. The fit is not released, and no sensitivity depends on it."""


def choose_learner(learner: str | None, target: Target) -> Learner:
    """The kind of model for this target: the requested one, or logistic for classes and linear for a number."""
    chosen = learner or ("linear" if isinstance(target, Bounded) else "logistic")
    if chosen not in get_args(Learner):
        raise StudyError(
            f"synthetic.learner must be one of {', '.join(get_args(Learner))}, found {chosen!r}",
            key="synthetic.learner",
        )
    if (chosen == "linear") != isinstance(target, Bounded):
        kind = "a number" if isinstance(target, Bounded) else "classes"
        raise StudyError(
            f"synthetic.learner = {chosen} does not learn {kind}; leave it out, or change [target]",
            key="synthetic.learner",
        )
    if chosen == "svm" and isinstance(target, Classes) and len(target.values) != 2:
        raise StudyError(
            f"synthetic.learner = svm learns two classes, found {len(target.values)}; use logistic",
            key="synthetic.learner",
        )
    return cast(Learner, chosen)


def scale_target(target: Target, labels: NDArray[np.int64] | Floats) -> Floats:
    """Class indices as they are; numbers on [−1, 1] by the target's bounds."""
    values = np.asarray(labels, np.float64)
    if not isinstance(target, Bounded):
        return values
    return np.clip(2 * (values - target.low) / (target.high - target.low) - 1, -1.0, 1.0)


def train_model(
    learner: Learner, target: Target, rows: Floats, labels: NDArray[np.int64] | Floats, l2: float
) -> Floats:
    """Weights (1, d), or (C, d) for more than two classes; zero if there are no rows."""
    classes = len(target.values) if isinstance(target, Classes) else 0
    if not len(rows):
        return np.zeros((classes if classes > 2 else 1, rows.shape[1]))
    length = max(1.0, sqrt(float((rows * rows).sum(axis=1).max())))
    inside, wanted, penalty = rows / length, scale_target(target, labels), l2 / length**2
    if learner == "linear":
        fit = fit_one_margin(inside, wanted, penalty, Huber(), tol=TOLERANCE)
    elif learner == "svm":
        fit = fit_one_margin(inside, wanted, penalty, SmoothedHinge(), tol=TOLERANCE)
    elif classes == 2:
        fit = fit_logistic(inside, wanted, penalty, tol=TOLERANCE)
    else:
        fit = fit_softmax(inside, wanted.astype(np.int64), penalty, classes=classes, tol=TOLERANCE)
    return np.atleast_2d(fit.weights) / length


def build_model(target: Target, weights: Floats, encoding: Encoding) -> LinearClassifier | LinearRegressor:
    """Weights of `train_model` as a model that takes tables of the schema."""
    if isinstance(target, Bounded):
        from comity.learn.regressor import LinearRegressor

        return LinearRegressor(weights[0], target.low, target.high, encoding)
    from comity.learn.classifiers import LinearClassifier

    return LinearClassifier(weights, target.values, encoding)


def measure_error(target: Target, weights: Floats, rows: Floats, labels: NDArray[np.int64] | Floats) -> float:
    """The share of misclassified records; for numbers the mean squared error, with the target's bounds at −1 and 1."""
    if isinstance(target, Bounded):
        return float(np.mean((np.clip(rows @ weights[0], -1.0, 1.0) - scale_target(target, labels)) ** 2))
    several = len(weights) > 1
    found = hard_votes(weights if several else weights[0], rows, multiclass=several)
    return float(np.mean(found != np.asarray(labels)))


# What shared records are compared with: a constant, each owner alone, everything pooled. They read private records, so
# they exist in simulations only.

MAX_ALONE = 200
"""Errors of owners alone are averaged over at most this many owners."""


def compare_baselines(
    learner: Learner, target: Target, train: Sequence[Records], test: Records, l2: float
) -> list[Baseline]:
    filled = [records for records in train if len(records) and records.labels is not None]
    if not filled or test.labels is None:
        return []
    rows = np.concatenate([records.features for records in filled])
    labels = np.concatenate([np.asarray(records.labels) for records in filled])
    alone = [
        measure_error(
            target, train_model(learner, target, own.features, np.asarray(own.labels), l2), test.features, test.labels
        )
        for own in filled[:MAX_ALONE]
    ]
    pooled = measure_error(target, train_model(learner, target, rows, labels, l2), test.features, test.labels)
    return [
        Baseline(
            "constant", constant_error(target, labels, test), note="knows only the mean or the most frequent class"
        ),
        Baseline("own data", float(np.mean(alone)), float(np.std(alone)), f"mean of {len(alone)} owners, each alone"),
        Baseline("pooled", pooled, note="all records in one place, no privacy"),
    ]


def constant_error(target: Target, labels: NDArray[Any], test: Records) -> float:
    """The error of the most frequent class, or of the mean, of the training labels."""
    assert test.labels is not None
    if isinstance(target, Bounded):
        return float(np.mean((scale_target(target, test.labels) - scale_target(target, labels).mean()) ** 2))
    return float(np.mean(np.asarray(test.labels) != np.bincount(labels.astype(np.int64)).argmax()))

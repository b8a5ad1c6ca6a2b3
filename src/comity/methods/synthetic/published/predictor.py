"""The linear model that an owner fits to shared records and its own by penalised empirical risk. It stays at the site.

    minimise  mean loss + λ|w|²     (equation 1 of the paper, with its losses: squares (2), logistic (3), hinge (4))

With `losses = "smooth"` a regression takes Huber's loss and a support-vector machine the smoothed hinge instead, whose
slopes and curvatures are bounded. The last entry of a row is the constant, and is penalised like the others. For
fitting by Newton steps, rows are divided by the length of the longest, so they lie in the unit ball as the solvers
expect; weights and penalty are for rows as they are.
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
from comity.methods.synthetic.published.hinge import fit_hinge

if TYPE_CHECKING:
    from comity.learn.classifiers import LinearClassifier
    from comity.learn.regressor import LinearRegressor


Floats = NDArray[np.float64]

Learner = Literal["logistic", "svm", "linear"]
Losses = Literal["printed", "smooth"]

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
    learner: Learner,
    target: Target,
    rows: Floats,
    labels: NDArray[np.int64] | Floats,
    l2: float,
    *,
    losses: Losses = "printed",
) -> Floats:
    """Weights (1, d), or (C, d) for more than two classes; zero if there are no rows. `l2` is λ."""
    classes = len(target.values) if isinstance(target, Classes) else 0
    if not len(rows):
        return np.zeros((classes if classes > 2 else 1, rows.shape[1]))
    if losses == "printed" and learner == "linear":
        return np.atleast_2d(fit_squares(rows, scale_target(target, labels), l2))
    if losses == "printed" and learner == "svm":
        return np.atleast_2d(fit_hinge(rows, labels, l2).weights)
    length = max(1.0, sqrt(float((rows * rows).sum(axis=1).max())))
    # The solvers minimise the mean loss with half of their penalty times |w|².
    inside, wanted, penalty = rows / length, scale_target(target, labels), 2 * l2 / length**2
    if learner == "linear":
        fit = fit_one_margin(inside, wanted, penalty, Huber(), tol=TOLERANCE)
    elif learner == "svm":
        fit = fit_one_margin(inside, wanted, penalty, SmoothedHinge(), tol=TOLERANCE)
    elif classes == 2:
        fit = fit_logistic(inside, wanted, penalty, tol=TOLERANCE)
    else:
        fit = fit_softmax(inside, wanted.astype(np.int64), penalty, classes=classes, tol=TOLERANCE)
    return np.atleast_2d(fit.weights) / length


def fit_squares(rows: Floats, targets: Floats, penalty: float) -> Floats:
    """The minimiser of the mean squared error with the penalty λ|w|²."""
    moments = rows.T @ rows / len(rows) + penalty * np.eye(rows.shape[1])
    return np.asarray(np.linalg.solve(moments, rows.T @ targets / len(rows)), np.float64)


def build_model(target: Target, weights: Floats, encoding: Encoding) -> LinearClassifier | LinearRegressor:
    """Weights of `train_model` as a model that takes tables of the schema."""
    if isinstance(target, Bounded):
        from comity.learn.regressor import LinearRegressor

        return LinearRegressor(weights[0], target.low, target.high, encoding)
    from comity.learn.classifiers import LinearClassifier

    return LinearClassifier(weights, target.values, encoding)


def measure_error(target: Target, weights: Floats, rows: Floats, labels: NDArray[np.int64] | Floats) -> float:
    """The share of misclassified records; for numbers the mean squared error, with the target's bounds at −1 and 1."""
    return float(np.mean(measure_errors(target, weights, rows, labels)))


def measure_errors(target: Target, weights: Floats, rows: Floats, labels: NDArray[np.int64] | Floats) -> Floats:
    """The error of each record: its class is wrong, or its squared error."""
    if isinstance(target, Bounded):
        squared = (np.clip(rows @ weights[0], -1.0, 1.0) - scale_target(target, labels)) ** 2
        return np.asarray(squared, np.float64)
    several = len(weights) > 1
    found = hard_votes(weights if several else weights[0], rows, multiclass=several)
    return np.asarray(found != np.asarray(labels), np.float64)


# What shared records are compared with: a constant, each owner alone, everything pooled. They read private records, so
# they exist in simulations only.

MAX_ALONE = 200
"""Errors of owners alone are averaged over at most this many owners."""


def compare_baselines(
    learner: Learner,
    target: Target,
    train: Sequence[Records],
    test: Records,
    l2: float,
    *,
    losses: Losses = "printed",
) -> list[Baseline]:
    filled = [records for records in train if len(records) and records.labels is not None]
    if not filled or test.labels is None:
        return []
    rows = np.concatenate([records.features for records in filled])
    labels = np.concatenate([np.asarray(records.labels) for records in filled])

    def error(features: Floats, known: NDArray[Any]) -> float:
        weights = train_model(learner, target, features, known, l2, losses=losses)
        return measure_error(target, weights, test.features, np.asarray(test.labels))

    alone = [error(own.features, np.asarray(own.labels)) for own in filled[:MAX_ALONE]]
    pooled = error(rows, labels)
    return [
        Baseline(
            "constant", constant_error(target, labels, test), note="knows only the mean or the most frequent class"
        ),
        Baseline.of_parties(alone, f"mean of {len(alone)} owners, each alone"),
        Baseline("pooled", pooled, note="all records in one place, no privacy"),
    ]


def constant_error(target: Target, labels: NDArray[Any], test: Records) -> float:
    """The error of the most frequent class, or of the mean, of the training labels."""
    assert test.labels is not None
    if isinstance(target, Bounded):
        return float(np.mean((scale_target(target, test.labels) - scale_target(target, labels).mean()) ** 2))
    return float(np.mean(np.asarray(test.labels) != np.bincount(labels.astype(np.int64)).argmax()))

"""Baselines of a simulation: a constant, each party alone, all records pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.federation.evaluation.assessment import Baseline, auc, log_loss
from comity.learn.fits import fit_logistic
from comity.learn.standardised import Standardised, default_penalty
from comity.special import expit

if TYPE_CHECKING:
    from comity.learn.classifiers import LinearClassifier

# Own-data scores are averaged over at most this many parties.
MAX_PARTIES = 200
# Of the pooled fit: about where its error stops to change in the fourth place.
_ITERATIONS = 300
_NARROW = 200
"""Newton's method is faster up to this many columns."""

Floats = NDArray[np.float64]


def measure_error(model: LinearClassifier, test: Records) -> float:
    """The share of encoded test records that a model gets wrong."""
    assert test.labels is not None
    scores = model.decision_function(test.features)
    chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
    return float(np.mean(chosen != test.labels))


def fit_baselines(train: Sequence[Records], test: Records, classes: tuple[str, ...]) -> list[Baseline]:
    filled = [records for records in train if len(records)]
    if not filled:
        return []
    alone = [_measure_regression(records, test, len(classes))[0] for records in filled[:MAX_PARTIES]]
    return common_baselines(filled, test, len(classes), alone)


def common_baselines(filled: Sequence[Records], test: Records, classes: int, alone: Sequence[float]) -> list[Baseline]:
    """A constant, own data with these errors of parties alone, and all records pooled."""
    labels = np.concatenate([np.asarray(records.labels) for records in filled]).astype(np.int64)
    pooled = Records(np.concatenate([records.features for records in filled]), labels)
    constant = np.bincount(labels, minlength=classes).argmax()
    return [
        Baseline("constant", float(np.mean(test.labels != constant)), note="always the most frequent class"),
        Baseline.of_parties(alone, f"mean of {len(alone)} parties, each alone"),
        pooled_regression(pooled, test, classes),
    ]


def pooled_regression(train: Records, test: Records, classes: int) -> Baseline:
    """A logistic regression of all records."""
    error, shares = _measure_regression(train, test, classes)
    truth = np.asarray(test.labels, np.int64)
    return Baseline(
        "pooled",
        error,
        note="logistic regression of all records in one place, no privacy",
        log_loss=log_loss(shares, truth),
        auc=auc(shares[:, 1], truth > 0) if classes == 2 else None,
    )


def _measure_regression(train: Records, test: Records, classes: int) -> tuple[float, Floats]:
    """The error and the probabilities of a logistic regression as anyone with these records would fit it: it uses
    nothing of the method's map, bound or penalty."""
    labels, truth = np.asarray(train.labels, np.int64), np.asarray(test.labels, np.int64)
    present, shares = np.unique(labels), np.zeros((len(truth), classes))
    if len(present) < 2:
        shares[:, present] = 1.0
    else:
        columns = Standardised.of(train.features)
        predict = _predict_by_newton if _is_small(present, train.features) else _predict_by_sklearn
        shares[:, present] = predict(columns, train.features, labels, test.features)
    return float(np.mean(shares.argmax(axis=1) != truth)), shares


def _is_small(present: NDArray[np.int64], rows: Floats) -> bool:
    return len(present) == 2 and rows.shape[1] <= _NARROW


def _predict_by_newton(columns: Standardised, rows: Floats, labels: NDArray[np.int64], asked: Floats) -> Floats:
    """Two classes by Newton's method: the library of models takes longer to import than most studies run."""
    upper_labels = (labels == labels.max()).astype(np.float64)
    fit = fit_logistic(columns.with_constant(rows), upper_labels, default_penalty(len(rows)), tol=1e-8)
    upper = expit(columns.with_constant(asked) @ fit.weights)
    return np.column_stack([1 - upper, upper])


def _predict_by_sklearn(columns: Standardised, rows: Floats, labels: NDArray[np.int64], asked: Floats) -> Floats:
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(max_iter=_ITERATIONS).fit(columns.columns(rows), labels)
    return np.asarray(found.predict_proba(columns.columns(asked)), np.float64)

"""Baselines of a simulation: a constant, each party alone, all records pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.data.records import stack_records
from comity.federation.evaluation.assessment import Baseline, auc, log_loss
from comity.learn.fits import fit_logistic
from comity.learn.local_models import linear_weights
from comity.special import expit

if TYPE_CHECKING:
    from comity.learn.classifiers import LinearClassifier

# Own-data scores are averaged over at most this many parties.
MAX_PARTIES = 200
# Of the pooled fit: about where its error stops to change in the fourth place.
_ITERATIONS = 300
_NARROW = 200
"""Newton's method is faster up to this many columns."""
_CONSTANT = 10.0
"""Value of the constant column: the penalty on its weight is a hundredth of the others'."""

Floats = NDArray[np.float64]


def measure_error(model: LinearClassifier, test: Records) -> float:
    """The share of encoded test records that a model gets wrong."""
    assert test.labels is not None
    scores = model.decision_function(test.features)
    chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
    return float(np.mean(chosen != test.labels))


def fit_baselines(train: Sequence[Records], test: Records, classes: tuple[str, ...], l2: float) -> list[Baseline]:
    filled = [records for records in train if len(records)]
    if not filled:
        return []
    return common_baselines(filled, test, len(classes), _measure_alone(filled[:MAX_PARTIES], test, classes, l2))


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
    """Logistic regression as anyone with all records would fit it: features of deviation one, scikit-learn's own
    penalty, and an intercept without penalty. It uses nothing of the method's map, bound or penalty."""
    labels, truth = np.asarray(train.labels, np.int64), np.asarray(test.labels, np.int64)
    present, shares = np.unique(labels), np.zeros((len(truth), classes))
    if len(present) < 2:
        shares[:, present] = 1.0
    else:
        centre, spread = train.features.mean(axis=0), train.features.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        seen, asked = ((records.features - centre) / spread for records in (train, test))
        predict = _predict_by_newton if _is_small(present, seen) else _predict_by_sklearn
        shares[:, present] = predict(seen, labels, asked)
    return Baseline(
        "pooled",
        float(np.mean(shares.argmax(axis=1) != truth)),
        note="logistic regression of all records in one place, no privacy",
        log_loss=log_loss(shares, truth),
        auc=auc(shares[:, 1], truth > 0) if classes == 2 else None,
    )


def _is_small(present: NDArray[np.int64], rows: Floats) -> bool:
    return len(present) == 2 and rows.shape[1] <= _NARROW


def _predict_by_newton(rows: Floats, labels: NDArray[np.int64], asked: Floats) -> Floats:
    """Two classes by Newton's method: the library of models takes longer to import than most studies run."""
    seen, shown = (np.column_stack([one, np.full(len(one), _CONSTANT)]) for one in (rows, asked))
    weights = fit_logistic(seen, (labels == labels.max()).astype(np.float64), 1 / len(rows), tol=1e-8).weights
    upper = expit(shown @ weights)
    return np.column_stack([1 - upper, upper])


def _predict_by_sklearn(rows: Floats, labels: NDArray[np.int64], asked: Floats) -> Floats:
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(max_iter=_ITERATIONS).fit(rows, labels)
    return np.asarray(found.predict_proba(asked), np.float64)


def _measure_alone(train: Sequence[Records], test: Records, classes: tuple[str, ...], l2: float) -> list[float]:
    """The error of each party's own classifier. Parties of about one size are fitted as a stack."""
    from comity.learn.classifiers import LinearClassifier

    errors = [0.0] * len(train)
    alike: dict[int, list[int]] = {}
    for place, records in enumerate(train):
        # No more than half of a stack is padding.
        alike.setdefault(len(records).bit_length(), []).append(place)
    for places in alike.values():
        features, labels, filled = stack_records([train[place] for place in places])
        weights, _ = linear_weights(features, labels.astype(np.int64), filled, len(classes), l2)
        for place, own in zip(places, weights):
            errors[place] = measure_error(LinearClassifier(own, classes=classes), test)
    return errors

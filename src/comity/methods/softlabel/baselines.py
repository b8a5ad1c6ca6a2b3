"""What a run is compared with in a simulation: a constant, each party alone, everything pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from comity.data import Records
from comity.data.records import stack_records
from comity.federation.evaluation.assessment import Baseline, auc, log_loss
from comity.learn.fits import fit_logistic
from comity.learn.local_models import linear_weights

if TYPE_CHECKING:
    from comity.learn.classifiers import LinearClassifier

# Own-data scores are averaged over at most this many parties.
_SAMPLED = 200
# Of the pooled fit: about where its error stops to change in the fourth place.
_ITERATIONS = 300
_NARROW = 200
"""Columns up to which Newton's method is the quicker way."""
_CONSTANT = 10.0
"""Value of the constant column: the penalty on its weight is a hundredth of the others'."""

Floats = NDArray[np.float64]


def wrong(model: LinearClassifier, test: Records) -> float:
    """Share of encoded test records that a model gets wrong."""
    assert test.labels is not None
    scores = model.decision_function(test.features)
    chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
    return float(np.mean(chosen != test.labels))


def baselines(train: Sequence[Records], test: Records, classes: tuple[str, ...], l2: float) -> list[Baseline]:
    filled = [records for records in train if len(records)]
    if not filled:
        return []
    assert test.labels is not None
    labels = np.concatenate([np.asarray(records.labels) for records in filled]).astype(np.int64)
    pooled = Records(np.concatenate([records.features for records in filled]), labels)
    constant = np.bincount(labels, minlength=len(classes)).argmax()
    alone = _errors_of(filled[:_SAMPLED], test, classes, l2)
    return [
        Baseline("constant", float(np.mean(test.labels != constant)), note="always the most frequent class"),
        Baseline(
            "own data",
            float(np.mean(alone)),
            float(np.std(alone)),
            note=f"mean of {len(alone)} parties, each alone",
        ),
        pooled_regression(pooled, test, len(classes)),
    ]


def pooled_regression(train: Records, test: Records, classes: int) -> Baseline:
    """Logistic regression as anyone would fit it who had the records: features of deviation one, scikit-learn's own
    penalty, and an intercept that has none. Nothing of the method's map, bound or penalty is in it."""
    labels, truth = np.asarray(train.labels, np.int64), np.asarray(test.labels, np.int64)
    held, shares = np.unique(labels), np.zeros((len(truth), classes))
    if len(held) < 2:
        shares[:, held] = 1.0
    else:
        centre, spread = train.features.mean(axis=0), train.features.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        seen, asked = ((records.features - centre) / spread for records in (train, test))
        shares[:, held] = _of_few(seen, labels, asked) if _is_small(held, seen) else _of_any(seen, labels, asked)
    return Baseline(
        "pooled",
        float(np.mean(shares.argmax(axis=1) != truth)),
        note="logistic regression of all records in one place, no privacy",
        log_loss=log_loss(shares, truth),
        auc=auc(shares[:, 1], truth > 0) if classes == 2 else None,
    )


def _is_small(held: NDArray[np.int64], rows: Floats) -> bool:
    return len(held) == 2 and rows.shape[1] <= _NARROW


def _of_few(rows: Floats, labels: NDArray[np.int64], asked: Floats) -> Floats:
    """Two classes by Newton's method: the library of models takes longer to import than most studies run."""
    seen, shown = (np.column_stack([one, np.full(len(one), _CONSTANT)]) for one in (rows, asked))
    weights = fit_logistic(seen, (labels == labels.max()).astype(np.float64), 1 / len(rows), tol=1e-8).weights
    upper = expit(shown @ weights)
    return np.column_stack([1 - upper, upper])


def _of_any(rows: Floats, labels: NDArray[np.int64], asked: Floats) -> Floats:
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(max_iter=_ITERATIONS).fit(rows, labels)
    return np.asarray(found.predict_proba(asked), np.float64)


def _errors_of(train: Sequence[Records], test: Records, classes: tuple[str, ...], l2: float) -> list[float]:
    """The error of a classifier of each of these by itself. Those of about one size are fitted as a stack."""
    from comity.learn.classifiers import LinearClassifier

    found = [0.0] * len(train)
    alike: dict[int, list[int]] = {}
    for place, records in enumerate(train):
        # No more than half of a stack is padding.
        alike.setdefault(len(records).bit_length(), []).append(place)
    for places in alike.values():
        features, labels, filled = stack_records([train[place] for place in places])
        weights, _ = linear_weights(features, labels.astype(np.int64), filled, len(classes), l2)
        for place, own in zip(places, weights):
            found[place] = wrong(LinearClassifier(own, classes=classes), test)
    return found

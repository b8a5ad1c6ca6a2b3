"""A party's own classifier: how its owner gives it, and how it votes on the public auxiliary records.

A local model is its owner's business. It may be a scikit-learn estimator or pipeline, a callable, or a table of
predictions; parties of one study may differ; nobody else sees it. What leaves, protected as the protocol declares, are
its votes: one row of class shares for each auxiliary record.

The sensitivity of votes rests on two things alone, and both hold for any model, however wrong. Every row lies in the
simplex, so that replacing a party moves a row by √2 at most in L2. And every party votes: one that has no records,
or whose model fails, votes 1/C, because an error or an abstention that depends on the data would be a release.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.learn.fitting.newton import Floats
from comity.learn.voters.predictions import SLACK, Predictions, from_predictions
from comity.learn.voters.voting import one_hot

__all__ = [
    "Ballot",
    "Estimator",
    "Function",
    "LocalModel",
    "Predictions",
    "as_local_model",
    "from_callable",
    "from_estimator",
    "from_predictions",
    "harden",
    "local_votes",
]

log = logging.getLogger("comity.site")

# (features, labels, auxiliary, number of classes) to votes: rows of the simplex, (N, C).
LocalModel = Callable[[Floats, NDArray[Any], Floats, int], Floats]


@dataclass(frozen=True, eq=False)
class Ballot:
    """What local models vote on, all of it public: auxiliary rows (N, d), and the labels of the classes."""

    auxiliary: Floats
    classes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Estimator:
    """A scikit-learn classifier that is fitted on the party's records at each vote; `soft` sends its probabilities."""

    estimator: Any
    soft: bool = False

    def __call__(self, features: Floats, labels: NDArray[Any], auxiliary: Floats, classes: int) -> Floats:
        from sklearn.base import clone

        if not len(labels):
            return np.full((len(auxiliary), classes), 1.0 / classes)
        held, targets = np.unique(np.asarray(labels).astype(np.int64), return_inverse=True)
        if len(held) == 1:
            # Many classifiers refuse a single class, and none could say anything else.
            return np.tile(one_hot(held, classes), (len(auxiliary), 1))
        # Boosted trees of some libraries insist on labels 0, 1, 2, …: the party's own classes are counted through.
        fitted = clone(self.estimator).fit(features, targets)
        if not self.soft:
            return one_hot(held[np.asarray(fitted.predict(auxiliary)).astype(np.int64)], classes)
        votes = np.zeros((len(auxiliary), classes))
        votes[:, held] = fitted.predict_proba(auxiliary)
        return votes


@dataclass(frozen=True, eq=False)
class Function:
    """Any callable of (features, labels, auxiliary, classes): votes (N, C), or N class indices."""

    function: Callable[..., Any]

    def __call__(self, features: Floats, labels: NDArray[Any], auxiliary: Floats, classes: int) -> Floats:
        votes = np.asarray(self.function(features, labels, auxiliary, classes))
        return one_hot(votes, classes) if votes.ndim == 1 else votes.astype(np.float64)


def from_estimator(estimator: Any, *, soft: bool = False) -> Estimator:
    """A local model from an unfitted scikit-learn classifier or pipeline, which is cloned and never changed."""
    from sklearn.base import clone

    name = type(estimator).__name__
    if isinstance(estimator, type) or not all(hasattr(estimator, part) for part in ("fit", "predict", "get_params")):
        raise StudyError(
            f"a local model must be a scikit-learn classifier with fit and predict, found "
            f"{f'the class {estimator.__name__}' if isinstance(estimator, type) else name}; give an estimator object"
        )
    if not _classifies(estimator):
        raise StudyError(f"a local model votes for classes, found {name}, which is no classifier; give a classifier")
    if soft and not hasattr(estimator, "predict_proba"):
        raise StudyError(f"soft votes need predict_proba, which {name} does not have; leave soft out, or calibrate it")
    return Estimator(clone(estimator), soft)


def _classifies(estimator: Any) -> bool:
    from sklearn.base import is_classifier

    try:
        return bool(is_classifier(estimator))
    except AttributeError:
        # An estimator that only behaves like scikit-learn's does not say what it is.
        return True


def from_callable(function: Callable[..., Any]) -> Function:
    """A local model from a callable of (features, labels, auxiliary, classes)."""
    if isinstance(function, type) or not callable(function):
        raise StudyError(f"a local model must be a callable of four arguments, found {function!r}; give a function")
    return Function(function)


def as_local_model(value: Any) -> LocalModel:
    """A local model from whatever an owner writes in Python: one of these, an estimator, or a callable."""
    if isinstance(value, Estimator | Function | Predictions):
        return value
    if hasattr(value, "fit"):
        return from_estimator(value)
    return from_callable(value)


def local_votes(
    model: LocalModel,
    features: Floats,
    labels: NDArray[Any],
    auxiliary: Floats,
    classes: int,
    *,
    filled: NDArray[np.bool_] | None = None,
) -> Floats:
    """Votes (..., N, C) of one party, or of a stack of parties that each fit the model on their own records.

    Never raises on account of the records or the model: what fails, and every row that is not finite or not in the
    simplex, becomes 1/C. The owner's log says so; nobody else learns of it.
    """
    if features.ndim > 2:
        stacked = np.ones(features.shape[:-1], bool) if filled is None else filled
        return np.stack(
            [
                local_votes(model, rows, own, auxiliary, classes, filled=kept)
                for rows, own, kept in zip(features, labels, stacked)
            ]
        )
    if filled is not None:
        features, labels = features[filled], labels[filled]
    even = np.full((len(auxiliary), classes), 1.0 / classes)
    try:
        # Copies: a model may work in place, and these are the records and everybody's auxiliary rows.
        votes = np.asarray(model(features.copy(), labels.copy(), auxiliary.copy(), classes), np.float64)
    except Exception:
        log.exception("the local model %r failed: it votes evenly", model)
        return even
    if votes.shape != even.shape:
        log.error("the local model %r gave votes of shape %s, not %s: it votes evenly", model, votes.shape, even.shape)
        return even
    with np.errstate(invalid="ignore", over="ignore"):
        totals = votes.sum(axis=1, keepdims=True)
        # Written so that NaN fails.
        inside = (votes >= 0).all(axis=1, keepdims=True) & (np.abs(totals - 1) <= SLACK)
    if not inside.all():
        log.error("the local model %r gave %d rows outside the simplex: evened", model, int((~inside).sum()))
    return np.where(inside, votes / np.where(inside, totals, 1.0), even)


def harden(votes: Floats) -> Floats:
    """Each row's whole vote to its likeliest class, the first of equal ones; a row of 1/C stays as it is. Shares that
    differ by rounding are equal.

    For protocols that count votes in units of 1/C: rounding probabilities to that grid would leave the simplex.
    """
    classes, best = votes.shape[-1], votes.max(axis=-1, keepdims=True) - SLACK
    undecided = votes.min(axis=-1, keepdims=True) >= best
    return np.where(undecided, 1.0 / classes, one_hot((votes >= best).argmax(axis=-1), classes))

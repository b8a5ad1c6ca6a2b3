"""Fit any scikit-learn classifier on released soft labels: noisy shares of votes on the public auxiliary records.

This is post-processing: its input is public or released. It costs nothing and may be repeated with other classifiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from comity.errors import DataError
from comity.learn.newton import Floats

Classifier = TypeVar("Classifier")


def fit_on_soft_labels(
    estimator: Classifier, auxiliary: ArrayLike, soft: ArrayLike, *, classes: Sequence[Any] | None = None
) -> Classifier:
    """A fitted clone of `estimator`, trained on auxiliary rows (N, d) with released soft labels (N, C).

    Each row is repeated for every class whose share is positive, with that share as its weight. An estimator that
    takes no weights gets each row once, with its likeliest class. It predicts class indices, or `classes`.

    Settings that count rows count each row once per class: under much noise forests need `min_weight_fraction_leaf`, or
    a much larger `min_samples_leaf`, to gain anything over the likeliest class.
    """
    rows, shares = _check_rows(auxiliary, soft)
    names = np.arange(shares.shape[1]) if classes is None else np.asarray(list(classes))
    if len(names) != shares.shape[1]:
        raise DataError(f"classes must name the {shares.shape[1]} columns of the soft labels, found {len(names)}")
    fitted: Any = clone(estimator)
    key = _weight_key(fitted)
    if key is None:
        fitted.fit(rows, names[shares.argmax(axis=1)])
    else:
        place, column, weight = weigh_shares(shares)
        fitted.fit(rows[place], names[column], **{key: weight})
    return cast(Classifier, fitted)


def weigh_shares(shares: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Row, class and weight of each positive share; the weights sum to the number of rows.

    Shares below zero are noise and become zero. Rows are not scaled to a sum of one each: a row of small shares says
    little, and would get as much weight as the others.
    """
    positive = np.maximum(shares, 0.0)
    total = float(positive.sum())
    if not total > 0:
        raise DataError("none of the soft labels is above zero, so they say nothing; release them with less noise")
    place, column = np.nonzero(positive)
    return place, column, positive[place, column] * (len(shares) / total)


def _weight_key(estimator: Any) -> str | None:
    """The name under which `fit` takes weights; a pipeline passes them to its last step."""
    steps = getattr(estimator, "steps", None)
    if steps:
        name, last = steps[-1]
        inner = _weight_key(last) if hasattr(last, "fit") else None
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def _check_rows(auxiliary: ArrayLike, soft: ArrayLike) -> tuple[Floats, Floats]:
    rows, shares = np.asarray(auxiliary, np.float64), np.asarray(soft, np.float64)
    if rows.ndim != 2 or shares.ndim != 2 or len(rows) != len(shares) or not len(rows) or shares.shape[1] < 2:
        raise DataError(
            "expected auxiliary rows (N, d) and their soft labels (N, C) of two classes or more, found shapes "
            f"{rows.shape} and {shares.shape}; give the records that were voted on, in their order"
        )
    if not (np.isfinite(rows).all() and np.isfinite(shares).all()):
        raise DataError("auxiliary rows and soft labels must be finite, found NaN or infinity; encode the rows first")
    return rows, shares

"""Released models: classifiers that scikit-learn takes for fitted ones, made of published numbers alone.

A model holds its weights as constructor parameters, so that `clone` keeps them, and `fit` changes nothing:
what a study released is fixed, and `cross_val_score` and its like score the released model on each fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from scipy.special import softmax as normalise
from sklearn.base import BaseEstimator, ClassifierMixin

from comity.errors import DataError
from comity.learn.feature_map import FeatureMap
from comity.learn.newton import Floats


class FeatureEncoding(Protocol):
    """What turns a frame of raw columns into the rows that a model was trained on."""

    def encode_features(self, frame: pd.DataFrame) -> Floats: ...


class _Released(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Common face of released models."""

    classes: Sequence[Any] | NDArray[Any]

    @property
    def classes_(self) -> NDArray[Any]:
        labels = list(self.classes)
        if len(set(map(type, labels))) == 1:
            return np.asarray(labels)
        mixed = np.empty(len(labels), object)
        mixed[:] = labels
        return mixed

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Returns the model as it is: a released model is not trained again."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True


class LinearClassifier(_Released):
    """A linear classifier over encoded rows, or over raw frames where it carries the schema's encoding.

    Parameters
    ----------
    coef : one row of weights per class, (C, d); for two classes also one vector, (1, d), for the second one
    classes : the labels, in the order of the rows
    encoding : how a DataFrame becomes rows; without one a DataFrame's columns are taken as they stand
    feature_map : public map from rows to the coordinates that the weights are for; weights with one column more than
        it has dimensions hold the intercept last
    """

    def __init__(
        self,
        coef: ArrayLike,
        classes: Sequence[Any] | NDArray[Any],
        encoding: FeatureEncoding | None = None,
        feature_map: FeatureMap | None = None,
    ) -> None:
        self.coef = coef
        self.classes = classes
        self.encoding = encoding
        self.feature_map = feature_map

    @property
    def coef_(self) -> Floats:
        coef, count = np.asarray(self.coef, np.float64), len(self.classes)
        if coef.ndim != 2 or count < 2 or len(coef) not in ({1, 2} if count == 2 else {count}):
            raise DataError(
                f"coef must have one row per class, or a single row for two classes; found shape "
                f"{coef.shape} for {count} classes"
            )
        if self.feature_map is not None and coef.shape[1] - self.feature_map.dimensions not in (0, 1):
            raise DataError(
                f"coef must have a column for each of the {self.feature_map.dimensions} dimensions of the feature map, "
                f"and may have one for an intercept; found {coef.shape[1]}"
            )
        return coef

    @property
    def n_features_in_(self) -> int:
        return int(self.coef_.shape[1]) if self.feature_map is None else self.feature_map.features

    def decision_function(self, X: Any) -> Floats:
        """Scores: (n,) in favour of the second of two classes, (n, C) of more."""
        coef = self.coef_
        rows = self._rows(X, self.n_features_in_)
        if self.feature_map is not None:
            rows = self.feature_map(rows)
            if coef.shape[1] > rows.shape[1]:
                rows = np.column_stack([rows, np.ones(len(rows))])
        if len(coef) == 1:
            return np.asarray(rows @ coef[0], np.float64)
        if len(coef) == 2:
            return np.asarray(rows @ (coef[1] - coef[0]), np.float64)
        return np.asarray(rows @ coef.T, np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        scores = self.decision_function(X)
        index = scores.argmax(1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        return np.asarray(self.classes_[index])

    def predict_proba(self, X: Any) -> Floats:
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(normalise(scores, axis=1), np.float64)
        return np.column_stack([expit(-scores), expit(scores)])

    def _rows(self, X: Any, width: int) -> Floats:
        if self.encoding is not None and isinstance(X, pd.DataFrame):
            rows = np.asarray(self.encoding.encode_features(X), np.float64)
        else:
            try:
                rows = np.asarray(X, np.float64)
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"the model expects rows of {width} numbers, found something else ({error}); "
                    "encode the records first, or give the model its encoding"
                ) from error
        if rows.ndim != 2 or rows.shape[1] != width:
            raise DataError(f"the model expects rows of {width} features, shape (n, {width}); found {rows.shape}")
        if not np.isfinite(rows).all():
            raise DataError("the rows hold NaN or infinity; fill missing values by the schema's policy first")
        return rows


class ConstantClassifier(_Released):
    """The same answer for every record: the likeliest class, with `shares` as probabilities.

    It needs nothing but public or released shares, and is what any learned model has to beat.
    """

    def __init__(self, shares: ArrayLike, classes: Sequence[Any] | NDArray[Any]) -> None:
        self.shares = shares
        self.classes = classes

    @property
    def shares_(self) -> Floats:
        shares, count = np.asarray(self.shares, np.float64), len(self.classes)
        if shares.shape != (count,) or not (shares >= 0).all() or not abs(shares.sum() - 1) <= 1e-9:
            raise DataError(f"shares must be {count} numbers >= 0 that sum to 1, found {shares.tolist()}")
        return shares

    def predict(self, X: Any) -> NDArray[Any]:
        return np.repeat(self.classes_[[int(self.shares_.argmax())]], len(X))

    def predict_proba(self, X: Any) -> Floats:
        return np.tile(self.shares_, (len(X), 1))

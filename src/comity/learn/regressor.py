"""A released linear regression: what scikit-learn takes for a fitted regressor, made of published numbers alone."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.base import BaseEstimator, RegressorMixin

from comity.errors import DataError
from comity.learn.models import FeatureEncoding

Floats = NDArray[np.float64]


class LinearRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts a number in the target's own units.

    Parameters
    ----------
    coef : weights of an encoded row, (d,), for a target scaled to [−1, 1]
    low, high : the target's bounds, which −1 and 1 stand for
    encoding : how a DataFrame becomes rows; without one a DataFrame's columns are taken as they stand
    errors : standard errors of `coef`, where the study released them
    """

    def __init__(
        self,
        coef: ArrayLike,
        low: float = -1.0,
        high: float = 1.0,
        encoding: FeatureEncoding | None = None,
        errors: ArrayLike | None = None,
    ) -> None:
        self.coef = coef
        self.low = low
        self.high = high
        self.encoding = encoding
        self.errors = errors

    @property
    def coef_(self) -> Floats:
        coef = np.asarray(self.coef, np.float64)
        if coef.ndim != 1:
            raise DataError(f"coef must be one weight per feature, found shape {coef.shape}")
        return coef

    @property
    def coef_with_errors_(self) -> Floats:
        """Coefficients and, where there are any, their standard errors: (1, d) or (2, d)."""
        return np.stack([self.coef_] if self.errors is None else [self.coef_, np.asarray(self.errors, np.float64)])

    def interval(self, confidence: float = 0.95) -> Floats:
        """Intervals of the coefficients, (d, 2), that account for noise and residuals, not for the ridge's bias."""
        if self.errors is None:
            raise DataError("the study released no standard errors with this model")
        if not 0 < confidence < 1:
            raise DataError(f"a confidence lies between 0 and 1, found {confidence}")
        reach = float(ndtri((1 + confidence) / 2)) * np.asarray(self.errors, np.float64)
        return np.column_stack([self.coef_ - reach, self.coef_ + reach])

    @property
    def n_features_in_(self) -> int:
        return len(self.coef_)

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Returns the model as it is: a released model is not trained again."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def scores(self, X: Any) -> Floats:
        """Predictions on the scale of [−1, 1]."""
        if self.encoding is not None and isinstance(X, pd.DataFrame):
            rows = np.asarray(self.encoding.encode_features(X), np.float64)
        else:
            rows = np.asarray(X, np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in_:
            raise DataError(f"the model expects rows of {self.n_features_in_} features, found shape {rows.shape}")
        return np.asarray(rows @ self.coef_, np.float64)

    def predict(self, X: Any) -> Floats:
        return self.low + (self.high - self.low) * (1 + self.scores(X)) / 2

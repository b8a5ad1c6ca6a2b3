"""A released linear regression: what scikit-learn takes for a fitted regressor, made of published numbers alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from comity.artefacts.artefact import Card
from comity.artefacts.section import Grid, Section
from comity.data import Encoding
from comity.errors import DataError
from comity.learn.released import model_page
from comity.learn.released.classifiers import FeatureEncoding
from comity.learn.released.estimator import ReleasedEstimator
from comity.learn.released.weights import coefficients

Floats = NDArray[np.float64]

_DECIDED = 0.25
"""From this part on a ridge decides: noise may have made a third of what it is added to. Not tuned on data."""


class LinearRegressor(ReleasedEstimator):
    """Predicts a number in the target's own units.

    Parameters
    ----------
    coef : weights of an encoded row, (d,), for a target scaled to [−1, 1]
    low, high : the target's bounds, which −1 and 1 stand for
    encoding : how a DataFrame becomes rows; without one a DataFrame's columns are taken as they stand
    errors : standard errors of `coef`, where the study released them
    shrunk : how much of each coefficient a ridge decided, from 0 to 1, where the study released it
    """

    kind: ClassVar[str] = "regression"
    estimates = "regressor"
    place: ClassVar[str] = "model"
    measure: ClassVar[str] = "mean squared error, the target's bounds being -1 and 1"
    """What an error of such a model counts."""

    def __init__(
        self,
        coef: ArrayLike,
        low: float = -1.0,
        high: float = 1.0,
        encoding: FeatureEncoding | None = None,
        errors: ArrayLike | None = None,
        shrunk: ArrayLike | None = None,
    ) -> None:
        self.coef = coef
        self.low = low
        self.high = high
        self.encoding = encoding
        self.errors = errors
        self.shrunk = shrunk

    @property
    def coef_(self) -> Floats:
        coef = np.asarray(self.coef, np.float64)
        if coef.ndim != 1:
            raise DataError(f"coef must be one weight per feature, found shape {coef.shape}")
        return coef

    @property
    def coef_with_errors_(self) -> Floats:
        """Coefficients and, where there are any, their standard errors and what the ridge decides: (1, d) to (3, d)."""
        lines = [self.coef_]
        for more in (self.errors, self.shrunk):
            if more is None:
                break
            lines.append(np.asarray(more, np.float64))
        return np.stack(lines)

    @property
    def dominated_(self) -> NDArray[np.bool_]:
        """Coefficients that the ridge decides as much as the records do: read them as unknown, with their intervals."""
        if self.shrunk is None:
            return np.zeros(self.n_features_in_, bool)
        return np.asarray(np.asarray(self.shrunk, np.float64) > _DECIDED, bool)

    def interval(self, confidence: float = 0.95) -> Floats:
        """Intervals of the coefficients, (d, 2), that account for noise, residuals and, from 90 % on, for how far a
        ridge may have shrunk them; `dominated_` marks those that it decides."""
        if self.errors is None:
            raise DataError("the study released no standard errors with this model")
        if not 0 < confidence < 1:
            raise DataError(f"a confidence lies between 0 and 1, found {confidence}")
        reach = float(ndtri((1 + confidence) / 2)) * np.asarray(self.errors, np.float64)
        return np.column_stack([self.coef_ - reach, self.coef_ + reach])

    @property
    def n_features_in_(self) -> int:
        return len(self.coef_)

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

    def predicted(self, rows: Any) -> dict[str, Floats]:
        """Columns of a table of predictions."""
        return {"predicted": self.predict(rows)}

    def of_scores(self) -> LinearRegressor:
        """The same answers from a score alone, for records whose scores were added up elsewhere."""
        return LinearRegressor([1.0], self.low, self.high)

    def save(self, folder: Path) -> None:
        coef, encoding = self.coef_with_errors_, model_page.encoding_page(self.encoding)
        np.savez(folder / model_page.WEIGHTS, coef=coef)
        model_page.write_page(
            folder, self.kind, (), low=self.low, high=self.high, shape=list(coef.shape), encoding=encoding
        )

    @classmethod
    def load(cls, folder: Path) -> Self:
        path, page = folder / model_page.PAGE, model_page.read_page(folder)
        coef, _ = model_page.read_weights(folder, page)
        low, high = (model_page.get(page, key, float, path) for key in ("low", "high"))
        encoding = model_page.read_encoding(page, path)
        made = cls(coef[0], low, high, encoding, *coef[1:3])
        model_page.checked(path, lambda: made.coef_)
        model_page.require_width(encoding, made.n_features_in_, path)
        return made

    def card(self) -> Card:
        what = f"A linear regression from {self.n_features_in_} features"
        if isinstance(self.encoding, Encoding):
            target = self.encoding.schema.target
            columns = len(self.encoding.schema.columns)
            what = f"A linear regression of {'a number' if target is None else target.name} from {columns} columns"
            what += f" ({self.n_features_in_} features after encoding)"
        parts = {
            "Input": model_page.input_of(self.encoding),
            "Intended use and limits": model_page.USE,
            "Files": model_page.FILES,
        }
        return Card("released model", what, "learned", parts)

    def section(self, noise: float | None = None) -> Section:
        found = coefficients(self)
        note = "The strongest, of a target between -1 and 1; all are in the model's file."
        if self.dominated_.any():
            note += f" {int(self.dominated_.sum())} of all are decided by the ridge as much as by the records."
        heads = ("feature", "coefficient", "standard error")
        return Section("The model", tables=(Grid(heads, found, note),) if found else ())

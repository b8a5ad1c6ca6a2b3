"""What every estimator over a simulated run has: rows as it saw them in `fit`, and the released model's answers."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from comity.estimators.table import Floats, rows_in_ball
from comity.learn.models import LinearClassifier


class Face(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    bound: float
    intercept: bool

    def _rows(self, X: Floats) -> Floats:
        return rows_in_ball(X, self.bound, intercept=self.intercept)

    def _seen(self, X: Any) -> Floats:
        check_is_fitted(self, "model_")
        return self._rows(validate_data(self, X, dtype="float64", reset=False))


class ClassifierFace(ClassifierMixin, Face):  # type: ignore[misc]  # scikit-learn has no types
    model_: LinearClassifier

    @property
    def coef_(self) -> Floats:
        """Weights over the scaled rows, or over what the model's public feature map makes of them; the last one is the
        constant feature's where there is one."""
        check_is_fitted(self, "model_")
        return self.model_.coef_

    def decision_function(self, X: Any) -> Floats:
        rows = self._seen(X)
        return self.model_.decision_function(rows)

    def predict(self, X: Any) -> NDArray[Any]:
        rows = self._seen(X)
        return self.model_.predict(rows)

    def predict_proba(self, X: Any) -> Floats:
        rows = self._seen(X)
        return self.model_.predict_proba(rows)

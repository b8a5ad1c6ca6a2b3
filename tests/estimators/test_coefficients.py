"""Estimators follow scikit-learn: `X @ coef_.T + intercept_` is what they decide by, or what a regression predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.estimators import (
    AveragedClassifier,
    AveragedRegressor,
    SoftLabelClassifier,
    VerticalClassifier,
    VerticalRegressor,
)

GENERATOR = np.random.default_rng(3)
X = GENERATOR.uniform(-1, 1, (400, 4))
SCORE = X @ np.array([1.5, -1.0, 0.5, 0.0]) - 0.2
COMMON: dict[str, Any] = {"epsilon": 20.0, "random_state": 1, "parties": 4}


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    "make, classes",
    [
        (VerticalClassifier, 2),
        *((make, classes) for make in (AveragedClassifier, SoftLabelClassifier) for classes in (2, 3)),
    ],
)
def test_classifiers_decide_by_their_coefficients(make: Any, classes: int, intercept: bool) -> None:
    own: dict[str, Any] = {"bounds": (-1, 2)} if make is VerticalClassifier else {"bound": 2.0}
    if make is SoftLabelClassifier:
        own |= {"auxiliary": GENERATOR.uniform(-1, 1, (100, 4)), "statistic": "votes"}
    made = make(**COMMON, **own, intercept=intercept).fit(X, np.digitize(SCORE, [-0.5, 0.5][: classes - 1]))
    outputs = 1 if classes == 2 else classes
    assert made.coef_.shape == (outputs, 4) and made.intercept_.shape == (outputs,) and made.n_features_in_ == 4
    decided = made.decision_function(X)
    np.testing.assert_allclose((X @ made.coef_.T + made.intercept_).reshape(decided.shape), decided, atol=1e-9)
    if not intercept and make is AveragedClassifier:
        assert (made.intercept_ == 0).all()


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("make", [AveragedRegressor, VerticalRegressor])
def test_regressors_predict_by_their_coefficients(make: Any, intercept: bool) -> None:
    own: dict[str, Any] = {"bounds": (-1, 2)} if make is VerticalRegressor else {"bound": 2.0}
    made = make(**COMMON, **own, low=-2, high=4, intercept=intercept).fit(X, np.clip(SCORE, -2, 4))
    assert made.coef_.shape == (4,) and np.ndim(made.intercept_) == 0
    np.testing.assert_allclose(X @ made.coef_ + made.intercept_, made.predict(X), atol=1e-9)
    low, high = made.interval().T
    assert low.shape == (4,) and (low < made.coef_).all() and (made.coef_ < high).all()


def test_rows_beyond_the_bound_are_brought_there_first() -> None:
    made = AveragedClassifier(**COMMON, bound=2.0).fit(X, SCORE > 0)
    far = 10 * X[:5]
    inside = far * 2.0 / np.linalg.norm(far, axis=1, keepdims=True)
    np.testing.assert_allclose(made.decision_function(far), (inside @ made.coef_.T + made.intercept_)[:, 0], atol=1e-9)

"""Classifiers trained on noisy soft labels: weights that say what they say, and more than the likeliest class does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from comity.errors import DataError
from comity.learn import fit_on_soft_labels
from comity.learn.soft_labels import weigh_shares


@pytest.fixture(scope="module")
def digits() -> Any:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return x[order[:900]] / 16, y[order[:900]], x[order[900:]] / 16, y[order[900:]]


def test_each_positive_share_is_a_row_with_that_weight() -> None:
    place, column, weight = weigh_shares(np.array([[0.5, -0.1, 0.7], [0.0, 0.3, 0.0], [-1.0, -1.0, -1.0]]))
    assert list(zip(place.tolist(), column.tolist())) == [(0, 0), (0, 2), (1, 1)]
    np.testing.assert_allclose(weight, np.array([0.5, 0.7, 0.3]) * 3 / 1.5)


def test_exact_shares_give_the_minimiser_of_the_soft_risk() -> None:
    """Weighted duplication is the soft loss itself: the penalised optimum has its gradient at zero."""
    generator = np.random.default_rng(1)
    x, soft = generator.normal(size=(60, 3)), generator.dirichlet(np.ones(2), 60)
    model = fit_on_soft_labels(LogisticRegression(fit_intercept=False, C=2.0, tol=1e-10, max_iter=1000), x, soft)
    residual = model.predict_proba(x)[:, 1] - soft[:, 1]
    np.testing.assert_allclose(x.T @ residual + model.coef_[0] / 2.0, 0, atol=1e-5)


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(max_iter=300),
        HistGradientBoostingClassifier(max_iter=8, max_depth=4),
        RandomForestClassifier(30, min_weight_fraction_leaf=0.005, random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
    ],
    ids=["logistic", "boosted", "forest", "pipeline"],
)
def test_noisy_shares_train_better_than_their_likeliest_class(digits: Any, estimator: Any) -> None:
    x, y, test, truth = digits
    noise = np.random.default_rng(3).normal(size=(len(x), 10))
    soft = 0.6 * np.eye(10)[y] + 0.04 + 0.6 * noise
    ours = fit_on_soft_labels(estimator, x, soft).score(test, truth)
    likeliest = fit_on_soft_labels(estimator, x, 2.0 * np.eye(10)[soft.argmax(1)]).score(test, truth)
    assert ours > likeliest + 0.05


def test_an_estimator_without_weights_gets_the_likeliest_class(digits: Any) -> None:
    x, y, test, truth = digits
    soft = 0.6 * np.eye(10)[y] + 0.1 * np.random.default_rng(0).normal(size=(len(x), 10))
    for estimator in (KNeighborsClassifier(3), make_pipeline(StandardScaler(), KNeighborsClassifier(3))):
        model = fit_on_soft_labels(estimator, x, soft, classes=[f"digit {k}" for k in range(10)])
        assert np.mean(model.predict(test) == [f"digit {k}" for k in truth]) > 0.9


def test_the_labels_are_the_studys() -> None:
    model = fit_on_soft_labels(
        DecisionTreeClassifier(), [[0.0], [1.0]], [[0.9, 0.1], [0.2, 0.8]], classes=("no", "yes")
    )
    assert model.predict([[0.0], [1.0]]).tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    ("rows", "soft", "classes", "words"),
    [
        (np.ones((3, 2)), np.ones((2, 2)), None, "in their order"),
        (np.ones((3, 2)), np.ones(3), None, "soft labels"),
        (np.ones((3, 2)), np.ones((3, 1)), None, "two classes"),
        (np.ones((0, 2)), np.ones((0, 2)), None, "expected"),
        (np.full((3, 2), np.nan), np.ones((3, 2)), None, "finite"),
        (np.ones((3, 2)), np.full((3, 2), np.inf), None, "finite"),
        (np.ones((3, 2)), np.full((3, 2), -0.1), None, "above zero"),
        (np.ones((3, 2)), np.ones((3, 2)), ["a"], "2 columns"),
    ],
)
def test_what_says_nothing_is_refused(rows: Any, soft: Any, classes: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        fit_on_soft_labels(LogisticRegression(), rows, soft, classes=classes)

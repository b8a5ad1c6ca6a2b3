from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier, is_regressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from comity.data.encoding import Encoding
from comity.data.schemas.columns import Categorical, Classes, Numeric
from comity.data.schemas.schema import Schema
from comity.errors import DataError
from comity.learn import ConstantClassifier, FeatureMap, LinearClassifier, LinearRegressor

SCHEMA = Schema((Numeric("age", 0, 100), Categorical("sex", ("f", "m"))), Classes("ill", ("no", "yes")))


def sample(classes: Any) -> Any:
    rng = np.random.default_rng(classes)
    x = rng.normal(size=(120, 3))
    return x, (x @ rng.normal(size=(3, classes))).argmax(1)


@pytest.mark.parametrize("classes", [2, 3])
def test_it_predicts_as_scikit_learn_does_with_the_same_weights(classes: int) -> None:
    x, y = sample(classes)
    names = np.array(["a", "b", "c"][:classes])
    theirs = LogisticRegression(fit_intercept=False).fit(x, names[y])
    ours = LinearClassifier(theirs.coef_, names.tolist())
    assert (ours.predict(x) == theirs.predict(x)).all()
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-12)
    np.testing.assert_allclose(ours.decision_function(x), theirs.decision_function(x), atol=1e-12)
    assert ours.score(x, names[y]) == theirs.score(x, names[y])
    assert ours.n_features_in_ == 3
    assert ours.classes_.tolist() == names.tolist()


def test_two_class_rows_are_their_difference() -> None:
    x, _ = sample(2)
    w = np.array([0.3, -1.0, 2.0])
    pair, single = LinearClassifier([-w / 2, w / 2], [0, 1]), LinearClassifier([w], [0, 1])
    np.testing.assert_allclose(pair.predict_proba(x), single.predict_proba(x), atol=1e-15)
    assert (pair.predict(x) == single.predict(x)).all()


def test_scikit_learn_takes_it_for_a_fitted_classifier() -> None:
    x, y = sample(3)
    model = LinearClassifier(np.eye(3), [0, 1, 2])
    check_is_fitted(model)
    assert is_classifier(model)
    copy = clone(model)
    assert (copy.predict(x) == model.predict(x)).all()
    scores = cross_val_score(model, x, y, cv=3)
    folds = cross_val_score(make_pipeline(StandardScaler(), model), x, y, cv=3)
    assert scores.mean() == pytest.approx(model.score(x, y), abs=0.02)
    assert folds.shape == (3,)
    assert model.fit(x, y) is model
    assert np.array_equal(model.coef_, np.eye(3))


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """One of scikit-learn's own."""


class Regressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """One of scikit-learn's own."""


@pytest.mark.parametrize(
    ("model", "theirs"),
    [
        (LinearClassifier(np.eye(2), [0, 1]), Classifier()),
        (ConstantClassifier([0.5, 0.5], [0, 1]), Classifier()),
        (LinearRegressor([1.0, 2.0]), Regressor()),
    ],
)
def test_a_model_has_the_tags_and_parameters_of_scikit_learns_own(model: Any, theirs: Any) -> None:
    assert get_tags(model) == get_tags(theirs)
    assert is_classifier(model) == is_classifier(theirs)
    assert is_regressor(model) == is_regressor(theirs)
    assert type(model)(**model.get_params()).get_params() == model.get_params()
    assert repr(model).startswith(f"{type(model).__name__}(")


def test_a_parameter_is_set_by_its_name_or_refused() -> None:
    model = LinearClassifier(np.eye(2), [0, 1])
    assert model.set_params(classes=["no", "yes"]).classes_.tolist() == ["no", "yes"]
    with pytest.raises(ValueError, match="classes, coef, constant, deviations, encoding, feature_map, found 'weights'"):
        model.set_params(weights=1)


def test_a_regression_scores_by_r_squared() -> None:
    x, y = np.array([[1.0], [2.0], [4.0]]), np.array([1.0, 2.5, 3.5])
    theirs = LinearRegression(fit_intercept=False).fit(x, y)
    assert LinearRegressor(theirs.coef_).score(x, y) == pytest.approx(theirs.score(x, y), abs=1e-12)


def test_a_frame_is_encoded_by_the_models_own_encoding() -> None:
    encoding = Encoding(SCHEMA, scaling="unit", intercept=True)
    model = LinearClassifier([[1.0, 0.0, 0.0, -0.5]], ["no", "yes"], encoding)
    frame = pd.DataFrame({"sex": ["f", "m"], "age": [90, 10]})
    assert model.predict(frame).tolist() == ["yes", "no"]
    assert model.predict(np.array([[0.9, 1, 0, 1], [0.1, 0, 1, 1]])).tolist() == ["yes", "no"]
    assert clone(model).predict(frame).tolist() == ["yes", "no"]
    with pytest.raises(DataError, match="'age'"):
        model.predict(frame[["sex"]])


def test_a_frame_of_numbers_needs_no_encoding() -> None:
    assert LinearClassifier([[1.0, -1.0]], [0, 1]).predict(pd.DataFrame([[2.0, 1.0]])).tolist() == [1]


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((2, 3)),
        np.ones(2),
        [["a", "b"]],
        np.array([[np.nan, 1.0]]),
        pd.DataFrame({"x": ["u"], "y": [1]}),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: Any) -> None:
    with pytest.raises(DataError):
        LinearClassifier([[1.0, -1.0]], [0, 1]).predict(rows)


@pytest.mark.parametrize(
    ("coef", "classes"), [([[1.0]], [0, 1, 2]), ([1.0], [0, 1]), ([[1.0]], [0]), (np.ones((3, 1)), [0, 1])]
)
def test_weights_and_classes_must_agree(coef: Any, classes: Any) -> None:
    with pytest.raises(DataError, match="one row per class"):
        LinearClassifier(coef, classes).predict(np.ones((1, 1)))


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_feature_map_comes_between_the_encoding_and_the_weights(classes: int, constant: bool) -> None:
    encoding = Encoding(SCHEMA, scaling="unit")
    generator = np.random.default_rng(classes)
    mean, matrix = generator.normal(size=3), generator.normal(size=(3, 2))
    # The last weight is the intercept, whether the map gives the constant or not.
    coef = generator.normal(size=(1 if classes == 2 else classes, 3))
    names = ["no", "yes", "perhaps"][:classes]
    model = LinearClassifier(coef, names, encoding, FeatureMap(mean, matrix, constant=constant))
    frame = pd.DataFrame({"sex": ["f", "m", "m"], "age": [90, 10, 55]})
    rows = encoding.encode_features(frame)
    scores = (rows - mean) @ matrix @ coef[:, :2].T + coef[:, 2]
    np.testing.assert_allclose(model.decision_function(frame), scores[:, 0] if classes == 2 else scores, atol=1e-12)
    np.testing.assert_allclose(clone(model).predict_proba(rows), model.predict_proba(frame), atol=1e-12)
    assert model.n_features_in_ == 3
    with pytest.raises(DataError, match="3 features"):
        model.predict(np.ones((2, 2)))


@pytest.mark.parametrize("width", [1, 4])
def test_weights_must_fit_the_feature_map(width: int) -> None:
    model = LinearClassifier(np.ones((1, width)), [0, 1], None, FeatureMap(np.zeros(3), np.eye(3)[:, :2]))
    with pytest.raises(DataError, match="2 dimensions of the feature map"):
        model.predict(np.ones((1, 3)))


def test_the_constant_classifier_says_the_likeliest_class() -> None:
    model = clone(ConstantClassifier([0.2, 0.5, 0.3], ["a", "b", "c"]))
    frame = pd.DataFrame({"age": [1, 2]})
    check_is_fitted(model)
    assert model.predict(frame).tolist() == ["b", "b"]
    assert model.predict_proba(frame).tolist() == [[0.2, 0.5, 0.3]] * 2
    assert model.score(frame, ["b", "a"]) == 0.5
    with pytest.raises(DataError, match="sum to 1"):
        ConstantClassifier([0.2, 0.5], ["a", "b"]).predict(frame)


def test_labels_of_mixed_kind_stay_what_they_are() -> None:
    assert LinearClassifier([[1.0]], ["0", 1]).predict(np.array([[-1.0], [1.0]])).tolist() == ["0", 1]

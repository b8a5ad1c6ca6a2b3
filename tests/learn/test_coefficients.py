"""Coefficients of released models follow scikit-learn: `X @ coef_.T + intercept_` is what the model decides by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from tests.report.small_studies import small_study

from comity.artefacts.artefact import save_artefact
from comity.artefacts.section import Dots
from comity.data import Bounded, Classes, Encoding, Numeric, Schema, clinic_schema, clinics
from comity.data.encoding import Rows
from comity.entropy import Stream
from comity.learn import load_model
from comity.learn.classifiers import LinearClassifier
from comity.learn.feature_map import fit_pca, fit_random_features, fit_self_training_map, fit_whitened_pca
from comity.learn.regressor import LinearRegressor
from comity.study.simulation.simulate import run_study

FRAME = clinics(1, 60, "coefficients")["clinic-01"]
CLASSES = {1: ("no", "yes"), 2: ("no", "yes"), 3: ("a", "b", "c")}


def weights(rows: int, columns: int) -> NDArray[np.float64]:
    return np.random.default_rng(7).normal(size=(rows, columns))


def encoding(rows: Rows = "scaled", *, intercept: bool = True) -> Encoding:
    return Encoding(clinic_schema(None), rows=rows, intercept=intercept)


def follows(model: Any, X: Any) -> None:
    decided = model.predict(X) if isinstance(model, LinearRegressor) else model.decision_function(X)
    by_hand = model.encode(X) @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(by_hand.reshape(decided.shape), decided, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("rows", get_args(Rows))
@pytest.mark.parametrize("released", [1, 2, 3])
def test_a_classifier_decides_by_its_coefficients(released: int, rows: Rows, intercept: bool) -> None:
    made = encoding(rows, intercept=intercept)
    model = LinearClassifier(weights(released, made.width), CLASSES[released], made)
    follows(model, FRAME)
    outputs = 3 if released == 3 else 1
    # A constant feature that is rescaled with its row is no constant, and stays a feature.
    features = made.width - (intercept and rows in ("none", "scaled"))
    assert model.coef_.shape == (outputs, features) and model.intercept_.shape == (outputs,)
    assert model.encode(FRAME).shape == (60, features) and model.n_features_in_ == features
    assert (model.intercept_ != 0).all() == (features < made.width)


@pytest.mark.parametrize("rows", ["none", "scaled"])
def test_encoded_rows_are_taken_with_and_without_their_constant(rows: Rows) -> None:
    made = encoding(rows)
    model = LinearClassifier(weights(1, made.width), CLASSES[1], made)
    with_constant = made.encode_features(FRAME)
    for X in (FRAME, with_constant, with_constant[:, :-1], model.encode(FRAME)):
        np.testing.assert_allclose(model.decision_function(X), with_constant @ weights(1, made.width)[0], rtol=1e-9)
    number = LinearRegressor(weights(1, made.width)[0], 0, 10, made)
    for X in (with_constant, with_constant[:, :-1]):
        np.testing.assert_allclose(number.predict(X), number.predict(FRAME), rtol=1e-9)


@pytest.mark.parametrize("rows", get_args(Rows))
def test_a_regressor_has_coefficients_in_the_units_of_its_target(rows: Rows) -> None:
    made = encoding(rows)
    model = LinearRegressor(weights(1, made.width)[0], 40, 240, made, np.full(made.width, 0.1), np.zeros(made.width))
    follows(model, FRAME)
    features = made.width - (rows in ("none", "scaled"))
    assert model.coef_.shape == (features,) and np.ndim(model.intercept_) == 0
    low, high = model.interval(0.95).T
    np.testing.assert_allclose((low + high) / 2, model.coef_)
    np.testing.assert_allclose(high - low, 2 * 1.959964 * 0.1 * 100, rtol=1e-6)
    assert model.dominated_.shape == (features,)
    assert model.intercept_interval(0.95)[0] <= model.intercept_ <= model.intercept_interval(0.95)[1]


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize(
    ("made_by", "linear"),
    [
        (lambda rows: fit_whitened_pca(rows), True),
        (lambda rows: fit_pca(rows, 4), True),
        (lambda rows: fit_self_training_map(rows), False),
        (lambda rows: fit_random_features(rows, 9, Stream.public("coefficients")), False),
    ],
    ids=["whitened", "pca", "self-training", "random"],
)
@pytest.mark.parametrize("released", [1, 3])
def test_a_feature_map_is_in_the_coefficients_or_in_the_matrix(
    released: int, made_by: Any, linear: bool, extra: int
) -> None:
    made = encoding("scaled")
    mapping = made_by(made.encode_features(FRAME))
    model = LinearClassifier(weights(released, mapping.dimensions + extra), CLASSES[released], made, mapping)
    follows(model, FRAME)
    follows(model, made.encode_features(FRAME))
    if linear:
        # Of encoded features, by their names.
        assert model.coef_.shape[1] == made.width - 1 == model.n_features_in_
        follows(model, model.encode(FRAME))
    else:
        assert model.coef_.shape[1] == mapping.dimensions


def test_without_an_encoding_the_constant_is_said(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(20, 4))
    model = LinearClassifier(weights(1, 5), CLASSES[1], constant=0.5)
    follows(model, rows)
    assert model.coef_.shape == (1, 4) and model.intercept_[0] == 0.5 * weights(1, 5)[0, -1]
    plain = LinearClassifier(weights(1, 4), CLASSES[1])
    assert plain.coef_.shape == (1, 4) and plain.intercept_.tolist() == [0.0]
    number = LinearRegressor(weights(1, 5)[0], 0, 10, constant=0.5)
    follows(number, rows)
    for one in (model, number):
        save_artefact(one, tmp_path / type(one).__name__)
        again: Any = load_model(tmp_path / type(one).__name__)
        np.testing.assert_array_equal(again.coef_, one.coef_)
        np.testing.assert_array_equal(again.intercept_, one.intercept_)


@pytest.mark.parametrize("linear", [False, True])
def test_files_of_the_release_before_load(tmp_path: Path, linear: bool) -> None:
    """Of 0.2.0: all weights in one array, the constant's last, and no word of a constant on the page."""
    target = Bounded("readmitted", 0, 10) if linear else Classes("readmitted", ("no", "yes"))
    schema = clinic_schema("readmitted")
    made = Encoding(type(schema)(schema.columns, target, schema.identifier), rows="scaled", intercept=True)
    stored = weights(2 if linear else 1, made.width)
    page: dict[str, Any] = {
        "format": "comity-model",
        "version": 1,
        "classes": [] if linear else ["no", "yes"],
        "kind": "regression" if linear else "linear",
        "shape": list(stored.shape),
        "encoding": {
            "schema": made.schema.to_toml(),
            "scaling": "symmetric",
            "rows": "scaled",
            "intercept": True,
            "bins": False,
        },
    }
    page |= {"low": 0.0, "high": 10.0} if linear else {}
    (tmp_path / "model.json").write_text(json.dumps(page))
    np.savez(tmp_path / "weights.npz", coef=stored)
    model: Any = load_model(tmp_path)
    follows(model, FRAME)
    score = made.encode_features(FRAME) @ stored[0]
    np.testing.assert_allclose(
        model.predict(FRAME) if linear else model.decision_function(FRAME), 5 + 5 * score if linear else score
    )
    assert model.coef_.shape[-1] == made.width - 1


@pytest.mark.parametrize(
    "case",
    [
        "softlabel default delta=0",
        "softlabel default statistic=class-sums",
        "softlabel default feature_map=random",
        "softlabel published method=vote",
        "averaging default delta=1e-6",
        "averaging default model=linear",
        "averaging default model=softmax",
        "averaging default model=svm",
        "vertical default delta=1e-6",
        "vertical default model=linear",
    ],
)
def test_the_model_of_every_method_follows(case: str, tmp_path: Path) -> None:
    found = run_study(small_study(case, tmp_path, **{"simulation.baselines": False}), seed=1)
    model, people = found.model, pd.read_csv(tmp_path / "people.csv")
    follows(model, people)
    save_artefact(model, tmp_path / "model")
    follows(load_model(tmp_path / "model"), people)
    assert model.coef_.shape[-1] == model.encode(people).shape[1]


def test_a_coefficient_that_cant_be_told_has_no_interval_and_words_on_the_page() -> None:
    """The others lie around what has less of the ridge in it."""
    schema = Schema((Numeric("age", 0, 1), Numeric("dose", 0, 1)), Bounded("y", 0, 10))
    encoding = Encoding(schema, scaling="symmetric", rows="none", intercept=True)
    model = LinearRegressor(
        [0.1, 0.2, 0.0], 0, 10, encoding, errors=[0.01, 0.01, 0.01], shrunk=[0.0, 0.9, 0.0], unshrunk=[0.15, 0.9, 0.1]
    )
    low, high = model.interval().T
    assert (low[0] + high[0]) / 2 == pytest.approx(5 * 0.15) and (low[1], high[1]) == (-np.inf, np.inf)
    assert model.intercept_interval().mean() == pytest.approx(5.5) and model.intercept_ == pytest.approx(5.0)
    section = model.section()
    rows = {row[0]: row for row in section.tables[0].rows}
    assert rows["dose"][2:] == ("can't be told", "can't be told") and rows["age"][2] == pytest.approx(0.75)
    assert "1 of all can't be told" in section.tables[0].note
    plot = section.plots[0]
    assert isinstance(plot, Dots) and [dot.label for dot in plot.dots] == ["age"]

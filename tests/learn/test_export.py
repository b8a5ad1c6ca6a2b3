"""Exported models predict what the released ones predict, say what they are protected by, and run no code."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import comity
from comity.data import Bounded, Categorical, Classes, Date, Encoding, Numeric, Ordinal, Schema, clinic_schema, clinics
from comity.entropy import Stream
from comity.errors import BadInput, DataError
from comity.learn import LinearClassifier, LinearRegressor
from comity.learn.classifiers import ConstantClassifier
from comity.learn.export import export_model
from comity.learn.feature_map import fit_random_features, fit_whitened_pca

ABOUT = {"guarantee": "eps 1.00 per party"}
COLUMNS = (
    Numeric("age", 0, 120, integer=True, missing="fill", fill=40),
    Numeric("income", 0, 1e6, scale="log", missing="cell"),
    Numeric("dose", 0, 10, edges=(2, 5), missing="cell"),
    Numeric("weight", 30, 200),
    Categorical("sex", ("f", "m"), other=True, missing="other"),
    Categorical("ward", ("a", "b", "c"), missing="cell"),
    Ordinal("triage", ("low", "mid", "high"), missing="fill", fill="mid"),
    Ordinal("pain", ("none", "some", "much"), missing="cell"),
    Date("day", date(2020, 1, 1), date(2020, 12, 31), missing="cell"),
)


def frame_of(count: int) -> pd.DataFrame:
    chance = np.random.default_rng(5)

    def holes(values: Any, share: float = 0.15) -> Any:
        return pd.Series(values, dtype=object).where(chance.random(count) > share, None)

    return pd.DataFrame(
        {
            "age": holes(chance.integers(-5, 140, count)),
            "income": holes(np.exp(chance.normal(9, 3, count))),
            "dose": holes(np.round(chance.uniform(-1, 11, count), 0)),
            "weight": chance.uniform(10, 250, count),
            "sex": holes(chance.choice(["f", "m", "x"], count)),
            "ward": holes(chance.choice(["a", "b", "c"], count)),
            "triage": holes(chance.choice(["low", "mid", "high"], count)),
            "pain": holes(chance.choice(["none", "some", "much"], count)),
            "day": holes(pd.Timestamp("2020-01-01") + pd.to_timedelta(chance.integers(0, 366, count), "D")),
        }
    )


def inputs_of(frame: pd.DataFrame) -> dict[str, Any]:
    """What the documentation says that an ONNX model takes."""
    made: dict[str, Any] = {}
    for column in COLUMNS:
        series = frame[column.name]
        if isinstance(column, Categorical | Ordinal):
            made[column.name] = series.fillna("").astype(str).to_numpy(object)[:, None]
        elif isinstance(column, Date):
            days = (pd.to_datetime(series) - pd.Timestamp(column.low)).dt.days
            made[column.name] = days.to_numpy(np.float64, na_value=np.nan)[:, None]
        else:
            made[column.name] = pd.to_numeric(series).to_numpy(np.float64, na_value=np.nan)[:, None]
    return made


def run_onnx(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    runtime = pytest.importorskip("onnxruntime", reason="comity[export] is not installed: no onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map == ABOUT
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, inputs)))


@pytest.mark.parametrize("rows", ["none", "scaled", "clipped", "normalised"])
@pytest.mark.parametrize(("scaling", "intercept", "bins"), [("symmetric", True, True), ("unit", False, False)])
@pytest.mark.parametrize("classes", [2, 3])
def test_onnx_predicts_the_same_from_raw_columns(
    rows: Any, scaling: Any, intercept: bool, bins: bool, classes: int, tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="comity[export] is not installed: no onnx")
    labels = ("no", "yes", "maybe")[:classes]
    schema = Schema(COLUMNS, Classes("y", labels))
    encoding = Encoding(schema, scaling=scaling, rows=rows, intercept=intercept, bins=bins)
    chance = np.random.default_rng(classes)
    model = LinearClassifier(chance.normal(0, 3, (1 if classes == 2 else classes, encoding.width)), labels, encoding)
    frame = frame_of(300)
    found = run_onnx(export_model(model, tmp_path / "model.onnx", ABOUT), inputs_of(frame))
    assert found["probabilities"] == pytest.approx(model.predict_proba(frame), abs=1e-9)
    assert (found["label"] == model.predict(frame)).all() and len(set(found["label"])) == classes


def test_onnx_of_a_regression_and_of_a_linear_feature_map(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="comity[export] is not installed: no onnx")
    frame, chance = frame_of(200), np.random.default_rng(2)
    encoding = Encoding(Schema(COLUMNS, Bounded("cost", 0, 500)), rows="scaled", intercept=True)
    regression = LinearRegressor(chance.normal(0, 1, encoding.width), 0, 500, encoding)
    found = run_onnx(export_model(regression, tmp_path / "a.onnx", ABOUT), inputs_of(frame))
    assert found["predicted"][:, 0] == pytest.approx(regression.predict(frame))
    plain = Encoding(Schema(COLUMNS, Classes("y", ("no", "yes"))), rows="normalised")
    through = fit_whitened_pca(plain.encode_features(frame), 5)
    mapped = LinearClassifier(chance.normal(0, 1, (1, through.dimensions)), ("no", "yes"), plain, through)
    found = run_onnx(export_model(mapped, tmp_path / "b.onnx", ABOUT), inputs_of(frame))
    assert found["probabilities"] == pytest.approx(mapped.predict_proba(frame))


def test_a_value_that_the_schema_refuses_gives_nothing_instead_of_a_guess(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="comity[export] is not installed: no onnx")
    encoding = Encoding(Schema((Categorical("ward", ("a", "b")), Numeric("age", 0, 9)), Classes("y", ("no", "yes"))))
    model = LinearClassifier([[1.0, 2.0, 3.0]], ("no", "yes"), encoding)
    inputs = {"ward": np.array([["a"], ["z"], [""], ["b"]], object), "age": np.array([[1.0], [1.0], [1.0], [np.nan]])}
    found = run_onnx(export_model(model, tmp_path / "model.onnx", ABOUT), inputs)
    assert np.isnan(found["probabilities"][1:]).all() and list(found["label"][1:]) == ["", "", ""]
    assert found["label"][0] == model.predict(pd.DataFrame({"ward": ["a"], "age": [1.0]}))[0]


def test_skops_gives_back_a_model_of_scikit_learn(tmp_path: Path) -> None:
    io = pytest.importorskip("skops.io", reason="comity[export] is not installed: no skops")
    frame, chance = frame_of(100), np.random.default_rng(3)
    for labels in (("no", "yes"), ("a", "b", "c")):
        encoding = Encoding(Schema(COLUMNS, Classes("y", labels)), rows="scaled", intercept=True)
        weights = chance.normal(0, 2, (1 if len(labels) == 2 else len(labels), encoding.width))
        model = LinearClassifier(weights, labels, encoding)
        path = export_model(model, tmp_path / "model.skops", ABOUT)
        # Nothing in the file is of a type that its reader would have to trust.
        assert io.get_untrusted_types(file=path) == []
        loaded = io.load(path)
        assert type(loaded).__name__ == "LogisticRegression" and loaded.comity_ == ABOUT
        assert loaded.predict_proba(model.encode(frame)) == pytest.approx(model.predict_proba(frame))
        assert (loaded.predict(model.encode(frame)) == model.predict(frame)).all()
        assert loaded.feature_names_[0] == "age"
    encoding = Encoding(Schema(COLUMNS, Bounded("cost", 0, 500)))
    regression = LinearRegressor(chance.normal(0, 1, encoding.width), 0, 500, encoding)
    loaded = io.load(export_model(regression, tmp_path / "number.skops", ABOUT))
    assert loaded.predict(regression.encode(frame)) == pytest.approx(regression.predict(frame))


def test_what_has_no_such_form_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(1).normal(0, 1, (50, 4))
    curved = fit_random_features(rows, 3, Stream.public("test"))
    with pytest.raises(DataError, match="not linear"):
        export_model(LinearClassifier([[1.0, 1.0, 1.0]], (0, 1), None, curved), tmp_path / "m.onnx", ABOUT)
    with pytest.raises(DataError, match="found ConstantClassifier"):
        export_model(ConstantClassifier([0.5, 0.5], ("a", "b")), tmp_path / "m.onnx", ABOUT)
    plain = LinearClassifier([[1.0, 1.0]], ("a", "b"))
    with pytest.raises(BadInput, match=r"ends in \.onnx or \.skops"):
        export_model(plain, tmp_path / "m.pkl", ABOUT)
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(BadInput, match=r"pip install 'comity\[export\]'"):
        export_model(plain, tmp_path / "m.onnx", ABOUT)


def test_a_result_exports_its_model_with_its_guarantee(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="comity[export] is not installed: no onnx")
    frames = clinics(3, 30)
    method = comity.Averaging(clinic_schema("readmitted"), sizes=30, rounds=1)
    result = method.simulate(frames, epsilon=5, delta=1e-6, seed=1)
    made = onnx.load(result.export(tmp_path / "model.onnx"))
    told = {one.key: one.value for one in made.metadata_props}
    assert "made with a seed: a simulation, not a private release" in told["guarantee"]
    assert told["study_hash"] == result.study_hash and "[columns" in told["schema"]
    assert [one.name for one in made.graph.input] == list(clinic_schema("readmitted").names)

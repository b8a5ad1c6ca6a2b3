from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comity.artefacts import arrays
from comity.artefacts.artefact import save_artefact
from comity.data.encoding import Encoding
from comity.data.schemas.columns import Categorical, Classes, Numeric
from comity.data.schemas.schema import Schema
from comity.errors import ComityError, DataError
from comity.learn import ConstantClassifier, FeatureMap, LinearClassifier, load_model

SCHEMA = Schema((Numeric("age", 0, 100), Categorical("sex", ("f", "m"))), Classes("ill", ("no", "yes")))
ENCODING = Encoding(SCHEMA, scaling="unit", rows="scaled", intercept=True)
MODEL = LinearClassifier([[0.1, 1 / 3, -2.0, 1e-17]], ["no", "yes"], ENCODING)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_artefact(MODEL, tmp_path / "model")
    return tmp_path / "model"


def test_a_model_comes_back_exactly(folder: Any) -> None:
    again = load_model(folder)
    assert isinstance(again, LinearClassifier)
    assert np.array_equal(again.coef_, MODEL.coef_)
    assert again.encoding == ENCODING
    frame = pd.DataFrame({"age": [3, 99], "sex": ["m", "f"]})
    assert np.array_equal(again.predict_proba(frame), MODEL.predict_proba(frame))
    assert again.predict(frame).tolist() == MODEL.predict(frame).tolist()


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    feature_map = FeatureMap(
        np.array([0.1, 1 / 3, 0.2, 0.5]),
        np.eye(4)[:, :2] / 3,
        None,
        True,
        np.array([0.1, -0.2]),
        np.array([[2.0], [1]]),
    )
    save_artefact(LinearClassifier([[0.7, -0.1]], ["no", "yes"], ENCODING, feature_map), tmp_path / "model")
    return tmp_path / "model"


def test_a_feature_map_comes_back_with_its_model(mapped: Any) -> None:
    again = load_model(mapped)
    frame = pd.DataFrame({"age": [3, 99], "sex": ["m", "f"]})
    turned = (ENCODING.encode_features(frame) - [0.1, 1 / 3, 0.2, 0.5])[:, :2] / 3
    turned = (turned / np.linalg.norm(turned, axis=1, keepdims=True) - [0.1, -0.2]) @ [2.0, 1.0]
    np.testing.assert_allclose(cast(Any, again).decision_function(frame), 0.7 * turned - 0.1, atol=1e-14)
    page = json.loads((mapped / "model.json").read_text())
    assert page["kind"] != "linear", "a reader without maps would take it for a plain one"


def test_a_feature_map_that_is_wrong_is_noticed(mapped: Any) -> None:
    with np.load(mapped / "weights.npz") as stored:
        arrays = dict(stored)
    wrong = (
        {"map.matrix": np.eye(3)},
        {"map.mean": np.full(4, np.nan)},
        {"map.normalise": np.ones(3)},
        {"map.mean": np.array(["a", "b", "c", "d"])},
        {"map.mean": np.zeros(3), "map.matrix": np.eye(3)[:, :2]},
        {"map.more": np.ones(1)},
    )
    for changed in wrong:
        np.savez(mapped / "weights.npz", **(arrays | changed))
        with pytest.raises(DataError, match="fetch"):
            load_model(mapped)
    np.savez(mapped / "weights.npz", coef=arrays["coef"])
    with pytest.raises(DataError, match="feature map"):
        load_model(mapped)


@pytest.mark.parametrize("classes", [[0, 1, 2], ["a", "b", "ü"], [0.5, 1.5, 2.5], np.array([3, 1, 2])])
def test_labels_and_bare_weights_come_back(tmp_path: Path, classes: Any) -> None:
    save_artefact(LinearClassifier(np.eye(3), classes), tmp_path)
    again = load_model(tmp_path)
    assert again.encoding is None
    assert cast(Any, again).classes_.tolist() == np.asarray(classes).tolist()


def test_a_constant_comes_back(tmp_path: Path) -> None:
    save_artefact(ConstantClassifier([0.25, 0.75], ["a", "b"]), tmp_path)
    assert cast(Any, load_model(tmp_path)).predict_proba([0]).tolist() == [[0.25, 0.75]]


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("format", "pickle", "format"),
        ("version", 2, "another version of comity"),
        ("kind", "forest", "forest"),
        ("kind", None, "kind"),
        ("classes", "no", "classes"),
        ("classes", [["no"], "yes"], "classes"),
        ("classes", ["no", "no"], "classes"),
        ("classes", ["no", "yes", "perhaps"], "one row per class"),
        ("shape", [4, 1], "shape"),
        ("encoding", {"schema": 3}, "schema"),
        ("encoding", {"schema": "columns = 3"} | dict.fromkeys(["scaling", "rows"], "none"), "intercept"),
    ],
)
def test_a_page_that_is_wrong_is_named(folder: Any, key: str, value: Any, sentence: str) -> None:
    page = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(page | {key: value}))
    with pytest.raises(DataError, match=sentence) as caught:
        load_model(folder)
    assert "model" in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [("schema", "[columns.a]\nkind='no'"), ("rows", "upside down")])
def test_an_encoding_that_is_wrong_is_data_of_the_model(folder: Any, key: str, value: str) -> None:
    page = json.loads((folder / "model.json").read_text())
    page["encoding"][key] = value
    (folder / "model.json").write_text(json.dumps(page))
    with pytest.raises(DataError, match="fetch the model again"):
        load_model(folder)


def test_weights_of_another_model_are_noticed(folder: Any) -> None:
    page = json.loads((folder / "model.json").read_text())
    np.savez(folder / "weights.npz", coef=np.ones((1, 3)))
    (folder / "model.json").write_text(json.dumps(page | {"shape": [1, 3]}))
    with pytest.raises(DataError, match="not of one model"):
        load_model(folder)


@pytest.mark.parametrize(
    "coef", [np.array([[object()] * 4]), np.full((1, 4), np.nan), np.ones((1, 4), np.float32), np.ones(4)]
)
def test_weights_of_another_kind_are_refused(folder: Any, coef: Any) -> None:
    np.savez(folder / "weights.npz", coef=coef)
    with pytest.raises(DataError):
        load_model(folder)


def test_an_archive_that_would_unpack_without_end_is_not_opened(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MAX_BYTES", 2000)
    with zipfile.ZipFile(folder / "weights.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("coef.npy", bytes(100_000))
    with pytest.raises(DataError, match="not opened"):
        load_model(folder)


def test_missing_files_and_folders_are_named(folder: Any, tmp_path: Path) -> None:
    (folder / "weights.npz").unlink()
    with pytest.raises(DataError, match=r"weights\.npz"):
        load_model(folder)
    with pytest.raises(DataError, match="nowhere"):
        load_model(tmp_path / "nowhere")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["model.json", "weights.npz"]),
    at=st.integers(0, 10**6),
    byte=st.integers(0, 255),
    cut=st.booleans(),
)
def test_mutated_files_give_a_model_or_an_error_of_ours(folder: Any, name: Any, at: int, byte: int, cut: bool) -> None:
    whole = (folder / name).read_bytes()
    at %= len(whole)
    (folder / name).write_bytes(whole[:at] if cut else whole[:at] + bytes([byte]) + whole[at + 1 :])
    try:
        load_model(folder)
    except ComityError:
        pass
    finally:
        (folder / name).write_bytes(whole)


def test_what_cannot_be_stored_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Own:
        def encode_features(self, frame: Any) -> np.ndarray:
            return np.ones((len(frame), 1))

    with pytest.raises(DataError, match="Own"):
        save_artefact(LinearClassifier([[1.0]], [0, 1], Own()), tmp_path / "a")
    with pytest.raises(DataError, match="label"):
        save_artefact(LinearClassifier([[1.0]], [(1,), 1]), tmp_path / "a")
    assert not (tmp_path / "a").exists()

"""Local models: whatever an owner gives, its votes are rows of the simplex, and nothing that fails shows outside."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.validation import check_is_fitted

from comity.errors import DataError, StudyError
from comity.learn import from_callable, from_estimator, from_name, from_predictions
from comity.learn.local_models import LIBRARIES, Predictions, as_local_model, harden, local_votes

CLASSES = ("red", "green", "blue")


def clusters(classes: Any, rows: int = 90, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    centres = 3 * np.random.default_rng(5).normal(size=(classes, 4))
    labels = generator.integers(0, classes, rows)
    return centres[labels] + 0.3 * generator.normal(size=(rows, 4)), labels


def in_simplex(votes: Any) -> bool:
    return bool((votes >= 0).all() and (np.abs(votes.sum(-1) - 1) <= 1e-12).all())


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize(
    "estimator",
    [
        HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=2),
        make_pipeline(StandardScaler(copy=False), LogisticRegression()),
        RandomForestClassifier(10, random_state=0),
    ],
    ids=["boosted trees", "pipeline", "forest"],
)
def test_an_estimator_votes_for_the_clusters_it_has_seen(estimator: Any, classes: int, soft: bool) -> None:
    x, y = clusters(classes)
    public, truth = clusters(classes, seed=1)
    before = public.copy()
    votes = local_votes(from_estimator(estimator, soft=soft), x, y, public, classes)
    assert votes.shape == (90, classes) and in_simplex(votes)
    assert np.mean(votes.argmax(1) == truth) > 0.9
    fitted = clone(estimator).fit(x.copy(), y)
    expected = fitted.predict_proba(before.copy()) if soft else np.eye(classes)[fitted.predict(before.copy())]
    np.testing.assert_allclose(votes, expected, atol=1e-12)
    assert np.array_equal(public, before)
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)


@pytest.mark.parametrize("soft", [False, True])
def test_classes_that_a_party_lacks_keep_their_column(soft: bool) -> None:
    x, y = clusters(4)
    kept = np.isin(y, [1, 3])
    public, truth = clusters(4, seed=1)
    votes = local_votes(from_estimator(LogisticRegression(), soft=soft), x[kept], y[kept], public, 4)
    assert in_simplex(votes)
    assert not votes[:, [0, 2]].any()
    for label in (1, 3):
        assert (votes[truth == label].argmax(1) == label).mean() > 0.9


class Consecutive(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """As strict as boosted trees of other libraries: labels are 0, 1, 2, … without a gap."""

    def fit(self, X: Any, y: Any) -> Any:
        if not np.array_equal(np.unique(y), np.arange(y.max() + 1)):
            raise ValueError("labels with gaps")
        self.inner_ = LogisticRegression().fit(X, y)
        self.classes_ = self.inner_.classes_
        return self

    def predict(self, X: Any) -> Any:
        return self.inner_.predict(X)


def test_labels_are_counted_through_for_the_estimator_and_back() -> None:
    x, y = clusters(4)
    kept = np.isin(y, [1, 3])
    votes = local_votes(from_estimator(Consecutive()), x[kept], y[kept], x[y == 3], 4)
    assert votes[:, 3].mean() > 0.9


class Untouchable(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    def fit(self, X: Any, y: Any) -> None:
        raise AssertionError("fitted")

    def predict(self, X: Any) -> None:
        raise AssertionError("asked")


@pytest.mark.parametrize("soft", [False, True])
def test_one_class_is_voted_for_without_a_fit_and_none_evenly(soft: bool, caplog: pytest.LogCaptureFixture) -> None:
    x, _ = clusters(3, rows=5)
    model = from_estimator(SVC() if not soft else LogisticRegression(), soft=soft)
    untouched = from_estimator(Untouchable())
    for one in (model, untouched):
        assert local_votes(one, x, np.full(5, 2), x, 3).tolist() == [[0, 0, 1]] * 5
        assert (local_votes(one, x[:0], np.zeros(0, int), x, 3) == 1 / 3).all()
    assert not caplog.records
    assert (local_votes(untouched, x, np.array([0, 1, 0, 1, 0]), x, 3) == 1 / 3).all()
    assert "votes evenly" in caplog.text


def failing(features: Any, labels: Any, auxiliary: Any, classes: Any) -> None:
    raise MemoryError("too large")


@pytest.mark.parametrize(
    "function",
    [
        failing,
        lambda x, y, z, c: None,
        lambda x, y, z, c: "votes",
        lambda x, y, z, c: np.ones((len(z), c + 1)) / (c + 1),
        lambda x, y, z, c: np.ones((len(z) - 1, c)) / c,
        lambda x, y, z, c: np.ones((1, c)) / c,
        lambda x, y, z, c: np.full((len(z), c), np.nan),
        lambda x, y, z, c: np.full((len(z), c), np.inf),
        lambda x, y, z, c: np.zeros((len(z), c)),
        lambda x, y, z, c: np.ones((len(z), c)),
        lambda x, y, z, c: np.tile([2.0, -1.0, 0.0], (len(z), 1)),
        lambda x, y, z, c: np.full(len(z), c),
        lambda x, y, z, c: np.full(len(z), 0.5),
        lambda x, y, z, c: np.full(len(z), -1),
    ],
)
def test_whatever_a_model_does_wrong_it_votes_evenly_and_the_owner_is_told(
    function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = clusters(3, rows=7)
    with caplog.at_level(logging.ERROR, "comity.site"):
        votes = local_votes(from_callable(function), x, y, x, 3)
    assert np.array_equal(votes, np.full((7, 3), 1 / 3))
    assert "even" in caplog.text


@settings(max_examples=200, deadline=None)
@given(found=arrays(np.float64, (3, 4), elements=st.floats(width=64, allow_nan=True, allow_infinity=True)))
def test_any_numbers_become_rows_of_the_simplex(found: Any) -> None:
    assert in_simplex(local_votes(from_callable(lambda *_: found), np.zeros((1, 1)), np.zeros(1), np.zeros((3, 1)), 4))


def test_only_the_wrong_rows_are_evened() -> None:
    given_rows = np.array([[0.2, 0.8], [np.nan, 1.0], [0.5 + 4e-7, 0.5]])
    votes = local_votes(from_callable(lambda *_: given_rows), np.zeros((1, 1)), np.zeros(1), np.zeros((3, 1)), 2)
    assert votes[0].tolist() == [0.2, 0.8] and votes[1].tolist() == [0.5, 0.5]
    assert in_simplex(votes) and votes[2, 0] > 0.5


def test_class_indices_are_votes_too_and_models_cannot_change_what_they_are_given() -> None:
    def nearest(features: Any, labels: Any, auxiliary: Any, classes: Any) -> Any:
        features[:] = 0
        auxiliary[:] = 0
        return np.arange(len(auxiliary)) % classes

    x, y = clusters(3, rows=6)
    kept = x.copy()
    votes = local_votes(from_callable(nearest), x, y, x, 3)
    assert np.array_equal(votes, np.tile(np.eye(3), (2, 1)))
    assert np.array_equal(x, kept)


def test_a_stack_of_parties_votes_as_each_alone() -> None:
    sizes = (12, 0, 30, 7)
    parties = [clusters(3, rows, seed) for seed, rows in enumerate(sizes)]
    features, labels, present = np.full((4, 30, 4), np.nan), np.zeros((4, 30), int), np.zeros((4, 30), bool)
    for place, (x, y) in enumerate(parties):
        features[place, : len(x)], labels[place, : len(x)], present[place, : len(x)] = x, y, True
    public, _ = clusters(3, 15, seed=9)
    model = from_estimator(LogisticRegression(), soft=True)
    together = local_votes(model, features, labels, public, 3, filled=present)
    for votes, (x, y) in zip(together, parties):
        np.testing.assert_array_equal(votes, local_votes(model, x, y, public, 3))


def test_hardened_votes_are_whole_and_even_rows_stay() -> None:
    votes = np.array([[0.2, 0.5, 0.3], [1 / 3, 1 / 3, 1 / 3], [0.4, 0.4, 0.2], [0.0, 0.0, 1.0]])
    assert harden(votes).tolist() == [[0, 1, 0], [1 / 3, 1 / 3, 1 / 3], [1, 0, 0], [0, 0, 1]]
    assert harden(votes[None]).shape == (1, 4, 3)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (LogisticRegression, "estimator object"),
        (LinearRegression(), "no classifier"),
        (KMeans(), "no classifier"),
        (StandardScaler(), "fit and predict"),
        (3, "callable"),
        (dict, "function"),
    ],
)
def test_what_is_no_model_is_refused_when_it_is_given(value: Any, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        as_local_model(value)


def test_soft_votes_need_probabilities() -> None:
    with pytest.raises(StudyError, match="predict_proba"):
        from_estimator(LinearSVC(), soft=True)


# Files of predictions.


def predictions(source: Any, rows: int = 3, classes: Any = CLASSES, **where: Any) -> Predictions:
    return from_predictions(source, classes=classes, rows=rows, **where)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ({"label": ["blue", "red", "red"]}, [[0, 0, 1], [1, 0, 0], [1, 0, 0]]),
        ({"my guess": ["green", " blue", "red"]}, [[0, 1, 0], [0, 0, 1], [1, 0, 0]]),
        ({"id": [7, 8, 9], "label": ["red"] * 3}, [[1, 0, 0]] * 3),
        (
            {"blue": [0, 0.25, 1.0], "red": [1, 0.25, 0], "green": [0, 0.5, 0]},
            [[1, 0, 0], [0.25, 0.5, 0.25], [0, 0, 1]],
        ),
    ],
)
def test_labels_and_probabilities_are_read(tmp_path: Path, suffix: str, frame: Any, expected: Any) -> None:
    path = tmp_path / f"votes.{suffix}"
    table = pd.DataFrame(frame)
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    for source in (path, str(path), table):
        model = predictions(source)
        votes = local_votes(model, np.zeros((0, 4)), np.zeros(0, int), np.zeros((3, 4)), 3)
        assert votes.tolist() == expected
    assert predictions(path.name, base=tmp_path).votes.tolist() == expected


def test_numbers_name_classes_whatever_their_type() -> None:
    for values in (["0", "1", "1"], [0, 1, 1], [0.0, 1.0, 1.0], [False, True, True]):
        assert predictions(pd.DataFrame({"label": values}), classes=("0", "1")).votes[:, 1].tolist() == [0, 1, 1]
    table = pd.DataFrame({0: [0.5, 0.5, 1], 1: [0.5, 0.5, 0]})
    assert predictions(table, classes=("0", "1")).votes.tolist() == [[0.5, 0.5], [0.5, 0.5], [1, 0]]


def test_rounded_probabilities_are_brought_to_a_sum_of_one() -> None:
    third = 0.3333333
    model = predictions(pd.DataFrame({name: [third] * 3 for name in CLASSES}))
    assert in_simplex(model.votes)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"label": ["red", "red"]}, ["3 auxiliary records", "found 2"]),
        ({"label": ["red"] * 4}, ["found 4"]),
        ({"label": ["red", "gren", "red"]}, ["row 2", "a text that is no class", "one of red, green, blue"]),
        ({"label": ["red", "red", None]}, ["row 3", "missing"]),
        ({"red": [1, 0.5, 1], "green": [0, 0.4, 0], "blue": [0, 0, 0]}, ["row 2", "sum to 1"]),
        (
            {"red": [1, 1, 1.1], "green": [0, 0, -0.1], "blue": [0, 0, 0]},
            ["row 3", "'red'", "a number", "write"],
        ),
        ({"red": [1, 1, 1], "green": [0, -1e-9, 0], "blue": [0, 0, 0]}, ["row 2", "'green'"]),
        ({"red": [1, None, 1], "green": [0, 0, 0], "blue": [0, 0, 0]}, ["row 2", "'red'", "nothing"]),
        ({"red": [1, "x", 1], "green": [0, 0, 0], "blue": [0, 0, 0]}, ["row 2", "a text"]),
        ({"red": [1, np.inf, 1], "green": [0, 0, 0], "blue": [0, 0, 0]}, ["row 2", "a number"]),
        ({"red": [1, 1, 1], "green": [0, 0, 0]}, ["no column for 'blue'"]),
        ({"red": [1] * 3, "green": [0] * 3, "blue": [0] * 3, "pink": [0] * 3}, ["also a column 'pink'"]),
    ],
)
def test_a_wrong_file_is_named_with_its_row_and_a_remedy(tmp_path: Path, frame: Any, words: Any) -> None:
    path = tmp_path / "south_votes.csv"
    pd.DataFrame(frame).to_csv(path, index=False)
    with pytest.raises(DataError) as caught:
        predictions(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    for word in ["south_votes.csv", *words]:
        assert word in sentence, sentence


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        predictions(tmp_path / "south_votes.csv")


def test_predictions_for_another_study_vote_evenly(caplog: pytest.LogCaptureFixture) -> None:
    model = predictions(pd.DataFrame({"label": ["red"] * 3}))
    assert (local_votes(model, np.zeros((0, 1)), np.zeros(0), np.zeros((5, 1)), 3) == 1 / 3).all()
    assert "5 auxiliary records" in caplog.text


# Dotted names.


def test_a_dotted_name_makes_an_estimator_with_its_parameters() -> None:
    model = from_name("sklearn.ensemble.HistGradientBoostingClassifier", max_depth=3, soft=True)
    assert model.soft and model.estimator.max_depth == 3
    line = ["sklearn.preprocessing.StandardScaler", "sklearn.svm.SVC"]
    assert from_name(line, svc__C=2.5).estimator.get_params()["svc__C"] == 2.5


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("HistGradientBoostingClassifier", {}, "dotted name"),
        ("sklearn.ensemble.HistGradientBosting", {}, "did you mean 'HistGradientBoosting"),
        ("sklearn.ensembles.Forest", {}, "can't be imported"),
        ("no_such_package.Model", {}, "install"),
        ("sklearn.base.clone", {}, "no scikit-learn estimator"),
        ("collections.OrderedDict", {}, "no scikit-learn estimator"),
        ("sklearn.linear_model.LinearRegression", {}, "no classifier"),
        ("sklearn.preprocessing.StandardScaler", {}, "fit and predict"),
        ("sklearn.svm.SVC", {"gama": 1}, "did you mean 'gamma'"),
        ("sklearn.multiclass.OneVsRestClassifier", {}, "estimator"),
        (["sklearn.preprocessing.StandardScaler", "sklearn.svm.SVC"], {"svc__K": 1}, "no parameter of the pipeline"),
        ([], {}, "at least one"),
        ("../evil", {}, "dotted name"),
    ],
)
def test_a_name_that_is_no_classifier_is_explained(name: Any, parameters: Any, words: str) -> None:
    with pytest.raises(StudyError, match=words) as caught:
        from_name(name, **parameters)
    assert "\n" not in str(caught.value)


def test_what_others_wrote_imports_from_known_libraries_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sideways.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(StudyError, match="importing runs code"):
        from_name("sideways.Model", libraries=LIBRARIES)
    with pytest.raises(SystemExit):
        from_name("sideways.Model")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        (["sklearn.preprocessing.StandardScaler", "sklearn.linear_model.LogisticRegression"], {"memory": "cache"}),
        (["sklearn.pipeline.Pipeline", "sklearn.svm.SVC"], {"pipeline__memory": "cache"}),
        ("sklearn.ensemble.RandomForestClassifier", {"train_dir": "x"}),
    ],
)
def test_a_study_file_gives_no_model_a_place_to_load_from(name: Any, parameters: Any) -> None:
    """A cache that a library unpickles would run the study's author's code on the owner's machine."""
    with pytest.raises(StudyError, match="can run code"):
        from_name(name, libraries=LIBRARIES, **parameters)

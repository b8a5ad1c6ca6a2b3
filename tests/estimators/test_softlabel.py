from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from comity.errors import BudgetExceeded, DataError, StudyError
from comity.estimators import SoftLabelClassifier
from comity.estimators.table import name_parties, split_rows
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours, Unit


def sample(count: int = 300, classes: int = 2, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4))
    scores = x @ np.random.default_rng(9).normal(size=(4, classes))
    return x, np.array(["ash", "birch", "cedar"])[scores.argmax(1)]


X, Y = sample()
PUBLIC, _ = sample(100, seed=1)


def estimator(**options: Any) -> SoftLabelClassifier:
    return SoftLabelClassifier(PUBLIC, **{"epsilon": 30.0, "bound": 3.0, "l2": 1e-3, "random_state": 0} | options)


def ledger(tmp_path: Path, epsilon: float = 3.0, unit: Any = Unit.PARTY) -> Any:
    # So few numbers are released that noise of pure epsilon is the quieter one.
    grant = Pure(epsilon)
    return Ledger.create(tmp_path / "x.ledger", dataset="x", grant=grant, unit=unit, neighbours=Neighbours.REPLACE)


@pytest.mark.parametrize("method", [None, "avg", "soft"])
@pytest.mark.parametrize("classes", [2, 3])
def test_it_learns_and_predicts_labels_as_they_were_given(method: Any, classes: int) -> None:
    x, y = sample(600, classes)
    tested, truth = sample(200, classes, seed=5)
    model = estimator(method=method, epsilon=500.0, parties=30).fit(x, y)
    assert model.classes_.tolist() == ["ash", "birch", "cedar"][:classes]
    assert model.score(tested, truth) > 0.8
    shares = model.predict_proba(tested)
    assert shares.shape == (200, classes)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert (model.classes_[shares.argmax(1)] == model.predict(tested)).all()
    assert model.n_features_in_ == 4 and model.coef_.shape == (1 if classes == 2 else classes, 4)


def test_labels_keep_their_type() -> None:
    model = estimator().fit(X, (Y == "birch").astype(int))
    assert model.classes_.dtype.kind == "i" and model.predict(X).dtype.kind == "i"


def test_it_is_a_well_behaved_estimator() -> None:
    model = estimator(parties=10)
    assert is_classifier(model)
    copy = clone(model)
    assert copy is not model and copy.get_params()["parties"] == 10
    np.testing.assert_array_equal(copy.auxiliary, PUBLIC)
    with pytest.raises(NotFittedError):
        model.predict(X)
    fitted = model.fit(X, Y)
    assert fitted is model and model.set_params(epsilon=2.0).epsilon == 2.0
    with pytest.raises(ValueError, match="3 features"):
        model.predict(X[:, :3])
    sent = pickle.loads(pickle.dumps(model))
    assert (sent.predict(X) == model.predict(X)).all()
    assert make_pipeline(FunctionTransformer(), estimator()).fit(X, Y).predict(X).shape == (300,)
    assert GridSearchCV(estimator(), {"l2": [1e-3, 1e-2]}, cv=2).fit(X, Y).best_params_["l2"] in (1e-3, 1e-2)


def test_a_frame_keeps_its_column_names() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = SoftLabelClassifier(pd.DataFrame(PUBLIC, columns=list("abcd")), bound=3.0, random_state=0).fit(frame, Y)
    assert model.feature_names_in_.tolist() == list("abcd")


def test_seeds_repeat_and_their_absence_does_not() -> None:
    same = [estimator(epsilon=1.0).fit(X, Y).coef_ for _ in range(2)]
    np.testing.assert_array_equal(same[0], same[1])
    # Votes: a model made by self-training depends on the noise through labels only, which often agree.
    fresh = [estimator(epsilon=1.0, random_state=None, statistic="votes").fit(X, Y) for _ in range(2)]
    assert not np.array_equal(fresh[0].coef_, fresh[1].coef_)
    assert not fresh[0].guarantee_.seeded and estimator().fit(X, Y).guarantee_.seeded


def test_rows_enter_the_unit_ball_by_the_public_bound_alone() -> None:
    model = estimator(bound=2.0)
    wild = np.vstack([X, [[1e9, 0, 0, 0]], np.zeros((1, 4))])
    for intercept in (True, False):
        rows = model.set_params(intercept=intercept)._rows(wild)
        assert np.linalg.norm(rows, axis=1).max() <= 1
        np.testing.assert_array_equal(rows[: len(X)], model._rows(X))
    short = X[np.linalg.norm(X, axis=1) < 2]
    np.testing.assert_allclose(model._rows(short), short / 2, rtol=1e-9)


def test_groups_are_the_parties() -> None:
    groups = np.repeat([f"g{i}" for i in range(15)], 20)
    model = estimator().fit(X, Y, groups=groups)
    assert model.result_.parties == 15
    assert {account.party for account in model.result_.accounts} == set(groups)


@pytest.mark.parametrize("names", [[0.5, 1.5, 2.5], ["St. Mary", "S\u00fcd", "a/b"], ["a", "A", "b"]])
def test_groups_whose_names_no_party_may_have_are_numbered(names: list[Any]) -> None:
    rows = split_rows(6, 2, np.array(names * 2), "test")
    assert list(rows) == ["p0", "p1", "p2"] and sorted(np.concatenate(list(rows.values()))) == list(range(6))
    assert name_parties(["b", "a"]) == ["b", "a"]
    assert estimator(parties=7).fit(X, Y).result_.parties == 7


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"auxiliary": None}, DataError, "auxiliary is missing"),
        ({"auxiliary": PUBLIC[:, :2]}, DataError, "auxiliary must have the 4 features"),
        ({"bound": 0.0}, StudyError, "bound"),
        ({"method": "mean"}, StudyError, "method"),
        ({"epsilon": -1.0}, StudyError, "epsilon"),
        ({"delta": 2.0}, StudyError, "delta"),
        ({"parties": 301}, StudyError, "301 parties"),
        ({"classes": ["ash", "oak"]}, DataError, "not among classes"),
        ({"random_state": "x"}, StudyError, "random_state"),
    ],
)
def test_bad_parameters_are_named_and_cost_nothing(tmp_path: Path, options: Any, error: Any, said: str) -> None:
    books = ledger(tmp_path)
    with pytest.raises(error, match=said):
        SoftLabelClassifier(**{"auxiliary": PUBLIC, "ledger": books, "bound": 3.0} | options).fit(X, Y)
    assert len(books.entries()) == 1


def test_bad_rows_cost_nothing(tmp_path: Path) -> None:
    books = ledger(tmp_path)
    model = estimator(ledger=books, epsilon=1.0, random_state=None)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 2, np.nan, X), Y)
    with pytest.raises(DataError, match="two classes"):
        model.fit(X, np.full(300, "ash"))
    with pytest.raises(DataError, match="groups"):
        model.fit(X, Y, groups=[1, 2])
    assert len(books.entries()) == 1


def draws(books: Any) -> Any:
    return [entry for entry in books.entries() if entry.kind == "draw"]


def test_a_fit_is_debited_before_it_happens_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    books = ledger(tmp_path, epsilon=1.2)
    model = estimator(ledger=tmp_path / "x.ledger", epsilon=1.0, random_state=None)
    model.fit(X, Y)
    first = model.coef_
    (entry,) = draws(books)
    assert entry.loss == "pure:1.0" and entry.step == "fit"
    assert float(books.summary()[0].left) == pytest.approx(0.2, abs=1e-3)
    with pytest.raises(BudgetExceeded):
        model.fit(X, Y)
    np.testing.assert_array_equal(model.coef_, first)
    assert len(draws(books)) == 1
    import comity.estimators.simulated_estimator as module

    def broken(*arguments: Any, **options: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(module, "run_simulation", broken)
    books.grant_more(Pure(1), "more")
    with pytest.raises(MemoryError):
        model.fit(X, Y)
    # What was about to be drawn is spent, whatever became of it.
    assert len(draws(books)) == 2
    books.verify()


def test_a_ledger_of_records_pays_the_same_and_a_stronger_unit_is_not_claimed(tmp_path: Path) -> None:
    books = ledger(tmp_path, unit=Unit.RECORD)
    estimator(ledger=books, epsilon=1.0, random_state=None).fit(X, Y)
    assert [entry.unit for entry in draws(books)] == ["record"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_cross_validation_is_debited_for_every_fit(tmp_path: Path, jobs: int) -> None:
    books = ledger(tmp_path, epsilon=10.0)
    for number, bound_to in enumerate((books, str(tmp_path / "x.ledger")), start=1):
        model = SoftLabelClassifier(PUBLIC, parties=6, epsilon=1.0, bound=3.0, ledger=bound_to)
        scores = cross_val_score(model, X, Y, cv=3, n_jobs=jobs, error_score="raise")
        assert scores.shape == (3,)
        assert len(draws(books)) == 3 * number
    assert len({entry.run for entry in draws(books)}) == 6
    books.verify()


def test_cross_validation_stops_when_the_budget_is_gone(tmp_path: Path) -> None:
    books = ledger(tmp_path, epsilon=1.2)
    model = SoftLabelClassifier(PUBLIC, parties=6, epsilon=1.0, bound=3.0, ledger=books)
    with pytest.raises(BudgetExceeded):
        cross_val_score(model, X, Y, cv=3, error_score="raise")
    assert len(draws(books)) == 1


def test_a_seed_beside_a_ledger_warns_and_pays(tmp_path: Path) -> None:
    books = ledger(tmp_path)
    with pytest.warns(UserWarning, match="protects nobody"):
        model = estimator(ledger=books, epsilon=1.0).fit(X, Y)
    assert len(draws(books)) == 1 and not model.guarantee_.private

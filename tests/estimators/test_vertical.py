"""Columns of several owners behind scikit-learn's interface: what is learnt, refused, charged and told."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.errors import DataError, StudyError
from comity.estimators import VerticalClassifier, VerticalRegressor
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit


def table(rows: int = 1500, width: int = 4) -> Any:
    generator = np.random.default_rng(0)
    X = generator.uniform(-2, 2, (rows, width))
    score = X @ np.array([1.5, -1.0, 0.5, 0.0])[:width] - 0.5
    return X, score, generator


def labelled(rows: int = 1500, width: int = 4) -> Any:
    X, score, generator = table(rows, width)
    return X, np.where(generator.uniform(size=rows) < 1 / (1 + np.exp(-score)), "yes", "no")


def test_a_classifier_learns_from_columns_of_several_parties() -> None:
    X, y = labelled()
    for parties in (2, 3):
        made = VerticalClassifier(parties=parties, bounds=(-2, 2), epsilon=20, random_state=1).fit(X, y)
        assert made.score(X, y) > np.mean(y == "no") + 0.1
        chance = made.predict_proba(X[:5])
        assert chance.shape == (5, 2) and list(made.classes_) == ["no", "yes"]
        assert made.coef_.shape == (1, 4) and made.intercept_.shape == (1,) and made.clipped_ == 0.0
        assert "simulation" in str(made.guarantee_).lower()


def test_weights_are_those_of_a_logistic_fit_where_noise_is_small() -> None:
    from comity.learn.fits import fit_logistic

    X, y = labelled(4000)
    made = VerticalClassifier(bounds=(-2, 2), epsilon=500, rounds=8, random_state=1).fit(X, y)
    rows = np.column_stack([X / 2, np.ones(len(X))])
    wanted = fit_logistic(rows, (y == "yes").astype(float), 1e-6).weights
    assert np.abs(rows @ (made.model_.weights[0] - wanted)).mean() < 0.1
    tangent = VerticalClassifier(bounds=(-2, 2), epsilon=500, solver="quadratic", random_state=1).fit(X, y)
    assert np.abs(rows @ (tangent.model_.weights[0] - wanted)).mean() > 0.3


def test_a_regressor_has_intervals_and_says_what_a_ridge_decides() -> None:
    X, score, generator = table()
    y = np.clip(score + 0.3 * generator.normal(size=len(X)), -6, 6)
    made = VerticalRegressor(low=-6, high=6, bounds=(-2, 2), epsilon=20, random_state=1).fit(X, y)
    assert made.score(X, y) > 0.8
    low, high = made.interval().T
    # In the units of the columns and of the target.
    truth = np.array([1.5, -1.0, 0.5, 0.0])
    assert ((low <= truth) & (truth <= high)).sum() >= 3
    assert made.intercept_ == pytest.approx(-0.5, abs=0.2)
    assert not made.dominated_.any()
    few = VerticalRegressor(low=-6, high=6, bounds=(-200, 200), epsilon=0.5, random_state=1)
    with pytest.warns(UserWarning, match="takes up"):
        assert few.fit(X, y).dominated_.any()


def test_groups_name_the_party_of_each_column() -> None:
    X, y = labelled(400)
    made = VerticalClassifier(bounds=(-2, 2), random_state=1).fit(X, y, groups=["east", "west", "west", "north"])
    assert made.result_.declaration is not None and made.result_.parties == 3
    with pytest.raises(DataError, match="4 columns"):
        made.fit(X, y, groups=["east", "west"])
    with pytest.raises(DataError, match="two parties"):
        made.fit(X, y, groups=["east"] * 4)
    # Names that no party may have are numbers of parties.
    assert list(made._split_columns(4, ["a b", "c", "c", "a b"])) == ["p0", "p1"]


def test_one_column_is_enough_for_two_parties() -> None:
    X, y = labelled(400, 1)
    assert VerticalClassifier(bounds=(-2, 2), random_state=1).fit(X, y).coef_.shape == (1, 1)


def test_what_is_missing_or_wrong_is_refused_before_anything_is_debited(tmp_path: Path) -> None:
    X, y = labelled(300)
    ledger = Ledger.create(
        tmp_path / "t.ledger", dataset="t", grant=Approx(2, 1e-5), unit=Unit.RECORD, neighbours=Neighbours.REPLACE
    )
    for options, key in (
        ({}, "bounds"),
        ({"bounds": (2, -2)}, "bounds"),
        ({"bounds": [(0, 1)] * 3}, "bounds"),
        ({"bounds": (-2, 2), "parties": 1}, "parties"),
        ({"bounds": (-2, 2), "solver": "newton"}, "vertical.solver"),
    ):
        with pytest.raises(StudyError) as found:
            VerticalClassifier(ledger=ledger, **options).fit(X, y)
        assert found.value.key == key
    with pytest.raises(DataError, match="two classes"):
        VerticalClassifier(bounds=(-2, 2), ledger=ledger).fit(X, np.arange(300) % 3)
    assert not any(float(one.spent.gaussian) for one in ledger.summary())
    VerticalClassifier(bounds=(-2, 2), epsilon=1.0, ledger=ledger).fit(X, y)
    assert any(float(one.spent.gaussian) for one in ledger.summary())


def test_the_share_of_clipped_rows_is_told_to_the_caller_alone() -> None:
    X, y = labelled(500)
    made = VerticalClassifier(bounds=(-1, 1), random_state=1)
    with pytest.warns(UserWarning, match="not released"):
        made.fit(X, y)
    assert made.clipped_ == pytest.approx(np.mean((np.abs(X) > 1).any(axis=1)))
    assert (
        set(made.shares_clipped_) == {"instruments clipped", "scores clipped"} and not made.result_.assessment.measured
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        VerticalClassifier(bounds=(-2, 2)).fit(X, y)

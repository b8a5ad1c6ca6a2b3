"""The scikit-learn faces of averaged models."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor

from comity.errors import BudgetExceeded, DataError, StudyError
from comity.estimators.averaging import AveragedClassifier, AveragedRegressor
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit


def sample(count: int = 3000, classes: int = 2, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, 4))
    scores = x @ np.random.default_rng(9).normal(size=(4, 3))
    names = np.array(["ash", "birch", "cedar"])
    return x, names[scores[:, :classes].argmax(1)], np.clip(scores[:, 0], -6, 6)


@pytest.mark.parametrize(
    ("classes", "model", "delta"), [(2, None, 1e-6), (3, None, 1e-6), (2, "svm", 1e-6), (2, None, 0.0)]
)
def test_it_learns_labels_as_they_were_given(classes: int, model: Any, delta: float) -> None:
    x, y, _ = sample(classes=classes)
    tested, truth, _ = sample(500, classes, seed=5)
    made = AveragedClassifier(epsilon=3.0, delta=delta, model=model, bound=3.0, random_state=0).fit(x, y)
    assert is_classifier(made) and made.classes_.tolist() == ["ash", "birch", "cedar"][:classes]
    assert made.score(tested, truth) > (0.85 if delta else 0.75)
    np.testing.assert_allclose(made.predict_proba(tested).sum(1), 1)
    assert made.guarantee_.unit == "a record"


def test_it_learns_numbers_in_their_own_units() -> None:
    x, _, y = sample()
    tested, _, truth = sample(500, seed=5)
    made = AveragedRegressor(low=-6, high=6, epsilon=3.0, bound=3.0, random_state=0).fit(x, y)
    assert is_regressor(made) and made.score(tested, truth) > 0.7
    assert made.coef_.shape == (4,)


def test_groups_are_parties_and_clones_are_unfitted() -> None:
    x, y, _ = sample(600)
    groups = np.repeat(["north", "south", "west"], 200)
    made = AveragedClassifier(random_state=1, bound=3.0).fit(x, y, groups=groups)
    assert made.result_.parties == 3
    assert not hasattr(clone(made), "model_")


def test_a_fit_is_debited_before_it_is_made_or_refused(tmp_path: Path) -> None:
    x, y, _ = sample(300, seed=77)
    ledger = Ledger.create(
        tmp_path / "x.ledger", dataset="x", grant=Approx(1.2, 1e-6), unit=Unit.RECORD, neighbours=Neighbours.REPLACE
    )
    made = AveragedClassifier(ledger=ledger, bound=3.0, rounds=2)
    made.fit(x, y)
    assert 0.99 < made.guarantee_.epsilon <= 1 and made.guarantee_.private
    with pytest.raises(BudgetExceeded):
        clone(made).fit(x, y)


def test_bad_input_names_what_is_wrong() -> None:
    x, y, _ = sample(100)
    with pytest.raises(DataError, match="at least two classes"):
        AveragedClassifier().fit(x, np.repeat("a", 100))
    with pytest.raises(DataError, match="not among classes"):
        AveragedClassifier(classes=["ash", "oak"]).fit(x, y)
    with pytest.raises(StudyError, match="bound"):
        AveragedClassifier(bound=0.0).fit(x, y)
    with pytest.raises(StudyError, match="random_state"):
        AveragedClassifier(bound=3.0, random_state=cast(Any, "x")).fit(x, y)


def test_a_fit_says_what_share_of_rows_and_targets_its_bounds_cut() -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (200, 2))
    X[:10] *= 5 / np.linalg.norm(X[:10], axis=1, keepdims=True)
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    y[:6] = 9.0
    found = AveragedRegressor(bound=1.5, low=-1, high=1, random_state=0).fit(X, y)
    assert found.clipped_ == 0.05 and found.targets_clipped_ == 0.03
    assert found.interval().shape == (2, 2)
    labels = (X[:, 0] > 0).astype(int)
    assert AveragedClassifier(bound=1.5, random_state=0).fit(X, labels).clipped_ == 0.05

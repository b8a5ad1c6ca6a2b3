"""A joint model adapted to one owner's records: what it gains, that its scores are honest, and that the model is the
one that was scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from comity.data import Records
from comity.learn import adaptation
from comity.learn.adaptation import MIN_RECORDS, OwnFit, Rows, adapt_classes, adapt_numbers, spread_evenly
from comity.learn.classifiers import ConstantClassifier, LinearClassifier
from comity.learn.feature_map import FeatureMap
from comity.learn.regressor import LinearRegressor
from comity.methods.own_adaptation import adapt_linear

WEIGHTS = np.array([4.0, -3.0, 2.0, 0.0])


def rows(count: int, seed: int, width: int = 4) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, (count, width)) / np.sqrt(width)


def entries(x: Any) -> Rows:
    return Rows(x, np.ones(len(x)))


def draw(scores: Any, seed: int) -> Any:
    return (np.random.default_rng(seed).uniform(size=len(scores)) < expit(scores)).astype(np.int64)


def wrong(scores: Any, labels: Any) -> float:
    return float(np.mean((scores[:, 0] > 0) != labels))


def predict(fit: OwnFit, x: Any, joint: Any) -> Any:
    return fit.share * joint + x @ fit.weights.T + fit.intercept


def test_an_owner_with_another_prevalence_gets_an_intercept() -> None:
    """The joint model errs by a constant, which the intercept finds."""
    x, fresh = rows(150, 1), rows(4000, 2)
    labels, later = draw(x @ WEIGHTS + 2.5, 3), draw(fresh @ WEIGHTS + 2.5, 4)
    fit = adapt_classes(entries(x), (x @ WEIGHTS)[:, None], labels)
    joint = (fresh @ WEIGHTS)[:, None]
    assert wrong(predict(fit, fresh, joint), later) < wrong(joint, later) - 0.1
    assert 1.5 < fit.intercept[0] < 4.5 and fit.share > 0.5


def test_an_owner_whose_records_say_the_opposite_keeps_its_own_model() -> None:
    x, fresh = rows(400, 5), rows(4000, 6)
    labels, later = draw(-3 * x @ WEIGHTS, 7), draw(-3 * fresh @ WEIGHTS, 8)
    fit = adapt_classes(entries(x), (x @ WEIGHTS)[:, None], labels)
    assert wrong((fresh @ WEIGHTS)[:, None], later) > 0.6
    assert wrong(predict(fit, fresh, (fresh @ WEIGHTS)[:, None]), later) < 0.3


def test_where_the_joint_model_is_right_few_records_leave_it_nearly_alone() -> None:
    x, fresh = rows(30, 9), rows(4000, 10)
    found = [adapt_classes(entries(x), (3 * x @ WEIGHTS)[:, None], draw(3 * x @ WEIGHTS, seed)) for seed in range(20)]
    later, joint = draw(3 * fresh @ WEIGHTS, 11), (3 * fresh @ WEIGHTS)[:, None]
    lost = np.mean([wrong(predict(fit, fresh, joint), later) for fit in found]) - wrong(joint, later)
    assert lost < 0.04


def test_scores_of_labels_that_are_noise_are_no_better_than_a_coin() -> None:
    """Thirty records and twelve columns: a fit that has seen a record gets it right in about four of five cases. A mean
    of 30 x 30 errors deviates from 1/2 by about 0.017."""
    found = []
    for seed in range(30):
        x, labels = rows(30, seed, 12), np.random.default_rng(1000 + seed).permutation(np.arange(30) % 2)
        joint = (x @ np.random.default_rng(2000 + seed).normal(size=12))[:, None]
        fit = adapt_classes(entries(3 * x), joint, labels)
        found.append((wrong(fit.alone, labels), wrong(fit.adapted, labels)))
    assert np.mean(found, axis=0).min() > 0.44


def test_three_classes_and_more_unknowns_than_newton_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both solvers minimise the same function."""
    x, generator = rows(120, 12, 6), np.random.default_rng(13)
    joint, labels = x @ generator.normal(size=(6, 3)) * 4, generator.integers(0, 3, 120)
    first = adapt_classes(entries(x), joint, labels)
    monkeypatch.setattr(adaptation, "_NARROW", 0)
    second = adapt_classes(entries(x), joint, labels)
    np.testing.assert_allclose(first.weights, second.weights, atol=0.02)
    np.testing.assert_allclose(first.adapted, second.adapted, atol=0.02)


def test_a_number_with_another_level_and_slope() -> None:
    x, fresh = rows(200, 14), rows(2000, 15)
    noise = np.random.default_rng(16)
    targets = np.clip(0.1 * x @ WEIGHTS + 0.3 + noise.normal(0, 0.05, 200), -1, 1)
    fit = adapt_numbers(entries(x), 0.2 * x @ WEIGHTS, targets)
    found = predict(fit, fresh, (0.2 * fresh @ WEIGHTS)[:, None])[:, 0]
    assert np.abs(found - (0.1 * fresh @ WEIGHTS + 0.3)).mean() < 0.03


def models() -> dict[str, LinearClassifier]:
    generator = np.random.default_rng(17)
    mapped = FeatureMap(np.zeros(5), generator.normal(size=(5, 4)))
    ended = FeatureMap(np.zeros(5), generator.normal(size=(5, 4)), constant=True)
    bent = FeatureMap(np.zeros(5), generator.normal(size=(5, 4)), phase=np.ones(4))
    return {
        "one row": LinearClassifier(generator.normal(size=(1, 5)), ("a", "b"), constant=0.5),
        "a row for each of two": LinearClassifier(generator.normal(size=(2, 5)), ("a", "b"), constant=0.5),
        "three classes": LinearClassifier(generator.normal(size=(3, 5)), ("a", "b", "c"), constant=0.5),
        "a map": LinearClassifier(generator.normal(size=(2, 4)), ("a", "b"), feature_map=mapped),
        "a map and an intercept": LinearClassifier(generator.normal(size=(2, 5)), ("a", "b"), feature_map=mapped),
        "a map that ends in one": LinearClassifier(generator.normal(size=(2, 5)), ("a", "b"), feature_map=ended),
        "random features": LinearClassifier(generator.normal(size=(3, 4)), ("a", "b", "c"), feature_map=bent),
    }


@pytest.mark.parametrize("name", models())
def test_the_adapted_model_is_the_joint_one_shifted_whatever_its_rows_are(name: str) -> None:
    model = models()[name]
    x = np.column_stack([rows(60, 18), np.full(60, 0.5)])
    classes, share = len(model.classes), 0.7
    outputs = len(model.weights)
    weights = np.random.default_rng(19).normal(size=(outputs, 4))
    intercept = np.random.default_rng(20).normal(size=outputs)
    inside, entry = model.split_rows(x)
    assert inside.shape == (60, 4) and (entry > 0).all()
    moved = inside @ weights.T + entry[:, None] * intercept
    if classes == 2:
        moved = moved[:, 0] if outputs == 1 else moved[:, 1] - moved[:, 0]
    after = model.shift(share, weights, intercept)
    np.testing.assert_allclose(after.decision_function(x), share * model.decision_function(x) + moved, atol=1e-12)


@pytest.mark.parametrize("name", models())
def test_what_is_returned_predicts_as_well_as_it_was_scored(name: str) -> None:
    """Labels that the joint model gets wrong by an intercept: the adapted model repairs it for fresh records too."""
    model, generator = models()[name], np.random.default_rng(21)
    x, fresh = (np.column_stack([rows(count, seed), np.full(count, 0.5)]) for count, seed in ((300, 22), (3000, 23)))
    direction = generator.normal(size=(len(model.classes), 5)) * 6

    def labels(at: Any) -> Any:
        return (at @ direction.T).argmax(axis=1)

    found = adapt_linear(model, Records(x, labels(x)))
    assert found is not None and isinstance(found.model, LinearClassifier)
    error = float(np.mean(found.model.predict(fresh) != model.classes_[labels(fresh)]))
    joint = float(np.mean(model.predict(fresh) != model.classes_[labels(fresh)]))
    assert found.comparison.records == 300 and abs(error - found.comparison.adapted) < 0.1 and error < joint


def test_a_regression_is_shifted_and_loses_its_standard_errors() -> None:
    model = LinearRegressor([0.2, -0.1, 0.3], 10.0, 30.0, errors=[1, 1, 1], shrunk=[0, 0, 0], constant=0.5)
    x = np.column_stack([rows(80, 24, 2), np.full(80, 0.5)])
    targets = model.predict(x) + 3.0
    found = adapt_linear(model, Records(x, targets))
    assert found is not None and isinstance(found.model, LinearRegressor)
    np.testing.assert_allclose(found.model.predict(x), targets, atol=0.1)
    assert found.model.errors is None and found.comparison.adapted < found.comparison.joint / 100


def test_a_model_that_can_have_no_intercept_is_adapted_without_one() -> None:
    model, x = LinearClassifier(np.ones((1, 4)), ("a", "b")), rows(300, 28)
    found = adapt_linear(model, Records(x, draw(5 * x @ WEIGHTS, 29)))
    assert found is not None and isinstance(found.model, LinearClassifier) and found.model.weights.shape == (1, 4)
    assert found.comparison.adapted < found.comparison.joint - 0.1


def test_nothing_is_adapted_to_too_few_records() -> None:
    model = models()["one row"]
    x = np.column_stack([rows(MIN_RECORDS, 25), np.full(MIN_RECORDS, 0.5)])
    labels = np.arange(MIN_RECORDS) % 2
    assert adapt_linear(model, Records(x, labels)) is not None
    assert adapt_linear(model, Records(x[:-1], labels[:-1])) is None
    assert adapt_linear(model, Records(x)) is None
    assert adapt_linear(ConstantClassifier([0.5, 0.5], ("a", "b")), Records(x, labels)) is None


def test_one_class_and_the_same_row_again_are_no_trouble() -> None:
    model = models()["three classes"]
    x = np.tile(np.column_stack([rows(1, 26), [[0.5]]]), (40, 1))
    found = adapt_linear(model, Records(x, np.full(40, 2)))
    assert found is not None and found.comparison.adapted == 0.0 and found.comparison.alone == 0.0


def test_a_large_owner_uses_evenly_spaced_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "MAX_RECORDS", 20)
    used = spread_evenly(101)
    assert len(used) == 20 and used[0] == 0 and used[-1] == 100 and len(set(used.tolist())) == 20
    assert spread_evenly(20).tolist() == list(range(20))


def test_no_figure_is_in_a_repr() -> None:
    x = np.column_stack([rows(40, 27), np.full(40, 0.5)])
    found = adapt_linear(models()["one row"], Records(x, np.arange(40) % 2))
    assert found is not None
    shown = f"{found!r} {found.comparison!r} {adapt_classes(entries(x), x[:, :1], np.arange(40) % 2)!r}"
    assert "0." not in shown and "40" not in shown and "array" not in shown

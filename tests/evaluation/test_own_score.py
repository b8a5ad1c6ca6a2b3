"""What is called worse than a constant, and what chance among few records explains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.federation.evaluation.own_score import OwnScore, score_classes, score_predictor
from comity.federation.evaluation.score_card import PredictionTask
from comity.learn.classifiers import LinearClassifier
from comity.learn.regressor import LinearRegressor


def records(count: int, seed: int, *, numbers: bool = False) -> Records:
    generator = np.random.default_rng(seed)
    rows = generator.uniform(-1, 1, (count, 2))
    score = rows[:, 0] - 0.5
    return Records(rows, np.clip(score, -1, 1) if numbers else (score > 0).astype(np.int64))


def test_a_good_model_and_one_that_is_turned_round() -> None:
    right: Any = LinearClassifier(np.array([[50.0, 0.0]]), classes=("no", "yes"))
    wrong: Any = LinearClassifier(np.array([[-50.0, 0.0]]), classes=("no", "yes"))
    good, bad = (score_predictor(model, records(400, 0), None) for model in (right, wrong))
    assert good is not None and bad is not None
    assert good.constant == bad.constant == pytest.approx(0.25, abs=0.06)
    assert bad.is_worse and "WORSE THAN A CONSTANT on your records" in bad.sentence
    assert not good.is_worse and good.sentence.startswith("on your records")


def test_a_number() -> None:
    given = records(400, 1, numbers=True)
    good: Any = LinearRegressor(np.array([1.0, 0.0]), -1.0, 1.0)
    bad: Any = LinearRegressor(np.array([-1.0, 0.0]), -1.0, 1.0)
    task = PredictionTask(0, -1.0, 1.0)
    first, second = (score_predictor(model, given, task) for model in (good, bad))
    assert first is not None and second is not None and not first.is_worse and second.is_worse


def test_few_records_call_nothing_worse_that_chance_explains() -> None:
    """A guess that is as good as the constant among all people is hardly ever called worse."""
    generator, called = np.random.default_rng(2), 0
    for _ in range(2000):
        labels = generator.random(30) < 0.3
        told = labels ^ (generator.random(30) < 0.3)
        found = score_classes(np.bincount(labels, minlength=2), np.bincount(labels[told != labels], minlength=2))
        assert found is not None
        called += found.is_worse
    assert called <= 4
    worst = score_classes(np.array([15, 15]), np.array([14, 15]))
    assert worst is not None and worst.is_worse


def test_nobody_without_records_or_labels_has_a_score() -> None:
    model: Any = LinearClassifier(np.array([[1.0, 0.0]]), classes=("no", "yes"))
    assert score_predictor(model, Records(np.zeros((0, 2)), np.zeros(0, np.int64)), None) is None
    assert score_predictor(model, Records(np.zeros((5, 2))), None) is None


def test_the_sentence_has_rounded_figures() -> None:
    assert "0.123, of a constant 0.5 (m; 1,000 records)" in OwnScore(1000, 0.12345, 0.5, 0.0, "m").sentence

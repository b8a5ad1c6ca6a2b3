"""Targets of many classes, rare codes, and what plans and options say about small data."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from comity.data import Categorical, Schema
from comity.errors import StudyError
from comity.methods.synthetic import Synthetic, labels, synthesis
from comity.methods.synthetic.consistency import denoise_determined
from comity.methods.synthetic.counts import Layout
from comity.privacy.loss import Approx

from .consortia import build_synthetic, make_consortium, make_schema


def label_problem(classes: int, rows: int = 3000) -> tuple[Any, ...]:
    """Rows of two columns of six cells and the counts that labels of a known model would have."""
    chance = np.random.default_rng(0)
    design = labels.one_hot(chance.integers(0, 6, (rows, 2)), (0, 1), (6, 6))
    true = labels.Effects(np.zeros(classes - 1), chance.normal(0, 1, (classes - 1, 12)))
    probabilities = true.probabilities(design)
    share = probabilities.mean(0)
    return design, design.T @ probabilities, np.full(12, 5.0), np.eye(12) / 0.25, share


def test_gradients_end_where_second_derivatives_end(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = label_problem(4)
    by_newton = labels.fit_effects(*problem)
    monkeypatch.setattr(labels, "_MAX_NEWTON", 0)
    by_gradients = labels.fit_effects(*problem)
    first, second = (one.probabilities(problem[0]) for one in (by_newton, by_gradients))
    assert np.abs(first - second).mean() < 0.005
    assert np.abs(first - first.mean(0)).mean() > 0.05


def test_many_classes_take_seconds() -> None:
    problem = label_problem(60)
    assert labels._MAX_NEWTON < 59 * 12
    before = time.process_time()
    found = labels.fit_effects(*problem).probabilities(problem[0])
    assert time.process_time() - before < 20
    np.testing.assert_allclose(problem[0].T @ found, problem[1], atol=0.35 * problem[1].max())


def test_a_column_that_follows_from_one_to_many_keeps_rare_codes() -> None:
    """Two leading cells with 30 codes each, most of them rare: none exceeds what noise may reach by itself."""
    chance = np.random.default_rng(1)
    table = np.zeros((2, 60))
    table[0, :30], table[1, 30:] = 20.0, 20.0
    table[0, 0], table[1, 30] = 5000.0, 5000.0
    opened = table + chance.normal(0, 8, table.shape)
    kept = denoise_determined(opened, 8.0)
    assert (kept.argmax(1) == [0, 30]).all()
    right = sum((kept[row, codes] > 0).sum() for row, codes in ((0, slice(1, 30)), (1, slice(31, 60))))
    wrong = (kept[0, 31:] > 0).sum() + (kept[1, 1:30] > 0).sum()
    assert right > 50 and wrong < 8
    # What rare codes have together is what the row has beyond the others.
    assert kept[0, 1:].sum() == pytest.approx(29 * 20, rel=0.3)


def test_steps_of_the_fit_go_by_columns_that_are_fitted() -> None:
    alone, followed = Layout((60,) * 3), Layout((60, 60, 60, 200), None, {3: 0})
    assert synthesis.max_steps(alone) == synthesis.max_steps(followed) < synthesis.STEPS


def test_without_a_target_and_with_little_budget_the_plan_says_that_columns_become_independent() -> None:
    built = build_synthetic(schema=make_schema(None), sizes=20)
    notes = built.notes(make_consortium(Approx(0.1, 1e-6)))
    assert any("independent of each other" in note for note in notes)
    assert not any("independent of each other" in note for note in built.notes(make_consortium(Approx(50.0, 1e-6))))


@pytest.mark.parametrize("options", [{"rows": 1500.0}, {"sizes": 400.0}, {"sizes": {"ash": 2.0}}])
def test_a_number_of_records_with_decimals_is_refused_in_a_sentence(options: Any) -> None:
    schema = Schema((Categorical("a", ("x", "y")), Categorical("b", ("x", "y"))))
    with pytest.raises(StudyError, match="whole number of records") as refused:
        Synthetic(schema, **options)
    assert str(refused.value.key).startswith("synthetic.")


@pytest.mark.parametrize(("sizes", "warned"), [(800, True), (2000, True), (40_000, False)])
def test_the_plan_and_the_dataset_say_where_a_constant_may_predict_better(sizes: int, warned: bool) -> None:
    built, consortium = build_synthetic(schema=make_schema(), sizes=sizes), make_consortium(Approx(0.05, 1e-6))
    assert ("worse than a constant" in built.expectation(consortium)) is warned
    layout = built.counting(consortium).layout
    shares = np.concatenate([np.full(block.cells, block.weight / block.cells) for block in layout.blocks])
    made = built._present_counts(3 * sizes * shares, 3, consortium)
    assert ("worse than a constant" in made.card().parts["Expected error"]) is warned

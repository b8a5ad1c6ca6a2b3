"""How true a dataset is: figures that are right on cases whose answer is known, and a section that a page can draw."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
import pytest

from comity.artefacts.section import read_section, section_page
from comity.data import Records
from comity.federation.evaluation.assessment import Assessment
from comity.methods.synthetic.counts import fit_counting
from comity.methods.synthetic.fidelity import (
    Task,
    correlations,
    describe_nearness,
    partition_distance,
    pool_records,
    total_variation,
)
from comity.report.plots import draw_plot
from comity.study.simulation.simulate import RunOptions, Terms, simulate

from .consortia import CLASSES, NAMES, NUMBER, build_synthetic, make_frame, make_schema

COUNTING = fit_counting(make_schema())


def codes(count: int, seed: int = 0) -> np.ndarray:
    return COUNTING.encoding.encode(make_frame(count, seed)).records.features.astype(np.int64)


def test_the_same_records_are_no_distance_apart_and_others_are() -> None:
    one, other = codes(2000), codes(2000, 1)
    shuffled = np.column_stack([np.random.default_rng(k).permutation(column) for k, column in enumerate(one.T)])
    for ways in (1, 2):
        assert total_variation(COUNTING, one, one, ways) == 0
    assert partition_distance(COUNTING, one, one) == 0
    # Columns that no longer hang together: each is as it was, pairs are not.
    assert total_variation(COUNTING, shuffled, one, 1) == 0
    assert total_variation(COUNTING, shuffled, one, 2) > 2 * total_variation(COUNTING, other, one, 2)
    constant = np.zeros_like(one)
    assert partition_distance(COUNTING, constant, one) > 5 * partition_distance(COUNTING, other, one)


def test_total_variation_of_a_table_of_two_columns_by_hand() -> None:
    small = np.zeros((4, len(COUNTING.layout.sizes)), np.int64)
    moved = small.copy()
    moved[0, 0] = 1
    # A quarter of the records differs in one of 7 columns, so in 6 of 21 pairs.
    assert total_variation(COUNTING, small, moved, 1) == pytest.approx(0.25 / 7)
    assert total_variation(COUNTING, small, moved, 2) == pytest.approx(0.25 * 6 / 21)


def test_correlations_leave_missing_values_out() -> None:
    found = codes(4000)
    matrix = correlations(COUNTING, found)
    assert np.allclose(matrix, matrix.T) and np.allclose(np.diag(matrix), 1)
    here = found[:, 1] < 3
    assert matrix[0, 1] == pytest.approx(np.corrcoef(found[here, 0], found[here, 1])[0, 1])


def test_copies_of_records_are_noticed_and_fresh_ones_are_not() -> None:
    train, test = codes(2000), codes(2000, 1)
    assert describe_nearness(train.copy(), train, test).startswith("WARNING")
    assert not describe_nearness(codes(2000, 2), train, test).startswith("WARNING")
    assert describe_nearness(train, train[:10], test).startswith("Too few")


@pytest.mark.parametrize("target", [CLASSES, NUMBER], ids=["classes", "number"])
def test_learners_do_better_than_a_constant_and_no_better_than_on_everything(target: Any) -> None:
    task = Task(fit_counting(make_schema(target)))
    train = [task.counting.encoding.encode(make_frame(400, k, target)).records for k in range(3)]
    test = task.make_examples(task.counting.encoding.encode(make_frame(2000, 9, target)).records)
    found = {one.name: one.error for one in task.compare(train, test)}
    assert found["pooled"] <= found["own data"] + 0.01 < found["constant"]
    error, area = task.tree_error(task.make_examples(pool_records(train)), test)
    assert error < found["constant"] and (area is None) == (target is NUMBER)


def test_a_learner_without_records_or_with_one_class_answers_a_constant() -> None:
    task = Task(COUNTING)
    test = task.make_examples(COUNTING.encoding.encode(make_frame(200)).records)
    none = task.make_examples(Records(np.zeros((0, 7)), np.zeros(0, np.int64)))
    assert task.linear_error(none, test) == task.constant_error(none, test)
    alike = task.make_examples(Records(codes(50).astype(float), np.zeros(50, np.int64)))
    assert task.linear_error(alike, test) == task.tree_error(alike, test)[0] == task.constant_error(alike, test)


@pytest.mark.parametrize(("target", "baselines"), [(CLASSES, True), (NUMBER, False), (None, True)])
def test_a_simulation_assesses_what_it_presents_and_a_page_draws_it(target: Any, baselines: bool) -> None:
    held = {name: make_frame(700, k, target) for k, name in enumerate(NAMES[:3])}
    built = build_synthetic(schema=make_schema(target), model="naive-bayes" if target is None else "auto")
    found = simulate(
        built,
        parties=held,
        epsilon=2.0,
        delta=1e-6,
        unit="record",
        seed=1,
        test=make_frame(500, 9, target),
        terms=Terms(neighbours="add-remove"),
        options=RunOptions(baselines=baselines),
    ).assessment
    named = {one.name: one.value for one in found.figures}
    assert 0 < named["one-way total variation"] < 0.1 and 0 < named["two-way total variation"] < 0.2
    assert (found.error is None) == (target is None)
    names = ["constant", "own data", "pooled"] if baselines and target is not None else []
    assert [one.name for one in found.baselines] == names
    if found.baselines:
        assert cast(Any, found.error) < found.baselines[0].error
    (section,) = found.sections
    assert read_section(json.loads(json.dumps(section_page(section)))) == section
    assert Assessment.from_json(json.loads(json.dumps(found.as_json()))) == found
    for place, plot in enumerate(section.plots):
        drawn = draw_plot(plot, str(place))
        assert drawn.startswith("<svg") and "aria-label" in drawn

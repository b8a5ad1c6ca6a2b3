"""Measured edges: how far a record moves both releases, which cells follow, and what they do to long tails."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from math import sqrt
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from comity.audit.bound import mu_lower_bound
from comity.data import Categorical, Cells, Date, Impossible, Numeric, Schema
from comity.entropy import Stream
from comity.errors import DataError, StudyError
from comity.methods.synthetic import Synthetic, synthesis
from comity.methods.synthetic.artefact import NoisyCounts
from comity.methods.synthetic.components import spread_inside
from comity.methods.synthetic.counts import Counting
from comity.methods.synthetic.edges import MEASURED_BINS, Measuring, choose_edges, smooth_counts
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Approx, Pure
from tests.support.audits import SURE, draw_views

from .consortia import CLASSES, NAMES, build_synthetic, make_consortium, make_schema

INCOME = Numeric("income", 0, 1_000_000, integer=True)
COLUMNS = (
    INCOME,
    Numeric("balance", -2000.0, 50_000.0, missing="cell"),
    Numeric("hours", 1, 99, integer=True),
    Numeric("years", 0.0, 9.0, scale="log"),
    Numeric("age", 17, 90, edges=(30, 50)),
    Numeric("rank", 1, 5, integer=True),
    Numeric("grade", 0, 100, follows="town"),
    Categorical("town", ("a", "b", "c")),
)
RULES = (
    Impossible.of({"hours": [1, 17], "income": [80_000, 1_000_000]}),
    Impossible.of({"balance": ["(missing)"], "town": ["c"]}),
)
BARE = Schema(COLUMNS, CLASSES)


def make_frame(count: int, seed: int = 0) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    income = np.where(chance.random(count) < 0.3, 0, np.exp(chance.normal(9, 1.5, count)).clip(0, 10**6).round())
    hours = np.where(chance.random(count) < 0.5, 40, chance.integers(1, 100, count))
    balance = np.where(chance.random(count) < 0.2, np.nan, chance.normal(3000, 1500, count).clip(-2000, 50_000))
    return pd.DataFrame(
        {
            "income": income.astype(int),
            "balance": balance,
            "hours": hours,
            "years": chance.exponential(1, count).clip(0, 9),
            "age": chance.integers(17, 91, count),
            "rank": chance.integers(1, 6, count),
            "grade": chance.integers(0, 101, count),
            "town": chance.choice(["a", "b", "c"], count),
            "ill": np.where(chance.random(count) < 0.2 + 0.6 * (income > 9000), "yes", "no"),
        }
    )


def measuring(schema: Schema = BARE) -> Measuring:
    return Measuring(schema, 8, MEASURED_BINS)


def openings(cells: int) -> list[np.ndarray]:
    """Narrow counts as they may be, and numbers that no honest coordinator sends."""
    chance = np.random.default_rng(5)
    return [
        np.zeros(cells),
        chance.normal(0, 50, cells),
        chance.exponential(100, cells),
        np.where(np.arange(cells) % 37 == 0, 1e6, -3.0),
        np.resize([np.nan, np.inf, -np.inf, 1e300, 5e-324], cells),
    ]


@pytest.mark.parametrize("schema", [BARE, replace(BARE, impossible=RULES)], ids=["plain", "rules"])
def test_the_form_and_the_sensitivity_of_the_second_sum_do_not_depend_on_the_first(schema: Schema) -> None:
    found, frame = measuring(schema), make_frame(40)
    narrow = found.narrow.locate(frame).astype(np.float64)
    planned = Counting(found.with_edges(found.planned_edges()), 8).layout
    for opened in openings(found.layout.counts):
        counting = Counting(found.with_edges(found.measured_edges(opened, 5.0)), 8)
        assert counting.layout.sizes == planned.sizes and counting.layout.blocks == planned.blocks
        merged = found.merge(narrow, counting.cells)
        # Every record lies in one cell of each table, so it moves each by its weight.
        each = counting.layout.count(merged[:, None, :])
        for block in counting.layout.blocks:
            part = each[:, block.start : block.stop]
            assert (part.sum(1) == block.weight).all() and (part.max(1) == block.weight).all()
        np.testing.assert_array_equal(counting.layout.count(merged), each.sum(0))


def test_a_record_moves_each_narrow_table_by_one() -> None:
    found = measuring()
    assert found.names == ("income", "balance", "hours", "years", "grade")
    each = found.count(found.narrow.locate(make_frame(60)).astype(np.float64)[:, None, :])
    assert (each.sum(1) == 5).all() and each.max() == 1
    assert set(found.layout.weights) == {1}


@pytest.mark.parametrize("schema", [BARE, replace(BARE, impossible=RULES)], ids=["plain", "rules"])
def test_narrow_cells_merge_into_exactly_the_wide_ones(schema: Schema) -> None:
    found, frame = measuring(schema), make_frame(3000)
    narrow = found.narrow.locate(frame).astype(np.float64)
    opened = found.count(narrow)
    for edges in (found.measured_edges(opened, 5.0), found.planned_edges()):
        wide = Cells(found.with_edges(edges), 8, 10)
        np.testing.assert_array_equal(found.merge(narrow, wide), wide.locate(frame))
    equal = Cells(schema, 8, 10)
    np.testing.assert_array_equal(found.merge(narrow, equal), equal.locate(frame))
    stacked = np.stack([narrow[:100], narrow[100:200]])
    np.testing.assert_array_equal(found.merge(stacked, equal)[1], equal.locate(frame)[100:200])


def test_cells_hold_about_equally_many_records_and_heaps_are_cells() -> None:
    found, frame = measuring(), make_frame(20_000)
    opened = found.count(found.narrow.locate(frame).astype(np.float64))
    edges = found.measured_edges(opened, 5.0)
    assert {40, 41} <= set(edges["hours"]) and 1.0 in edges["income"]
    shares = np.bincount(np.searchsorted(edges["income"], frame["income"], side="right")) / len(frame)
    assert 0.29 < shares[0] < 0.32 and (shares[1:] < 0.16).all() and (shares[1:] > 0.02).all()
    assert all(len(cuts) == MEASURED_BINS - 1 for cuts in edges.values())


def test_edges_are_round_figures_where_that_costs_little() -> None:
    schema = Schema((Numeric("income", 0, 1_000_000), Numeric("weight", 0, 2_000_000)), CLASSES)
    chance, found = np.random.default_rng(3), Measuring(schema, 8, 9)
    frame = pd.DataFrame({"income": np.exp(chance.normal(9, 1.5, 20_000)).clip(0, 10**6)})
    frame = frame.assign(weight=chance.normal(10**6, 2e5, 20_000).clip(0, 2e6), ill="no")
    opened = found.count(found.narrow.locate(frame).astype(np.float64))
    edges = found.measured_edges(opened, 5.0)
    assert {1000.0, 5000.0, 10_000.0, 100_000.0} <= set(edges["income"]) and 10**6 in edges["weight"]
    # Empty cells between cheap figures tell nothing.
    shares = np.bincount(np.searchsorted(edges["income"], frame["income"], side="right"), minlength=9) / len(frame)
    assert (shares > 0.01).all() and (shares < 0.25).all()


def test_an_edge_that_a_rule_makes_is_not_chosen_again() -> None:
    counts, prices = np.ones(12), np.zeros(11)
    assert choose_edges(counts, prices, 3) == [3, 7]
    prices[[3, 7]] = np.inf
    assert not {3, 7} & set(choose_edges(counts, prices, 3))
    assert choose_edges(np.zeros(12), np.zeros(11), 3) == [3, 7]


def test_whole_values_lie_alone_in_narrow_cells_also_where_the_schema_does_not_call_them_whole() -> None:
    schema = Schema((Numeric("hours", 1, 99), Numeric("years", 1, 16), Numeric("people", 0, 200)), CLASSES)
    found = Measuring(schema, 8, 9)
    for name in found.names:
        cuts, column = set(found._inner(name)), cast(Any, schema[name])
        whole = {float(value) for value in range(int(column.low) + 1, int(column.high))}
        assert whole <= cuts


def test_values_are_drawn_inside_their_cells_by_the_narrow_counts() -> None:
    found, frame = measuring(), make_frame(20_000)
    narrow = found.narrow.locate(frame).astype(np.float64)
    opened = found.count(narrow) + np.random.default_rng(1).normal(0, 5, found.layout.counts)
    wide = Cells(found.with_edges(found.measured_edges(opened, 5.0)), 8, 10)
    codes = wide.locate(frame)
    refined = found.refine(codes, opened, 5.0, wide, Stream.public("refine"))
    np.testing.assert_array_equal(found.merge(refined.astype(np.float64), wide), codes)
    drawn = found.narrow.draw(refined, Stream.public("draw"))
    for share in (0.1, 0.35, 0.5, 0.75, 0.9):
        assert drawn["balance"].quantile(share) == pytest.approx(frame["balance"].quantile(share), abs=60)
    assert abs((drawn["hours"] == 40).mean() - (frame["hours"] == 40).mean()) < 0.01
    middles = found.middles(0, opened, 5.0, wide)
    true = frame["income"].groupby(codes[:, 0]).mean().to_numpy()
    np.testing.assert_allclose(middles, true, rtol=0.15, atol=1.0)


def test_noise_alone_is_spread_evenly_and_a_heap_stays_alone() -> None:
    chance, lengths = np.random.default_rng(4), np.ones(120)
    noisy = chance.normal(0, 5.0, 120)
    assert len(np.unique(smooth_counts(noisy, lengths, 5.0))) <= 3
    true = np.where(np.arange(120) < 60, 40.0, 0.0)
    true[30] = 900.0
    found = smooth_counts(true + noisy, lengths, 5.0)
    assert (found >= 0).all() and abs(found[30] - 900) < 20 and found.sum() == pytest.approx(true.sum(), rel=0.05)
    assert np.abs(found - true).sum() < 0.5 * np.abs(noisy).sum()
    # Two cells of one density have counts by their lengths, and cells of nearly no length break nothing.
    np.testing.assert_allclose(smooth_counts(np.array([10.0, 30.0]), np.array([1.0, 3.0]), 5.0), [10, 30])
    assert np.isfinite(smooth_counts(np.array([5e3, 2e3, 7.0, -4.0]), np.array([1e6, 1e-9, 1.0, 1e-9]), 5.0)).all()
    np.testing.assert_array_equal(smooth_counts(np.array([-3.0, -4.0]), np.ones(2), 5.0), [0, 0])


def test_values_inside_a_cell_follow_components_as_neighbouring_cells_do() -> None:
    # Two components that lean to either side over four cells of five values each; the third cell has a heap.
    probabilities = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]])
    shares = np.kron(np.eye(4), np.full(5, 0.2))
    parts = spread_inside(shares, 4, probabilities)
    for wide, (inside, weights) in enumerate(parts):
        np.testing.assert_array_equal(inside, np.arange(5 * wide, 5 * wide + 5))
        # What each component has of the cell, and how often each value comes, stay.
        np.testing.assert_allclose(weights.sum(1), probabilities[:, wide], rtol=0.01)
        np.testing.assert_allclose(weights.sum(0) / weights.sum(), 0.2, rtol=0.01)
    inner = parts[1][1][0] / parts[1][1].sum(0)
    assert (np.diff(inner) < 0).all() and 0.5 < inner[-1] < inner[0] < 0.75
    # Without an order, or without a second value, nothing moves.
    for wide, (_, weights) in enumerate(spread_inside(shares, 0, probabilities)):
        np.testing.assert_allclose(weights, probabilities[:, wide, None] * np.full(5, 0.2))


def test_beside_a_value_of_very_many_records_little_of_it_is_left() -> None:
    # Nine of ten records are at the first value, where the first component is alone.
    probabilities = np.array([[1.0, 0.0, 0.0], [0.8, 0.1, 0.1]])
    shares = np.array([[1.0, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0], [0, 0, 0, 0.5, 0.5]])
    of_first = [weights[0] / weights.sum(0) for _, weights in spread_inside(shares, 3, probabilities)]
    assert of_first[0] == pytest.approx([1 / 1.8]) and max(of_first[1].max(), of_first[2].max()) < 0.01


# Whole runs.


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns by themselves do not need a long fit."""
    monkeypatch.setattr(synthesis, "STEPS", 200)
    monkeypatch.setattr(synthesis, "_MIN_STEPS", 200)


def simulate(**options: Any) -> Any:
    frames = {name: make_frame(3000, seed) for seed, name in enumerate(NAMES[:3])}
    loss = {"epsilon": 2.0, "delta": 1e-6, **{key: options.pop(key) for key in ("delta",) if key in options}}
    return Synthetic(BARE, sizes=3000, **options).simulate(frames, **loss, seed=2)


def column_distance(result: Any) -> float:
    """Total variation of incomes in cells that nobody measured."""
    edges = [1, 1000, 3000, 8000, 20_000, 60_000]
    both = [make_frame(3000, seed)["income"] for seed in range(3)]
    ours, theirs = (
        np.bincount(np.searchsorted(edges, one, side="right"), minlength=7) / len(one)
        for one in (result.presented.frame["income"], pd.concat(both))
    )
    return float(np.abs(ours - theirs).sum() / 2)


@pytest.mark.parametrize("delta", [1e-6, 0.0], ids=["delta", "pure"])
def test_a_long_tail_comes_out_as_it_went_in(delta: float, tmp_path: Path) -> None:
    result = simulate(delta=delta)
    assert column_distance(result) < 0.05
    assert any("10% of the loss" in note and "5 numbers" in note for note in result.plan.notes)
    counts = result.presented.counts
    assert counts.schema == BARE and counts.measured is not None
    counts.save(tmp_path)
    again = NoisyCounts.load(tmp_path)
    assert again.digest == counts.digest and again.frame(50).equals(counts.frame(50))
    page = (tmp_path / "counts.json").read_text("utf-8")
    (tmp_path / "counts.json").write_text(page.replace('"cells": 8', '"cells": 7'), "utf-8")
    with pytest.raises(DataError, match="edges"):
        NoisyCounts.load(tmp_path)


def test_equal_edges_put_a_long_tail_into_one_cell() -> None:
    result = simulate(edges="equal")
    assert column_distance(result) > 0.5 and result.presented.counts.measured is None


def test_rules_hold_in_measured_cells() -> None:
    schema = replace(BARE, impossible=RULES)
    frames = {name: make_frame(1500, seed) for seed, name in enumerate(NAMES[:3])}
    result = Synthetic(schema, sizes=1500).simulate(frames, epsilon=4, delta=1e-6, seed=3)
    cells = Cells(schema)
    assert result.presented.counts.measured is not None
    assert not cells.is_impossible(cells.locate(result.presented.frame)).any()


def test_where_noise_would_cover_edges_they_have_equal_length_and_the_plan_says_so() -> None:
    built = build_synthetic(schema=BARE, sizes=60)
    consortium = make_consortium(Approx(0.1, 1e-6))
    assert not built.measures(consortium)
    assert any("equal length" in note for note in built.notes(consortium))
    assert [release.name for release in built.declare(consortium).releases] == ["counts", "tables"]
    assert build_synthetic(schema=BARE, sizes=60, edges="measured").measures(consortium)
    frames = {name: make_frame(60, seed) for seed, name in enumerate(NAMES[:3])}
    result = Synthetic(BARE, sizes=60).simulate(frames, epsilon=0.1, delta=1e-6, seed=3, test=make_frame(50, 8))
    assert result.presented.counts.counting.schema == BARE


@pytest.mark.parametrize("options", [{"rounds": 2}, {"pooling": "none"}, {"schema": make_schema()}])
def test_what_can_not_be_measured_is_refused_where_it_is_asked_for(options: Any) -> None:
    given = {"schema": BARE, **options}
    with pytest.raises(StudyError) as refused:
        build_synthetic(**given, edges="measured")
    assert refused.value.key == "synthetic.edges"
    assert not build_synthetic(**given).measures(make_consortium())


def test_dates_targets_and_divided_numbers_are_not_measured() -> None:
    days = Schema((Date("seen", date(2020, 1, 1), date(2023, 1, 1)), Numeric("age", 0, 9, bins=4)), CLASSES)
    assert measuring(days).names == ()


@pytest.mark.parametrize("loss", [Approx(1.0, 1e-6), Pure(1.0)], ids=["delta", "pure"])
def test_both_sums_together_spend_what_is_granted(loss: Any) -> None:
    consortium = make_consortium(loss)
    declared = build_synthetic(schema=BARE).declare(consortium)
    narrow, counts = cast(Any, declared["narrow"].loss), cast(Any, declared["counts"].loss)
    if isinstance(loss, Pure):
        assert narrow.epsilon + counts.epsilon <= loss.epsilon
        assert float(narrow.epsilon + counts.epsilon) == pytest.approx(1.0)
        assert float(narrow.epsilon) == pytest.approx(0.1)
    else:
        whole = gaussian_budget(loss).square
        assert narrow.square + counts.square <= whole
        assert float(narrow.square / whole) == pytest.approx(0.1)


TWO = Schema((INCOME, Numeric("hours", 1, 99, integer=True)), CLASSES)


@pytest.mark.long
def test_both_sums_together_lose_no_more_than_is_debited_for_them() -> None:
    """The reader knows all records but one, and scores both releases; edges follow from the first in each draw."""
    built, consortium = build_synthetic(schema=TWO), make_consortium(Approx(6.0, 1e-6))
    found = built._measuring
    assert found is not None
    frame = pd.DataFrame({"income": [0, 500, 90_000], "hours": [40, 20, 99], "ill": ["no", "yes", "no"]})
    codes = found.narrow.locate(frame).astype(np.float64)
    claimed = sqrt(float(gaussian_budget(consortium.loss).square))
    releases = [built.declare(consortium)[name] for name in ("narrow", "counts")]

    def measured(stretched: float = 1.0, *, whole: bool = False, count: int = 4000) -> float:
        both = [build_synthetic(schema=TWO, edges="equal").declare(consortium)["counts"]] if whole else []
        used = [replace(releases[0], protection=both[0].protection) if whole else releases[0]]
        used.append(replace(releases[1], protection=both[0].protection) if whole else releases[1])
        deviation = [one.opened_deviation(consortium, consortium.honest_parts) for one in used]
        scores: list[np.ndarray] = []
        moved: dict[Any, np.ndarray] = {}
        for side in (1, 0):
            apart = stretched * (found.count(codes) - found.count(codes[:-1]))
            first = draw_views(used[0], consortium, found.count(codes[:-1]) + side * apart, 7 + side, count=count)
            noise = draw_views(used[1], consortium, np.zeros(used[1].shape[0]), 17 + side, count=count)
            score = first @ apart / deviation[0] ** 2
            for place, view in enumerate(first):
                edges = found.measured_edges(view, deviation[0])
                key = tuple(edges.items())
                if key not in moved:
                    counting = Counting(found.with_edges(edges), 8)
                    moved[key] = counting.layout.count(found.merge(codes[-1:], counting.cells))
                last = moved[key]
                score[place] += (noise[place] + side * stretched * last) @ (stretched * last) / deviation[1] ** 2
            scores.append(score)
        return mu_lower_bound(scores[0], scores[1], confidence=SURE)

    assert 0.6 * claimed < measured() <= claimed
    # Controls: a record that counts twice, and sums that each spend the whole loss.
    assert measured(2.0) > claimed
    assert measured(whole=True) > claimed

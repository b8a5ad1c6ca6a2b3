"""No impossible record comes out, by the fit and not by a filter, and the rest is as near to the records as before."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from comity.data import Bounded, Cells, Classes, Impossible, Schema, Target
from comity.data.cells import CellRule
from comity.entropy import Stream
from comity.errors import DataError
from comity.methods.synthetic import Synthetic, labels, synthesis
from comity.methods.synthetic.consistency import make_consistent
from comity.methods.synthetic.counts import Layout
from comity.methods.synthetic.impossibilities import Impossibilities
from comity.methods.synthetic.synthesis import Synthesis

from .by_columns import HELD, make_people
from .consortia import CLASSES, NAMES, NUMBER, make_frame, make_schema

SIZES = (5, 4, 3, 4, 2)
RULES: tuple[CellRule, ...] = (
    ((0, (0, 1)), (1, (2, 3))),
    ((1, (0,)), (2, (2,)), (3, (1, 2))),
    ((3, (0,)), (4, (1,))),
    ((0, (4,)), (2, (0,)), (4, (0,))),
)


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exclusions hold however short the fit is."""
    monkeypatch.setattr(synthesis, "STEPS", 200)
    monkeypatch.setattr(synthesis, "_MIN_STEPS", 200)


def make_possible(count: int, seed: int = 0) -> np.ndarray:
    """Records of related columns, without the impossible ones."""
    chance = np.random.default_rng(seed)
    hidden = chance.random(3 * count)
    codes = np.column_stack([((hidden + 0.6 * chance.random(3 * count)) / 1.6 * size).astype(int) for size in SIZES])
    return codes[~Impossibilities(Layout(SIZES, impossible=RULES)).holding(codes)][:count]


def make_rows(codes: np.ndarray, *, rules: bool = True, target: int | None = 4, **changed: Any) -> np.ndarray:
    options: dict[str, Any] = {"model": "mixture", "classified": True, "sigma": 20.0, **changed}
    layout = Layout(SIZES, target, sparse=options["model"] == "naive-bayes", impossible=RULES if rules else ())
    values = layout.count(codes) + np.random.default_rng(1).normal(0, options["sigma"], layout.counts)
    consistent = make_consistent(layout, layout.tables(values), layout.deviations(options["sigma"]))
    made = Synthesis(layout, options["model"], {}, options["classified"] and target is not None)
    return made.make_rows(consistent, Stream.public("impossible"), len(codes))


def impossible_rows(rows: np.ndarray) -> int:
    return int(Impossibilities(Layout(SIZES, impossible=RULES)).holding(rows).sum())


def three_way(one: np.ndarray, other: np.ndarray) -> float:
    def share(rows: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
        sizes = tuple(SIZES[k] for k in columns)
        place = np.ravel_multi_index(tuple(rows[:, k] for k in columns), sizes)
        return np.bincount(place, minlength=int(np.prod(sizes))) / len(rows)

    gaps = [np.abs(share(one, t) - share(other, t)).sum() / 2 for t in combinations(range(len(SIZES)), 3)]
    return float(np.mean(gaps))


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("sigma", [1.0, 400.0])
@pytest.mark.parametrize("model", ["mixture", "naive-bayes"])
@pytest.mark.parametrize(("target", "classified"), [(4, True), (3, True), (4, False), (None, False)])
def test_no_impossible_row_comes_out(model: str, target: int | None, classified: bool, sigma: float) -> None:
    codes = make_possible(3000)
    options: dict[str, Any] = {"model": model, "classified": classified, "sigma": sigma, "target": target}
    assert impossible_rows(make_rows(codes, **options)) == 0
    if sigma > 100:
        assert impossible_rows(make_rows(codes, rules=False, **options)) > 20


def test_rules_bring_rows_no_further_from_the_records() -> None:
    codes = make_possible(5000)
    without, ruled = (make_rows(codes, rules=rules) for rules in (False, True))
    assert three_way(ruled, codes) <= three_way(without, codes)


@pytest.mark.usefixtures("few_steps")
def test_records_that_contradict_a_rule_are_counted_and_do_not_come_out() -> None:
    codes = make_possible(3000)
    codes[:200, :2] = (0, 3)
    assert impossible_rows(codes) >= 200
    rows = make_rows(codes)
    assert len(rows) == 3000 and impossible_rows(rows) == 0


def test_exchanges_keep_how_often_a_value_comes_with_a_label() -> None:
    layout, chance = Layout(SIZES, 4, impossible=RULES[:2]), np.random.default_rng(2)
    rows = chance.permuted(make_possible(2000), axis=0)
    rules, before = Impossibilities(layout), rows.copy()
    assert rules.holding(rows).sum() > 100
    rules.exchange(rows, rows[:, 4].copy(), Stream.public("exchange"))
    assert not rules.holding(rows).any()
    for column in range(4):
        old, new = (np.bincount(one[:, column] * 2 + one[:, 4], minlength=10) for one in (before, rows))
        np.testing.assert_array_equal(old, new)


def test_rows_that_no_exchange_mends_become_copies_and_contradictions_are_told() -> None:
    rules = Impossibilities(Layout((2, 2), impossible=(((0, (0,)), (1, (0, 1))),)))
    rows = np.array([[0, 0]] * 9 + [[1, 1]])
    rules.exchange(rows, np.zeros(10, np.int64), Stream.public("copies"))
    assert (rows == (1, 1)).all()
    with pytest.raises(DataError, match="contradict"):
        rules.exchange(np.zeros((4, 2), np.int64), np.zeros(4, np.int64), Stream.public("none"))
    never = Impossibilities(Layout((2, 2), impossible=(((0, (0, 1)), (1, (0, 1))),)))
    with pytest.raises(DataError, match="contradict"):
        never.exclude(np.full((3, 4), 0.5))


def test_a_component_without_a_possible_record_takes_the_place_of_another() -> None:
    rules = Impossibilities(Layout((2, 2), impossible=(((0, (0,)), (1, (0,))), ((0, (0,)), (1, (1,))))))
    found = rules.exclude(np.array([[1.0, 0.0, 0.5, 0.5], [0.4, 0.6, 0.5, 0.5]]))
    np.testing.assert_allclose(found, [[0.0, 1.0, 0.5, 0.5]] * 2)


RULED = (
    Impossible.of({"age": [18, 25], "income": [5000.0, 100_000.0]}),
    Impossible.of({"stage": ["two"], "town": ["A", "(other)"], "income": ["(missing)"]}),
)


def rule_schema(target: Target | None) -> Schema:
    own = {
        "ill": (Impossible.of({"stage": ["one"], "ill": ["yes"]}),),
        "cost": (Impossible.of({"stage": ["three"], "cost": [0.0, 60.0]}),),
    }
    return replace(make_schema(target), impossible=(*RULED, *(() if target is None else own[target.name])))


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("target", [CLASSES, NUMBER, None], ids=["classes", "number", "none"])
def test_a_simulated_study_has_no_impossible_record(target: Classes | Bounded | None) -> None:
    schema = rule_schema(target)
    frames = {name: make_frame(400, seed, target) for seed, name in enumerate(NAMES[:3])}
    result = Synthetic(schema, sizes=400).simulate(frames, epsilon=4, delta=1e-6, seed=3)
    made, cells = result.presented.frame, Cells(schema, 16)
    assert not cells.is_impossible(cells.locate(made)).any()
    assert cells.is_impossible(cells.locate(frames["ash"])).any()
    assert any("impossible" in note for note in result.plan.notes)
    assert any("contradict" in finding for finding in result.findings)


@pytest.mark.usefixtures("few_steps")
def test_owners_of_different_columns_have_the_cells_of_the_whole_schema() -> None:
    schema, people = rule_schema(CLASSES), make_people(500)
    held = HELD[3]
    parties = {owner: people[list(columns)] for owner, columns in held.items()}
    method = Synthetic(schema, columns=held, rows=500, products="dealer", max_rows=1 << 12)
    result = method.simulate(parties, epsilon=8, delta=1e-6, seed=3)
    cells = Cells(schema, 16)
    assert not cells.is_impossible(cells.locate(result.presented.frame)).any()


def test_rules_change_neither_counts_nor_sensitivity() -> None:
    """Only cells depend on them: where a rule divides no cells, all that is released is equal."""
    plain = Synthetic(make_schema(), sizes=400).protocol()
    categories = (Impossible.of({"town": ["A"], "stage": ["two"]}),)
    ruled = Synthetic(replace(make_schema(), impossible=categories), sizes=400).protocol()
    assert plain.cells.layout.blocks == ruled.cells.layout.blocks  # type: ignore[union-attr]


@pytest.mark.usefixtures("few_steps")
def test_the_twin_without_exclusions_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Off(Impossibilities):
        def __bool__(self) -> bool:
            return False

    monkeypatch.setattr(synthesis, "Impossibilities", Off)
    monkeypatch.setattr(labels, "Impossibilities", Off)
    assert impossible_rows(make_rows(make_possible(2000))) > 20

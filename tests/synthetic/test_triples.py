"""Tables of three columns: how far a record moves them, who chooses their groups, and what they add to the rows."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from math import isclose, sqrt
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from comity.audit.bound import mu_lower_bound
from comity.data import Categorical, Classes, Numeric, Schema
from comity.entropy import Stream
from comity.errors import DataError, StudyError
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.bounds import Counts
from comity.federation.declare.protection import Summed
from comity.methods.synthetic import Synthetic, synthesis
from comity.methods.synthetic.artefact import NoisyCounts
from comity.methods.synthetic.consistency import make_consistent
from comity.methods.synthetic.counts import Layout, table_ranges
from comity.methods.synthetic.labels import redraw_labels
from comity.methods.synthetic.third_order import ThirdOrder, keep_interaction, want_triples
from comity.methods.synthetic.triples import OpenedTriples, Triples, find_triples
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Approx, Pure
from tests.averaging.default_consortium import make_consortium as rostered
from tests.averaging.default_consortium import parties
from tests.support.audits import SURE, draw_views
from tests.support.consortia import NAMES as TOY

from .consortia import NAMES, build_synthetic, encode_records, make_consortium, make_schema

COUNTED: dict[str, Any] = {"schema": make_schema(), "triples": "counted"}
LAYOUTS = [
    Layout((2, 5, 2, 3), 3),
    Layout((2, 3, 6)),
    Layout((3, 2, 2, 2, 5), 4, {1: 0}, ordered=(4,)),
]


def every_row(layout: Layout) -> np.ndarray:
    return np.array(list(product(*map(range, layout.sizes))))


# What leaves, and how far one record moves it.


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
def test_whatever_the_groups_no_record_moves_triples_further_than_their_bound(
    layout: Any, labelled: bool, replaced: bool
) -> None:
    if labelled and layout.target is None:
        return
    triples = Triples(layout, 2, labelled)
    bound, every = Counts(triples.weights, replaced, 100), every_row(layout)
    for seed in range(4):
        groups = triples.choose_groups(np.random.default_rng(seed).normal(20, 30, layout.counts))
        before = triples.count(groups, every[:2])
        assert before.shape == (triples.counts,)
        moved = [triples.count(groups, np.vstack([every[:2], row])) for row in every]
        ends = list(product(moved, moved)) if replaced else [(one, before) for one in moved]
        l1 = max(np.abs(one - other).sum() for one, other in ends)
        l2 = max(np.linalg.norm(one - other) for one, other in ends)
        # Some record moves it as far, so no other groups would need more or less noise.
        assert isclose(l1, bound.l1) and isclose(l2, bound.l2)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_triples_are_noised_for_all_of_their_tables(neighbours: str) -> None:
    built, consortium = build_synthetic(**COUNTED), make_consortium(neighbours=neighbours)
    release, weights = built.accepted(consortium)["triples"], built._planned_triples(consortium).weights
    factor = sqrt(2) if neighbours == "replace" else 1.0
    assert isclose(release.sensitivity, factor * sqrt(sum(weight * weight for weight in weights)))
    assert isclose(
        release.scale(consortium).total, release.sensitivity / sqrt(float(cast(GDP, release.loss).square)), rel_tol=1e-6
    )


BARE = Schema(
    (Numeric("income", 0, 100_000), Numeric("age", 0, 99), Categorical("town", ("A", "B"))), Classes("ill", ("0", "1"))
)


@pytest.mark.parametrize("schema", [make_schema(), BARE], ids=["divided", "measured"])
@pytest.mark.parametrize("loss", [Approx(0.7, 1e-6), Approx(3.0, 1e-9), Pure("0.7"), Pure(3)], ids=str)
def test_all_sums_together_cost_what_the_study_grants_and_no_more(loss: Any, schema: Any) -> None:
    consortium = make_consortium(loss)
    declared = build_synthetic(schema=schema, triples="counted").accepted(consortium)
    names = [one.name for one in declared.releases if one.loss is not None]
    assert names == (["narrow"] if schema is BARE else []) + ["counts", "triples"]
    assert all(isinstance(declared[name].protection, Summed) for name in names)
    costs = [cast(Any, declared[name].loss) for name in names]
    whole = loss.epsilon if isinstance(loss, Pure) else gaussian_budget(loss).square
    parts = [one.epsilon if isinstance(loss, Pure) else one.square for one in costs]
    assert sum(parts) <= whole
    assert [float(part / whole) for part in parts[-2:]] == pytest.approx([0.6 if schema is BARE else 0.7, 0.3])


def test_triples_have_half_of_the_loss_where_their_noise_is_little_and_all_sums_cost_no_more() -> None:
    built, loss = build_synthetic(**COUNTED, rows=20_000), Approx(20, 1e-6)
    shares = []
    for epsilon in (0.5, 1, 3, 20):
        consortium = make_consortium(Approx(epsilon, 1e-6))
        declared, whole = built.accepted(consortium), gaussian_budget(consortium.loss).square
        parts = [cast(Any, declared[name].loss).square for name in ("counts", "triples")]
        assert sum(parts) <= whole
        shares.append(round(float(parts[1] / whole), 6))
        assert any(f"three columns: {shares[-1]:.0%} of the loss" in note for note in built.notes(consortium))
    assert shares == sorted(shares) and set(shares) == {0.3, 0.5}
    # Without a declared number of records nobody knows whether noise is little.
    undeclared = build_synthetic(**COUNTED).accepted(make_consortium(loss))
    part = cast(Any, undeclared["triples"].loss).square / gaussian_budget(loss).square
    assert float(part) == pytest.approx(0.3)


def test_triples_count_every_record_once_and_no_padding() -> None:
    layout, chance = LAYOUTS[2], np.random.default_rng(1)
    codes = np.column_stack([chance.integers(0, size, (3, 50)).ravel() for size in layout.sizes]).reshape(3, 50, -1)
    filled = chance.random((3, 50)) < 0.7
    triples = Triples(layout, 2, False)
    groups = triples.choose_groups(layout.count(codes.reshape(-1, layout.columns)))
    found = triples.count(groups, codes, filled)
    for party in range(3):
        mine = codes[party][filled[party]]
        for block in triples.blocks:
            grouped = np.column_stack([groups[column][mine[:, column]] for column in block.key])
            table = np.zeros(block.shape)
            np.add.at(table, tuple(grouped.T), block.weight)
            np.testing.assert_array_equal(found[party, block.start : block.stop], table.ravel())
    assert 1 not in triples.order and triples.order[0] == layout.target
    with pytest.raises(DataError):
        triples.count(groups, np.full((2, layout.columns), 9))


# Groups.


@pytest.mark.parametrize("opened", ["zeros", "nan", "huge", "negative", "noise"])
def test_any_opened_numbers_give_groups_of_the_promised_number(opened: str) -> None:
    layout = Layout((12, 7, 3, 9), 3, ordered=(0, 3))
    values = {
        "zeros": np.zeros(layout.counts),
        "nan": np.full(layout.counts, np.nan),
        "huge": np.full(layout.counts, 1e300),
        "negative": np.full(layout.counts, -5.0),
        "noise": np.random.default_rng(0).normal(0, 100, layout.counts),
    }[opened]
    triples = Triples(layout, 4, False)
    groups = triples.choose_groups(values)
    for column in range(layout.columns):
        assert sorted(set(groups[column].tolist())) == list(range(triples.size(column)))
        if column in layout.ordered:
            assert (np.diff(groups[column]) >= 0).all()


def test_categories_that_tell_alike_of_the_target_share_a_group() -> None:
    layout, chance = Layout((6, 2, 2), 2), np.random.default_rng(0)
    kind = chance.integers(0, 6, 6000)
    codes = np.column_stack([kind, chance.integers(0, 2, 6000), chance.random(6000) < np.where(kind % 2, 0.9, 0.1)])
    found = Triples(layout, 2, False).choose_groups(layout.count(codes))[0]
    assert found.tolist() == [0, 1, 0, 1, 0, 1]


def test_so_many_triples_are_counted_as_the_limit_allows() -> None:
    assert find_triples(Layout((8,) * 24, 23)) == Triples(Layout((8,) * 24, 23), 4, False)
    many = find_triples(Layout((8,) * 64, 63))
    assert many is not None and many.labelled
    assert find_triples(Layout((8,) * 64)) is None
    assert find_triples(Layout((8, 8))) is None
    assert find_triples(Layout((8, 8, 8, 2), 3, sparse=True)) is None
    assert find_triples(Layout((8,) * 70, 69, reach=20)) is None


# The fit.


def opened(layout: Layout, codes: np.ndarray, deviation: float = 1.0, *, labelled: bool = False) -> OpenedTriples:
    triples = Triples(layout, 4, labelled)
    groups = triples.choose_groups(layout.count(codes))
    values = triples.count(groups, codes) + np.random.default_rng(9).normal(0, deviation, triples.counts)
    return OpenedTriples(triples, groups, values, deviation)


@pytest.mark.parametrize("labelled", [False, True])
def test_the_gradient_is_that_of_the_squared_distances(labelled: bool) -> None:
    layout, chance = Layout((2, 5, 3, 2), 3), np.random.default_rng(2)
    codes = np.column_stack([chance.integers(0, size, 500) for size in layout.sizes])
    found = opened(layout, codes, labelled=labelled)
    p = chance.dirichlet(np.ones(layout.width), 6).astype(np.float32)
    wanted = tuple(found.table(block) / 500 for block in found.triples.blocks)
    term = ThirdOrder(found, wanted, 0.1)

    def distance(at: np.ndarray) -> float:
        total = 0.0
        for block, table in zip(found.triples.blocks, wanted):
            shares = []
            for column in block.key:
                cells = at[:, layout.offsets[column] : layout.offsets[column] + layout.sizes[column]]
                shares.append(cells @ np.eye(found.triples.size(column))[found.groups[column]])
            model = np.einsum("ka,kb,kc->abc", *shares) / len(at)
            total += ((model - table) ** 2).sum() / found.deviation**2
        return float(total)

    gradient = np.zeros_like(p)
    term.add_gradient(gradient, p, 7.0)
    for k, cell in [(0, 0), (3, 4), (5, layout.width - 1), (2, 8)]:
        step = np.zeros(p.shape)
        step[k, cell] = 1e-5
        slope = 7.0 * (distance(p + step) - distance(p - step)) / 2e-5
        assert gradient[k, cell] == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_noise_alone_leaves_what_pairs_say() -> None:
    chance = np.random.default_rng(3)
    kept = [np.abs(keep_interaction(chance.normal(0, 2.0, (4, 4, 3)), 2.0)).sum() for _ in range(50)]
    table = np.zeros((2, 2, 2))
    table[0, 0, 0] = table[0, 1, 1] = table[1, 0, 1] = table[1, 1, 0] = 100.0
    assert np.median(kept) < 5 and np.abs(keep_interaction(table, 2.0)).sum() > 350
    # What two columns explain is none of its concern.
    assert np.abs(keep_interaction(np.add.outer(np.arange(6.0).reshape(2, 3) ** 2, np.zeros(4)), 0.1)).sum() < 1e-9


def parity(count: int, seed: int = 0) -> np.ndarray:
    """Three columns of which each two are independent, and one of noise; the last follows from the first two."""
    chance = np.random.default_rng(seed)
    first, second, noise = (chance.integers(0, 2, count) for _ in range(3))
    return np.column_stack([first, second, noise, first ^ second])


def odd(codes: np.ndarray) -> float:
    return float((codes[:, 0] ^ codes[:, 1] ^ codes[:, 3]).mean())


def test_what_only_three_columns_know_is_in_the_rows() -> None:
    layout, codes = Layout((2, 2, 2, 2)), parity(4000)
    values = layout.count(codes)
    consistent = make_consistent(layout, layout.tables(values), layout.deviations(1.0))
    without = synthesis.Synthesis(layout, "mixture").make_rows(consistent, Stream.public("rows"), 4000)
    given = synthesis.Synthesis(layout, "mixture", triples=opened(layout, codes))
    rows = given.make_rows(consistent, Stream.public("rows"), 4000)
    assert 0.3 < odd(without) < 0.7
    assert odd(rows) < 0.1


def test_a_label_follows_from_two_columns_together() -> None:
    layout, codes = Layout((2, 2, 2, 2), 3), parity(4000)
    consistent = make_consistent(layout, layout.tables(layout.count(codes)), layout.deviations(1.0))
    rows = np.column_stack([np.random.default_rng(5).integers(0, 2, (4000, 3)), np.zeros(4000, np.int64)])
    stream = Stream.public("labels")
    alone = np.column_stack([rows[:, :3], redraw_labels(layout, consistent, rows, stream)])
    both = np.column_stack(
        [rows[:, :3], redraw_labels(layout, consistent, rows, stream, triples=opened(layout, codes))]
    )
    assert 0.4 < odd(alone) < 0.6
    assert odd(both) < 0.1


def test_the_expectation_of_a_mixture_is_what_it_says() -> None:
    layout, chance = Layout((2, 3, 2)), np.random.default_rng(4)
    parts = [chance.dirichlet(np.ones(size), 5) for size in layout.sizes]
    found = opened(layout, np.zeros((1, 3), np.int64))
    exact = np.einsum("ka,kb,kc->abc", *parts) / 5
    same = OpenedTriples(found.triples, found.groups, exact.ravel() * 1000.0, 1.0)
    wanted = want_triples(same, np.concatenate(parts, axis=1), 1000.0, 20.0).wanted
    np.testing.assert_allclose(wanted[0], exact, atol=1e-6)


# Runs.


def held_by(built: Any, size: int = 40) -> dict[Any, Any]:
    return {name: encode_records(built, size + k, k) for k, name in enumerate(TOY[:5])}


def test_without_noise_triples_count_the_same_records_in_groups_of_the_opened_pairs() -> None:
    built, consortium = build_synthetic(**COUNTED), rostered(neighbours="add-remove")
    held = held_by(built)
    coordinator, _ = parties(built, held, consortium)
    found = run(coordinator)
    tables, triples = found["tables"], built._planned_triples(consortium)
    codes = np.vstack([one.features for one in held.values()])
    assert (tables["counts"] == built.counting(consortium).layout.count(codes)).all()
    groups = triples.choose_groups(tables["counts"])
    assert (tables["triples"] == triples.count(groups, codes)).all()
    counts = built.present(found, consortium).counts
    assert counts.triples is not None and (counts.triples.values == tables["triples"]).all()
    assert set(tables) == {"counts", "parties", "triples", "parties_triples"}


def test_a_party_lost_before_the_triples_leaves_pairs_alone() -> None:
    built, consortium = build_synthetic(**COUNTED), rostered(neighbours="add-remove", dropouts=1)
    coordinator, _ = parties(built, held_by(built), consortium, lose=((TOY[4], "count_triples[0]"),))
    found = run(coordinator)
    assert (found["tables"]["parties"], found["tables"]["parties_triples"]) == (5, 4)
    assert built.present(found, consortium).counts.triples is None


def parity_frame(count: int, seed: int) -> pd.DataFrame:
    codes = parity(count, seed)
    chance = np.random.default_rng(seed)
    frame = {"a": codes[:, 0], "b": codes[:, 1], "ill": codes[:, 3]}
    income = np.exp(chance.normal(9, 1, count)).clip(0, 100_000)
    return pd.DataFrame({name: one.astype(str) for name, one in frame.items()}).assign(income=income)


PARITY = Schema(
    (Numeric("income", 0, 100_000), Categorical("a", ("0", "1")), Categorical("b", ("0", "1"))),
    Classes("ill", ("0", "1")),
)


def odd_rows(frame: pd.DataFrame) -> float:
    return float((frame["a"].astype(int) ^ frame["b"].astype(int) ^ frame["ill"].astype(int)).mean())


@pytest.mark.parametrize("delta", [1e-6, 0.0], ids=["delta", "pure"])
def test_a_run_with_measured_edges_knows_three_columns_and_its_files_too(
    delta: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthesis, "STEPS", 400)
    monkeypatch.setattr(synthesis, "_MIN_STEPS", 400)
    frames = {name: parity_frame(3000, seed) for seed, name in enumerate(NAMES[:3])}
    result = Synthetic(PARITY, sizes=3000).simulate(frames, epsilon=8, delta=delta, seed=2)
    counts = result.presented.counts
    assert counts.triples is not None and counts.measured is not None
    assert odd_rows(result.presented.frame) < 0.1
    assert any(note.startswith("three columns: 50% of the loss") for note in result.plan.notes)
    counts.save(tmp_path)
    again = NoisyCounts.load(tmp_path)
    assert again.digest == counts.digest and again.frame(50).equals(counts.frame(50))
    assert replace(counts, triples=None).digest != counts.digest
    page = json.loads((tmp_path / "counts.json").read_text("utf-8"))
    (tmp_path / "counts.json").write_text(json.dumps({**page, "triples": {"deviation": -1.0}}), "utf-8")
    with pytest.raises(DataError, match="three columns"):
        NoisyCounts.load(tmp_path)
    pairs = Synthetic(PARITY, sizes=3000, triples="none").simulate(frames, epsilon=8, delta=delta, seed=2)
    assert pairs.presented.counts.triples is None
    assert 0.3 < odd_rows(pairs.presented.frame) < 0.7


def test_triples_are_counted_where_the_declared_records_allow_it_and_the_plan_says_so() -> None:
    consortium = make_consortium(Approx(1.0, 1e-6))

    def built(**options: Any) -> Any:
        return build_synthetic(schema=make_schema(), **options)

    assert built(rows=1_000_000).counts_triples(consortium)
    assert not built(rows=2000).counts_triples(consortium)
    assert not built().counts_triples(consortium)
    assert not built(rows=1_000_000, triples="none").counts_triples(consortium)
    assert built(rows=2000, triples="counted").counts_triples(consortium)
    assert any("only pairs are counted, because the noise" in note for note in built(rows=2000).notes(consortium))
    assert any("neither synthetic.rows" in note for note in built().notes(consortium) if "three columns" in note)
    # With less noise more studies count them, never fewer.
    counted = [built(rows=20_000).counts_triples(make_consortium(Approx(e, 1e-6))) for e in (0.1, 0.5, 2.0, 20.0)]
    assert counted == sorted(counted) and counted[-1] and not counted[0]


@pytest.mark.parametrize(
    "options", [{"rounds": 2}, {"pooling": "none"}, {"model": "naive-bayes"}, {"schema": Schema((Numeric("a", 0, 1),))}]
)
def test_what_can_not_be_counted_is_refused_where_it_is_asked_for(options: Any) -> None:
    with pytest.raises(StudyError) as refused:
        build_synthetic(**{**COUNTED, **options})
    assert refused.value.key == "synthetic.triples"
    assert not build_synthetic(**{"schema": make_schema(), "rows": 10**7, **options}).counts_triples(make_consortium())


def test_triples_that_count_other_numbers_of_records_do_not_agree() -> None:
    layout, codes = LAYOUTS[0], np.random.default_rng(0).integers(0, 2, (300, 4))
    triples = Triples(layout, 4, False)
    counts = triples.count(triples.choose_groups(layout.count(codes)), codes)

    def agree(found: np.ndarray) -> bool:
        ranges = table_ranges(triples, found, about=300)
        return all(np.allclose(np.clip(one.found, one.low, one.high), one.found) for one in ranges)

    assert agree(counts)
    twice = counts.copy()
    twice[: triples.blocks[0].stop] *= 2
    assert not agree(twice)


SMALL = Schema((Categorical("a", tuple("abcdef")), Categorical("b", ("0", "1"))), Classes("ill", ("no", "yes")))


@pytest.mark.long
def test_pairs_and_triples_together_lose_no_more_than_is_debited_for_them() -> None:
    """The reader knows all records but one, and scores both releases; groups follow from the first in each draw."""
    built, consortium = build_synthetic(schema=SMALL, triples="counted"), make_consortium(Approx(6.0, 1e-6))
    layout, triples = built.counting(consortium).layout, built._planned_triples(consortium)
    codes = np.array([[0, 1, 0], [3, 0, 1], [5, 1, 1]])
    claimed = sqrt(float(gaussian_budget(consortium.loss).square))
    releases = [built.declare(consortium)[name] for name in ("counts", "triples")]
    alone = build_synthetic(schema=SMALL, triples="none").declare(consortium)["counts"]

    def measured(stretched: float = 1.0, *, whole: bool = False, count: int = 4000) -> float:
        used = [replace(one, protection=alone.protection) for one in releases] if whole else releases
        deviation = [one.opened_deviation(consortium, consortium.honest_parts) for one in used]
        apart = stretched * (layout.count(codes) - layout.count(codes[:-1]))
        scores: list[np.ndarray] = []
        for side in (1, 0):
            first = draw_views(used[0], consortium, layout.count(codes[:-1]) + side * apart, 7 + side, count=count)
            noise = draw_views(used[1], consortium, np.zeros(used[1].shape[0]), 17 + side, count=count)
            score = first @ apart / deviation[0] ** 2
            for place, view in enumerate(first):
                last = stretched * triples.count(triples.choose_groups(view), codes[-1:])
                score[place] += (noise[place] + side * last) @ last / deviation[1] ** 2
            scores.append(score)
        return mu_lower_bound(scores[0], scores[1], confidence=SURE)

    assert 0.6 * claimed < measured() <= claimed
    # Controls: a record that counts twice, and sums that each spend the whole loss.
    assert measured(2.0) > claimed
    assert measured(whole=True) > claimed

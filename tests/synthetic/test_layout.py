"""What is counted, and how far one record moves it: brute force over every record of small schemas."""

from __future__ import annotations

from itertools import product
from math import comb, isclose, sqrt
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comity.data import Categorical, Numeric, Schema
from comity.entropy import Stream
from comity.errors import DataError, StudyError
from comity.federation.declare.bounds import Counts
from comity.methods.synthetic import Synthetic, synthesis
from comity.methods.synthetic.artefact import NoisyCounts
from comity.methods.synthetic.consistency import make_consistent
from comity.methods.synthetic.counts import (
    BINS,
    LAPLACE,
    MAX_COLUMNS,
    MAX_COUNTS,
    PAIRED_COLUMNS,
    Layout,
    find_reach,
    fit_counting,
)
from comity.privacy.loss import GDP

from .consortia import CLASSES, NUMBER, build_synthetic, make_consortium, make_frame, make_schema

LAYOUTS = [
    Layout((2, 3, 2), 2),
    Layout((2, 3, 2)),
    Layout((2, 3, 2), 2, sparse=True),
    Layout((2, 3, 2), 2, emphasis=LAPLACE),
    Layout((2, 3, 2), 2, {1: 0}),
    Layout((3, 2), None, {1: 0}, sparse=True),
    Layout((3,), 0, sparse=True),
    Layout((2, 2, 2, 2, 2), 4, reach=1),
    Layout((2, 3, 2, 2), None, {1: 0}, reach=1),
    Layout((3,)),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("replaced", [False, True])
def test_no_record_moves_the_counts_further_than_the_bound_and_one_moves_them_as_far(
    layout: Any, replaced: bool
) -> None:
    bound = Counts(layout.weights, replaced, 100)
    every = np.array(list(product(*map(range, layout.sizes))))
    others = every[:2]
    before = layout.count(others)
    moved = [layout.count(np.vstack([others, row])) for row in every]
    pairs = [(one, before) for one in moved] if not replaced else list(product(moved, moved))
    l1 = max(np.abs(one - other).sum() for one, other in pairs)
    l2 = max(np.linalg.norm(one - other) for one, other in pairs)
    assert l1 <= bound.l1 and l2 <= bound.l2
    # A replaced record can leave every cell only if every column has two.
    assert isclose(l1, bound.l1) and isclose(l2, bound.l2)


def test_the_noise_of_a_study_is_scaled_for_the_blocks_that_it_counts() -> None:
    built = build_synthetic(schema=make_schema())
    for neighbours, factor in (("add-remove", 1.0), ("replace", sqrt(2))):
        consortium = make_consortium(neighbours=neighbours)
        release, layout = built.declare(consortium)["counts"], built.counting(consortium).layout
        assert isclose(release.sensitivity, factor * sqrt(sum(w * w for w in layout.weights)))
        assert release.shape == (layout.counts,)
        # Whole numbers on their grid: nothing is rounded, so no term for rounding is missing.
        assert isclose(
            release.scale(consortium).total,
            release.sensitivity / sqrt(float(cast(GDP, release.loss).square)),
            rel_tol=1e-6,
        )


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_counts_are_those_of_a_plain_tally(layout: Any) -> None:
    codes = np.column_stack([np.random.default_rng(k).integers(0, size, 50) for k, size in enumerate(layout.sizes)])
    tables = layout.tables(layout.count(codes))
    assert set(tables) == set(layout.keys)
    for key, table in tables.items():
        for cell in product(*(range(layout.sizes[k]) for k in key)):
            assert table[cell] == (codes[:, key] == cell).all(1).sum()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(0, 1000))
def test_a_stack_of_parties_counts_as_each_of_them_alone(sizes: Any, seed: int) -> None:
    layout, chance = Layout((2, 3, 4), 2), np.random.default_rng(seed)
    most = max(1, *sizes)
    codes = np.zeros((len(sizes), most, 3))
    present = np.zeros((len(sizes), most), bool)
    alone = []
    for place, size in enumerate(sizes):
        own = np.column_stack([chance.integers(0, k, size) for k in layout.sizes])
        codes[place, :size], present[place, :size] = own, True
        alone.append(layout.count(own))
    assert (layout.count(codes, present) == np.stack(alone)).all()


def test_a_cell_that_the_layout_does_not_have_is_refused() -> None:
    with pytest.raises(DataError, match="cells of 3 columns"):
        LAYOUTS[0].count(np.array([[0, 3, 0]]))
    with pytest.raises(DataError, match="cells of 3 columns"):
        LAYOUTS[0].count(np.array([[0, -1, 0]]))


def test_a_column_that_follows_another_is_counted_with_it_alone() -> None:
    layout = fit_counting(make_schema()).layout
    names = fit_counting(make_schema()).cells.names
    town, region = names.index("town"), names.index("region")
    assert [key for key in layout.keys if region in key] == [(town, region)]


def test_a_number_as_target_has_ten_buckets_and_missing_values_a_cell() -> None:
    sizes = dict(zip(fit_counting(make_schema(NUMBER)).cells.names, fit_counting(make_schema(NUMBER)).cells.sizes))
    assert sizes == {"age": 4, "income": 4, "town": 4, "region": 2, "stage": 3, "seen": 4, "cost": 10}


def test_cells_do_not_depend_on_records() -> None:
    built = build_synthetic(schema=make_schema())
    assert built.encoding.encode(make_frame(3)).records.features.shape[1] == 7
    assert built.declare(make_consortium())["counts"].shape == (fit_counting(make_schema()).layout.counts,)


def wide(columns: int, **kind: Any) -> Schema:
    return Schema(tuple(Numeric(f"x{k}", 0.0, 1.0, **kind) for k in range(columns - 1)), CLASSES)


def test_very_many_columns_get_fewer_cells_and_the_plan_says_so() -> None:
    built = build_synthetic(schema=wide(MAX_COLUMNS, missing="cell"), rows=10_000)
    counting = built.counting(make_consortium())
    assert counting.bins < BINS[0] and counting.layout.counts <= MAX_COUNTS
    assert any(f"there are {counting.bins}" in note for note in built.notes(make_consortium()))
    assert build_synthetic(schema=wide(20)).counting(make_consortium()).bins == BINS[0]


def test_more_than_can_be_counted_is_refused_with_the_column_that_is_too_large() -> None:
    with pytest.raises(StudyError, match=f"at most {MAX_COLUMNS} columns, found {MAX_COLUMNS + 1}"):
        build_synthetic(schema=wide(MAX_COLUMNS + 1))
    with pytest.raises(StudyError, match="at most 131,072 counts") as refused:
        build_synthetic(schema=wide(64, bins=16))
    assert "group categories" in str(refused.value)
    many = Categorical("code", tuple(map(str, range(40_000))))
    with pytest.raises(StudyError, match="'code' with 40000 cells") as refused:
        build_synthetic(schema=Schema((many, Numeric("x", 0.0, 1.0)), CLASSES))
    assert refused.value.key == "columns.code"


@pytest.mark.parametrize("labelled", [True, False])
def test_of_very_many_columns_as_many_pairs_are_counted_as_fit(labelled: bool) -> None:
    assert find_reach(PAIRED_COLUMNS, labelled) is None
    for columns in (PAIRED_COLUMNS + 1, 66, 100, 151, MAX_COLUMNS):
        target, reach = columns - 1 if labelled else None, find_reach(columns, labelled)
        assert reach is not None and reach >= 9
        pairs = Layout((2,) * columns, target, reach=reach).pairs
        more = Layout((2,) * columns, target, reach=reach + 1).pairs
        assert len(pairs) <= comb(PAIRED_COLUMNS, 2) < len(more)
        assert {k for pair in pairs for k in pair} == set(range(columns))


def test_which_pairs_are_counted_follows_from_the_schema_alone_and_the_plan_says_so() -> None:
    names = [f"x{k}" for k in range(69)]
    first = Numeric("x0", 0.0, 1.0)
    led = Schema(
        (first, *(Numeric(name, 0.0, 1.0, follows="x0" if name == "x5" else None) for name in names[1:])), CLASSES
    )
    built = build_synthetic(schema=led, rows=1_000_000)
    layout = built.counting(make_consortium()).layout
    assert layout.reach == find_reach(69, True) and (0, 5) in layout.pairs
    # x5 follows x0, so x6 is the fifth column after it that leads.
    assert layout.reach is not None
    far = 1 + layout.reach
    assert (0, far) in layout.pairs and (0, far + 1) not in layout.pairs
    assert all((k, 69) in layout.pairs for k in range(69) if k != 5)
    assert layout.uncounted == comb(69, 2) + 1 - len(layout.pairs)
    assert any(
        f"{layout.uncounted:,} pairs of columns are not counted" in note for note in built.notes(make_consortium())
    )
    assert not any("not counted" in note for note in build_synthetic(schema=wide(64)).notes(make_consortium()))


def test_columns_of_different_owners_have_all_their_pairs_or_are_refused() -> None:
    names = [f"x{k}" for k in range(69)]
    held = {"north": tuple(names[:30]), "south": (*names[30:], "ill")}
    with pytest.raises(StudyError, match=f"at most {PAIRED_COLUMNS} columns, found 70"):
        Synthetic(wide(70), columns=held).protocol()


def test_columns_that_were_not_counted_together_have_no_relation_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthesis, "max_steps", lambda layout: 300)
    chance, layout, width = np.random.default_rng(0), Layout((5,) * 24, reach=2), 40.0
    shared = chance.normal(size=(20_000, 6)).repeat(4, axis=1)
    codes = np.clip(np.round(shared + 0.5 * chance.normal(size=shared.shape) + 2), 0, 4).astype(int)
    opened = layout.count(codes) + width * chance.normal(size=layout.counts)
    consistent = make_consistent(layout, layout.tables(opened), layout.deviations(width))
    rows, _ = synthesis.sample_mixture(
        synthesis.fit_two_passes(layout, consistent, Stream.public("fit")), 5000, Stream.public("rows")
    )
    found = np.asarray(np.corrcoef(rows.T))
    apart = [abs(found[i, j]) for i in range(24) for j in range(i) if i // 4 != j // 4 and (j, i) not in layout.pairs]
    assert np.mean(apart) < 0.03
    assert np.mean([found[k, k + 1] for k in range(0, 24, 4)]) > 0.5


def test_rows_of_very_many_columns_can_not_be_redrawn_by_another_target() -> None:
    counting = fit_counting(wide(66, bins=2))
    counts = NoisyCounts(counting, "mixture", np.ones(counting.layout.counts), 1.0, None, 1)
    with pytest.raises(DataError, match="know the pairs of ill"):
        counts.frame(50, "x3")

"""What is counted, and how far one record moves it: brute force over every record of small schemas."""

from __future__ import annotations

from itertools import product
from math import isclose, sqrt
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comity.data import Categorical, Numeric, Schema
from comity.errors import DataError, StudyError
from comity.federation.declare.bounds import Counts
from comity.methods.synthetic.counts import BINS, LAPLACE, MAX_COLUMNS, MAX_COUNTS, Layout, fit_counting
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
    with pytest.raises(StudyError, match=f"at most {MAX_COLUMNS} columns, found 70"):
        build_synthetic(schema=wide(70))
    with pytest.raises(StudyError, match="at most 131,072 counts") as refused:
        build_synthetic(schema=wide(64, bins=16))
    assert "group categories" in str(refused.value)
    many = Categorical("code", tuple(map(str, range(40_000))))
    with pytest.raises(StudyError, match="'code' with 40000 cells") as refused:
        build_synthetic(schema=Schema((many, Numeric("x", 0.0, 1.0)), CLASSES))
    assert refused.value.key == "columns.code"

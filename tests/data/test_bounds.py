"""Norm bounds against every row that a small schema can encode, in exact arithmetic."""

from __future__ import annotations

from datetime import date, timedelta
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from comity.data import Categorical, Date, Encoding, Numeric, Ordinal, Schema

FIRST = date(2020, 1, 1)


@st.composite
def columns(draw: Any) -> tuple[Any, ...]:
    made: list[Any] = []
    for index in range(draw(st.integers(1, 4))):
        name = f"c{index}"
        kind = draw(st.sampled_from(["real", "whole", "binned", "categorical", "ordinal", "date"]))
        low = draw(st.integers(-5, 5))
        high = low + draw(st.integers(2, 5))
        values = tuple("abcde"[: draw(st.integers(2, 5))])
        if kind == "real":
            made.append(Numeric(name, low, high))
        elif kind == "whole":
            made.append(Numeric(name, low, high, integer=True))
        elif kind == "binned":
            made.append(Numeric(name, low, high, edges=(low + 0.5,)))
        elif kind == "date":
            made.append(Date(name, FIRST, FIRST + timedelta(days=high - low)))
        elif kind == "categorical":
            made.append(Categorical(name, values, other=draw(st.booleans())))
        else:
            made.append(Ordinal(name, values))
    return tuple(made)


def inputs(column: Any) -> list[object]:
    """Values at the ends and the middle, where norms are extreme, all levels, and some outside."""
    if isinstance(column, Numeric):
        if column.integer:
            return [*range(int(column.low), int(column.high) + 1), column.high + 9]
        return [column.low, (column.low + column.high) / 2, column.low + 0.3, column.high, column.high + 9]
    if isinstance(column, Date):
        return [FIRST + timedelta(days=day) for day in (*range(column.steps + 1), -9, 99)]
    return [*column.values, *(["zzz"] if isinstance(column, Categorical) and column.other else [])]


def every_row(schema: Schema) -> pd.DataFrame:
    return pd.DataFrame(list(product(*map(inputs, schema.columns))), columns=list(schema.names))


@settings(max_examples=300, deadline=None)
@example(
    (Date("a", FIRST, FIRST + timedelta(3)), Date("b", FIRST, FIRST + timedelta(5))),
    "symmetric",
    "clipped",
    False,
    False,
)
@example((Ordinal("a", ("x", "y")), Ordinal("b", ("x", "y", "z", "w"))), "symmetric", "clipped", False, False)
@example((Numeric("a", 0, 3, integer=True), Numeric("b", 0, 5, integer=True)), "symmetric", "normalised", False, False)
@given(
    columns(),
    st.sampled_from(["symmetric", "unit"]),
    st.sampled_from(["none", "scaled", "clipped", "normalised"]),
    st.booleans(),
    st.booleans(),
)
def test_bounds_dominate_every_row_and_are_attained(
    made: Any, scaling: Any, rows: Any, intercept: bool, bins: bool
) -> None:
    encoding = Encoding(Schema(made), scaling=scaling, rows=rows, intercept=intercept, bins=bins)
    features = np.unique(encoding.encode_features(every_row(encoding.schema)), axis=0)
    bounds = encoding.bounds
    assert features.shape[1] == encoding.width
    magnitude = np.abs(features)
    assert magnitude.sum(axis=1).max() == pytest.approx(bounds.l1, rel=1e-13)
    assert np.sqrt((magnitude**2).sum(axis=1)).max() == pytest.approx(bounds.l2, rel=1e-13)
    assert magnitude.max() == pytest.approx(bounds.linf, rel=1e-13)
    assert magnitude.max() <= bounds.linf
    for row in np.unique(magnitude, axis=0)[-200:]:
        exact = [Fraction(float(entry)) for entry in row if entry]
        assert sum(entry * entry for entry in exact) <= Fraction(bounds.l2) ** 2
        assert sum(exact) <= Fraction(bounds.l1)
    for group in bounds.groups:
        assert ((features[:, group.start : group.stop] != 0).sum(axis=1) <= 1).all()
    assert bounds.groups[-1].stop == encoding.width and bounds.groups[0].start == 0


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.floats(allow_nan=False), min_size=3, max_size=3), min_size=1, max_size=20),
    st.sampled_from(["scaled", "clipped", "normalised"]),
    st.sampled_from(["symmetric", "unit"]),
)
def test_unit_ball_holds_exactly_for_any_float(values: Any, rows: Any, scaling: Any) -> None:
    schema = Schema((Numeric("a", 0, 3), Numeric("b", -1e-3, 1e9), Numeric("c", 0, 1e-300)))
    features = Encoding(schema, rows=rows, scaling=scaling).encode_features(pd.DataFrame(values, columns=list("abc")))
    assert np.isfinite(features).all()
    for row in features:
        square = sum(Fraction(float(entry)) ** 2 for entry in row)
        assert square <= 1
        assert rows != "normalised" or square == 0 or square > 1 - Fraction(1, 10**13)


def test_bounds_of_nothing_are_zero() -> None:
    schema = Schema((Categorical("s", ("a", "b")),), None)
    assert Encoding(schema).bounds.l1 == 1
    only_target = Schema.parse(
        '[columns.s]\nkind="categorical"\nvalues=["a"]\n[target]\nname="y"\nlow=0\nhigh=1'
    ).restrict("y")
    encoding = Encoding(only_target)
    assert (encoding.bounds.l1, encoding.bounds.l2, encoding.bounds.linf, encoding.width) == (0, 0, 0, 0)
    assert encoding.encode(pd.DataFrame({"y": [0.5, 0.7]})).records.features.shape == (2, 0)

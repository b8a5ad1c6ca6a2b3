"""Rows are brought into the unit ball to the last digit: what one record can move rests on it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import Encoding, Numeric, Schema
from comity.federation.declare.bounds import RecordSum
from comity.learn.record_sum import _peaks_are_inside, from_upper_triangle, in_unit_ball, upper_triangle


@pytest.mark.parametrize("length", [1 + 1e-9, 1.02, 1.2, 3.0])
def test_a_row_a_little_too_long_is_shortened(length: float) -> None:
    rows = np.random.default_rng(2).normal(size=(200, 5))
    rows *= length / np.linalg.norm(rows, axis=1, keepdims=True)
    inside = in_unit_ball(rows)
    np.testing.assert_allclose(np.linalg.norm(inside, axis=1), 1.0, rtol=1e-12)
    assert np.linalg.norm(upper_triangle(inside[:1])) <= RecordSum(1.0, 1.0).l2


def test_a_row_inside_stays_as_it_is() -> None:
    rows = np.array([[0.6, 0.7999], [0.0, -1.0]])
    np.testing.assert_array_equal(in_unit_ball(rows), rows)


@pytest.mark.parametrize("features", [1, 2, 3, 7, 21, 64, 1000])
def test_rows_that_are_inside_by_their_largest_entry_are_inside_by_every_norm(features: int) -> None:
    # The largest entries that pass, in every place: no way of adding the squares may find such a row too long.
    entry = np.sqrt((1 - (features + 8) * 2.0**-53) / features)
    while _peaks_are_inside(np.full((1, features), np.nextafter(entry, 2))):
        entry = np.nextafter(entry, 2)
    while not _peaks_are_inside(np.full((1, features), entry)):
        entry = np.nextafter(entry, 0)
    row = np.full((1, features), entry)
    assert in_unit_ball(row).tobytes() == row.tobytes()
    # Beside a row that is too long the norms themselves decide.
    both = np.concatenate([row, np.full((1, features), 2.0)])
    assert in_unit_ball(both)[0].tobytes() == row[0].tobytes()
    assert sum(Fraction(float(x)) ** 2 for x in row[0]) <= 1


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e200, -1.1])
def test_a_largest_entry_that_is_none_leaves_it_to_the_norms(wrong: Any) -> None:
    rows = np.array([[0.1, 0.1], [0.0, wrong]])
    assert not _peaks_are_inside(rows)
    inside = in_unit_ball(rows)
    assert np.isfinite(inside).all() and (np.linalg.norm(inside, axis=1) <= 1 + 1e-12).all()


def test_rows_of_a_scaled_encoding_are_inside_by_their_largest_entry() -> None:
    for columns in (1, 2, 5, 20, 100):
        schema = Schema(tuple(Numeric(f"x{at}", -1, 1) for at in range(columns)))
        encoding = Encoding(schema, rows="scaled", intercept=True)
        corners = encoding.encode(pd.DataFrame({name: [-1.0, 1.0] for name in schema.names})).records.features
        assert _peaks_are_inside(corners)
    assert _peaks_are_inside(np.zeros((0, 3)))


def test_the_vector_of_a_second_moment_is_as_long_as_its_matrix_and_gives_it_back() -> None:
    rows = np.random.default_rng(8).normal(size=(7, 4))
    vector = upper_triangle(rows)
    assert np.linalg.norm(vector) == pytest.approx(np.linalg.norm(rows.T @ rows))
    assert from_upper_triangle(vector, 4) == pytest.approx(rows.T @ rows)

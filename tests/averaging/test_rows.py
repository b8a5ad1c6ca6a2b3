"""Rows are brought into the unit ball to the last digit: what one record can move rests on it."""

from __future__ import annotations

import numpy as np
import pytest

from comity.federation.bounds import RecordSum
from comity.protocols.averaging.record_sum import in_unit_ball, upper_triangle


@pytest.mark.parametrize("length", [1 + 1e-9, 1.02, 1.2, 3.0])
def test_a_row_a_little_too_long_is_shortened(length):
    rows = np.random.default_rng(2).normal(size=(200, 5))
    rows *= length / np.linalg.norm(rows, axis=1, keepdims=True)
    inside = in_unit_ball(rows)
    np.testing.assert_allclose(np.linalg.norm(inside, axis=1), 1.0, rtol=1e-12)
    assert np.linalg.norm(upper_triangle(inside[:1])) <= RecordSum(1.0, 1.0).l2


def test_a_row_inside_stays_as_it_is():
    rows = np.array([[0.6, 0.7999], [0.0, -1.0]])
    np.testing.assert_array_equal(in_unit_ball(rows), rows)

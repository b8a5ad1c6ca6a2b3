"""Each bound by brute force: what it lets through is as near together as it says, and no nearer than it must."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

from comity.errors import Refused
from comity.federation.declare.bounds import Ball, EntrySum, OpenedValue, RecordSum, Simplex

SHAPE = (3,)


def wild(count: int = 400) -> np.ndarray:
    """Values of every size, some of them on an axis, some of opposite signs."""
    generator = np.random.default_rng(8)
    values = generator.normal(size=(count, *SHAPE)) * 10.0 ** generator.uniform(-3, 6, (count, 1))
    axes = np.concatenate([scale * np.eye(3) for scale in (1e3, -1e3)])
    return np.concatenate([values, -values, axes])


def spread(values: Any, order: Any) -> float:
    flat = values.reshape(len(values), -1)
    return max(float(np.linalg.norm(flat - one, ord=order, axis=1).max()) for one in flat)


def test_a_ball_holds_whatever_is_sent_and_is_as_wide_as_it_says() -> None:
    ball = Ball(1.5)
    inside = ball.enforce(wild(), SHAPE)
    assert np.linalg.norm(inside, axis=1).max() == pytest.approx(1.5, rel=1e-9)
    assert spread(inside, 2) == pytest.approx(ball.l2, rel=1e-6)
    assert spread(inside, 2) <= ball.l2 * (1 + 1e-12)
    within = np.array([[0.1, 0.2, -0.3]])
    np.testing.assert_array_equal(ball.enforce(within, SHAPE), within)


@pytest.mark.parametrize("bound", [Ball(1.5), EntrySum(1.5, 3.0, 1.5)], ids=["ball", "entries"])
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_becomes_the_neutral_value_and_leaves_the_rest_of_a_stack_alone(
    bound: Any, broken: Any
) -> None:
    stack = np.array([[1.0, broken, 0.0], [0.5, 0.0, 0.0], [1e300, 1e300, -1e300]])
    inside = bound.enforce(stack, SHAPE)
    np.testing.assert_array_equal(inside[0], bound.neutral(SHAPE))
    np.testing.assert_array_equal(inside[1], stack[1])
    assert np.isfinite(inside).all() and bound.limit >= np.abs(inside).max() > 0


def test_only_distributions_are_votes_and_two_of_them_are_as_far_apart_as_declared() -> None:
    votes = Simplex(rows=2, classes=3)
    corners = [np.eye(3)[[i, j]] for i in range(3) for j in range(3)]
    inside = np.stack([votes.enforce(one, (2, 3)) for one in corners])
    assert spread(inside, 2) == pytest.approx(votes.l2) == pytest.approx(sqrt(2 * 2))
    assert spread(inside, 1) == pytest.approx(votes.l1)
    np.testing.assert_allclose(votes.neutral((2, 3)).sum(axis=1), 1)
    for outside in ([1.05, 0, 0], [0.95, 0, 0], [1.5, -0.5, 0], [0, 0, 0], [np.nan, 1, 0], [np.inf, 0, 0]):
        with pytest.raises(Refused, match="simplex"):
            votes.enforce(np.array([outside, [1.0, 0, 0]]), (2, 3))


def test_bounds_say_whether_their_neutral_value_lies_within() -> None:
    for bound, shape in ((Ball(2.0), SHAPE), (Simplex(2, 3), (2, 3))):
        assert bound.neutral_within
        np.testing.assert_array_equal(bound.enforce(bound.neutral(shape), shape), bound.neutral(shape))
    assert not OpenedValue(l2=1.0, limit=1.0).neutral_within


def test_a_sum_over_records_counts_its_rounding_and_the_last_digits_of_each_part() -> None:
    """n·2^-52 of the sum of all norms for adding them, and 2^-50 of it for what elementwise functions round."""
    records, each = 10**6, 2.0
    for bound in (RecordSum(1.0, records * each, records), EntrySum(each, 1.0, records * each, records)):
        found = bound.l2 if isinstance(bound, RecordSum) else bound.l1
        assert found - 1.0 >= (records + 4) * records * each * 2.0**-52
    assert RecordSum(0.0, 1.0, 1).l2 >= 2.0**-50

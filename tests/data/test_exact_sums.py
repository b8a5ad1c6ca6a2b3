"""Sums that are the same to the last bit in any order: against fractions, with shuffled records and blocks."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from comity.data.exact_sums import FACTOR_PLACES, MAX_BLOCK_ROWS, ExactSum, round_factor, round_term
from comity.errors import ComityError

UNIT = Fraction(1, 1 << 36)


def rows(count: int, width: int = 5) -> np.ndarray:
    generator = np.random.default_rng(count)
    found = generator.normal(size=(count, width)) * 10.0 ** generator.uniform(-12, 0, size=(count, width))
    return np.asarray(found / np.maximum(1.0, np.linalg.norm(found, axis=1, keepdims=True)))


def sum_blocks(factors: np.ndarray, edges: list[int]) -> ExactSum:
    return ExactSum.total(ExactSum.of(factors[a:b].T @ factors[a:b]) for a, b in pairwise(edges))


def test_a_sum_is_the_same_in_any_blocks_and_order_and_is_the_true_one() -> None:
    factors = round_factor(rows(500))
    whole = sum_blocks(factors, [0, 500])
    for seed in range(5):
        generator = np.random.default_rng(seed)
        edges = [0, *sorted(generator.integers(0, 501, size=1 + seed * 10)), 500]
        found = sum_blocks(generator.permutation(factors), edges)
        assert (found.high == whole.high).all() and (found.low == whole.low).all()
        assert found.value().tobytes() == whole.value().tobytes()
    true = sum(Fraction(float(one)) ** 2 for one in factors[:, 0])
    assert (int(whole.high[0, 0]) * (1 << 32) + int(whole.low[0, 0])) * UNIT == true
    # Plain doubles depend on the order: a sum without the grid is no such function.
    plain = {(rows(500)[order].T @ rows(500)[order]).tobytes() for order in (slice(None), slice(None, None, -1))}
    assert len(plain) == 2


def test_no_norm_grows_and_an_entry_loses_less_than_a_place() -> None:
    given = rows(1000)
    for found, places in ((round_factor(given), FACTOR_PLACES), (round_term(given), 2 * FACTOR_PLACES)):
        assert (np.abs(found) <= np.abs(given)).all() and (np.abs(found - given) < 2.0**-places).all()
        assert (found * 2.0**places == np.rint(found * 2.0**places)).all()


def test_the_longest_block_of_the_largest_terms_is_exact() -> None:
    largest, least = 2.0, 2.0**-FACTOR_PLACES
    column = np.full((MAX_BLOCK_ROWS, 1), 2 - least)
    other = np.full((MAX_BLOCK_ROWS, 1), 1 - least)
    true = MAX_BLOCK_ROWS * Fraction(float(column[0, 0])) * Fraction(float(other[0, 0]))
    found = ExactSum.of(column.T @ other)
    assert (int(found.high[0, 0]) * (1 << 32) + int(found.low[0, 0])) * UNIT == true < MAX_BLOCK_ROWS * largest


def test_negative_sums_and_very_many_records_are_held() -> None:
    for sign in (1, -1):
        one = ExactSum.of(np.array([sign * (2.0**17 - 2.0**-36)]))
        found = ExactSum(one.high.copy(), one.low.copy())
        for _ in range(40):
            found.add(ExactSum(found.high.copy(), found.low.copy()))
        assert 0 <= int(found.low[0]) < 1 << 32
        exact = (int(found.high[0]) * (1 << 32) + int(found.low[0])) * UNIT
        assert exact == sign * (Fraction(2**17) - UNIT) * 2**40 and found.value()[0] == float(exact)


@pytest.mark.parametrize("value", [0.1, 2.0**-37, 2.0**17 + 0.5, 2.0**49, np.nan, np.inf])
def test_what_is_off_the_grid_is_refused(value: float) -> None:
    with pytest.raises(ComityError, match="off its grid"):
        ExactSum.of(np.array([0.0, value]))
    # Whole numbers, such as counts of weighted records, may be large.
    assert ExactSum.of(np.array([2.0**30])).value() == [2.0**30]


def test_parts_of_several_shapes_are_refused() -> None:
    with pytest.raises(ComityError, match="several shapes"):
        ExactSum.total([ExactSum.of(np.zeros(2)), ExactSum.of(np.zeros(3))])

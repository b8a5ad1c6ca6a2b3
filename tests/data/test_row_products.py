"""Products that are exact, whatever stands beside a row, and close to those of doubles."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from comity.data import row_products
from comity.data.row_products import (
    LARGEST,
    Weights,
    clip_received,
    products,
    rough_unit_products,
    row_norms,
    row_sums,
    unit_products,
)


def rows_of(count: int, width: int) -> np.ndarray:
    chance = np.random.default_rng([count, width])
    rows = chance.normal(size=(count, width))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@pytest.mark.parametrize("width", [1, 2, 3, 40, 1500])
@pytest.mark.parametrize("scale", [1e-310, 1.0, 3e9])
def test_products_are_those_of_doubles_to_ten_digits(width: int, scale: float) -> None:
    rows, weights = rows_of(9, width), scale * np.random.default_rng(1).normal(size=(3, width))
    exact = rows @ weights.T
    length = np.linalg.norm(weights / scale, axis=1) * scale
    assert (np.abs(unit_products(rows, weights) - exact) <= 2.0**-32 * length + 5e-324).all()
    assert (np.abs(rough_unit_products(rows, weights) - exact) <= width**0.5 * 2.0**-26 * length + 5e-324).all()
    for longer in (1e-3, 1.0, 1e12):
        assert (np.abs(products(longer * rows, weights) - longer * exact) <= 2.0**-32 * longer * length + 5e-324).all()


@pytest.mark.parametrize("width", [1, 4, 5, 200, 1500])
def test_no_sum_of_products_is_rounded(width: int) -> None:
    """In rational numbers, with the longest row and the longest weights that there are: all of one sign, of norm 1."""
    rows, longest = np.full((1, width), width**-0.5), np.full((1, width), np.nextafter(1.0, 0.0))
    two, one = Weights.of(longest), Weights.on_one_grid(longest)
    for part, places in (*((part, two.places) for part in two.factor.T), (one.factor[:, 0], one.places)):
        on_grid = row_products._on_grid(rows, places)
        terms = [Fraction(float(x)) * Fraction(float(w)) for x, w in zip(on_grid[0], part)]
        # Every partial sum is a double, in both directions and by pairs from both ends.
        for order in (terms, terms[::-1], [*terms[::2], *terms[1::2]]):
            total = Fraction(0)
            for term in order:
                total += term
                assert Fraction(float(term)) == term and Fraction(float(total)) == total


@pytest.mark.parametrize("width", [4, 16, 256])
def test_no_sum_of_the_largest_remainders_is_rounded(width: int) -> None:
    """Weights in the middle between two points of the coarse grid leave the longest remainders, all of one sign; their
    last digits differ, so that the sum needs every bit of the fine grid."""
    middle = (np.floor(0.99 * 2.0**19 / np.sqrt(width)) + 0.5) * 2.0**-19
    remainders = middle - np.random.default_rng(width).integers(1, 1 << 20, size=(1, width)) * 2.0**-48
    weights, row = Weights.of(remainders), row_products._on_grid(np.full(width, width**-0.5 - 2.0**-32), 33)
    terms = [Fraction(float(x)) * Fraction(float(w)) for x, w in zip(row, weights.factor[:, 1])]
    assert abs(sum(terms)) >= 0.9 * np.sqrt(width) * 2.0**-20
    total = Fraction(0)
    for term in terms:
        total += term
        assert Fraction(float(total)) == total


@pytest.mark.parametrize("width", [1, 2, 3, 31, 200])
def test_a_row_has_the_same_products_norm_and_sum_in_any_batch_and_layout(width: int) -> None:
    rows, weights = rows_of(70, width), np.random.default_rng(2).normal(size=(4, width))
    weights[1] *= 1e9
    tried: list[Any] = [unit_products, rough_unit_products, lambda x, weights: products(7 * x, weights)]
    computed: list[Any] = [*(partial(one, weights=weights) for one in tried), row_norms]
    for compute in computed:
        whole = compute(rows)
        for some in (slice(0, 1), slice(3, 5), slice(1, 70), slice(17, 50)):
            np.testing.assert_array_equal(compute(rows[some]), whole[some])
            np.testing.assert_array_equal(compute(np.asfortranarray(rows[some])), whole[some])
    np.testing.assert_allclose(row_sums(rows.copy()), rows.sum(axis=1), rtol=1e-12, atol=1e-14)


def test_rows_of_any_length_have_the_same_products_in_any_batch() -> None:
    """Norms at and beside the limits between two grids, squares that overflow or underflow, rows of norm 1."""
    chance = np.random.default_rng(5)
    rows = rows_of(64, 37) * np.ldexp(1.0, chance.integers(-520, 515, size=64))[:, None]
    rows[::3] = 0.0
    rows[::3, 0] = np.ldexp(4 / 3 * (1 + chance.integers(-3, 4, size=22) * 2.0**-52), chance.integers(-1000, 1000, 22))
    rows[1], rows[4], rows[7] = 1e308, 1e155, 37**-0.5
    weights = chance.normal(size=(3, 37))
    whole = products(rows, weights)
    for start in (0, 3, 7):
        for count in range(1, 50):
            np.testing.assert_array_equal(products(rows[start:][:count], weights), whole[start:][:count])


def test_functions_of_single_numbers_do_not_depend_on_where_these_stand() -> None:
    """What follows a product at a site. A library for which this fails has to be counted, or not used."""
    numbers = np.random.default_rng(3).normal(size=300) * 10
    functions: dict[str, Any] = {
        "exp": np.exp,
        "log": lambda x: np.log(np.abs(x)),
        "expit": expit,
        "cos": np.cos,
        "single cos": lambda x: np.cos(x.astype(np.float32)),
        "single sin": lambda x: np.sin(x.astype(np.float32)),
    }
    for name, function in functions.items():
        whole = function(numbers)
        for start in range(4):
            for count in (*range(1, 40), 127, 128, 200):
                np.testing.assert_array_equal(function(numbers[start : start + count]), whole[start:][:count], name)


def test_received_numbers_are_brought_into_their_range() -> None:
    assert clip_received(np.array([1e300, -1e300, np.nan, 2.0])).tolist() == [LARGEST, -LARGEST, 0.0, 2.0]
    assert clip_received(np.array([3.0, -0.5]), 1.0).tolist() == [1.0, -0.5]


def test_rows_and_weights_without_entries_or_length_have_products_of_zero() -> None:
    assert unit_products(np.zeros((3, 0)), np.zeros((2, 0))).tolist() == [[0.0, 0.0]] * 3
    assert products(np.zeros((2, 4)), np.ones((1, 4))).tolist() == [[0.0], [0.0]]
    assert unit_products(rows_of(2, 4), np.zeros((1, 4))).tolist() == [[0.0], [0.0]]
    assert unit_products(np.zeros((0, 4)), np.ones((2, 4))).shape == (0, 2)
    assert unit_products(np.zeros((2, 3, 4)), np.ones((2, 4))).shape == (2, 3, 2)

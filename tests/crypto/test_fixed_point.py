from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from comity.crypto.products.fixed_point import (
    FixedPoint,
    join_shares,
    lower_from_word,
    product_bits,
    raise_to_word,
    require_bits,
    split_values,
)
from comity.errors import Malformed, Refused


@given(st.integers(0, 40), st.floats(0.1, 1000), st.lists(st.floats(-1, 1), min_size=1, max_size=200))
@settings(deadline=None)
def test_a_number_comes_back_to_half_a_unit(places: int, bound: float, fractions: Any) -> None:
    form = FixedPoint(places, bound)
    values = np.array(fractions) * bound
    integers = form.encode(values)
    assert integers.dtype == np.int64
    assert np.abs(integers).max() <= form.largest
    assert np.abs(form.decode(integers) - values).max() <= 2.0 ** -(places + 1)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [(1, 1), (63, 3), (64, 7), (65, 2), (1000, 11)])
def test_columns_are_the_turned_integers(shape: Any, kind: Any) -> None:
    values = np.random.default_rng(1).uniform(-2, 2, shape)
    columns = FixedPoint(12, 2.0).columns(values, kind)
    assert columns.dtype == kind and columns.flags.c_contiguous
    assert np.array_equal(columns, np.rint(values * 4096).T)


@pytest.mark.parametrize("bad", [1.0000001, -1.5, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_value_beyond_the_bound_is_refused(bad: Any, place: int) -> None:
    values = np.zeros(333)
    values[place] = bad
    with pytest.raises(Malformed):
        FixedPoint(16).encode(values)


@pytest.mark.parametrize("places, bound", [(-1, 1.0), (53, 1.0), (16, 0.0), (16, np.inf), (16, np.nan), (40, 1e6)])
def test_a_form_without_room_is_refused(places: int, bound: Any) -> None:
    with pytest.raises(Refused):
        FixedPoint(places, bound)


def test_integers_must_fit_their_type() -> None:
    with pytest.raises(Malformed):
        FixedPoint(31).columns(np.ones((1, 1)), np.int32)
    with pytest.raises(Malformed):
        FixedPoint(3).columns(np.ones(4), np.int32)


@given(st.integers(1, 10**9), st.integers(0, 25), st.floats(0.01, 100), st.integers(0, 2**50))
def test_product_bits_are_enough_and_no_more(rows: int, places: int, bound: float, noise: int) -> None:
    left, right = FixedPoint(places, bound), FixedPoint(places)
    most = rows * left.largest * right.largest + noise
    bits = product_bits(rows, left, right, noise=noise)
    assert most < 2 ** (bits - 1)
    assert most == 0 or most >= 2 ** (bits - 2)


def test_too_narrow_a_ring_is_refused() -> None:
    require_bits(64, 64)
    with pytest.raises(Refused, match="needs 65 bits and the ring has 64"):
        require_bits(65, 64)


@given(st.sampled_from([32, 64]), st.integers(2, 6), st.data())
def test_shares_add_up(bits: Any, parties: int, data: Any) -> None:
    half = 2 ** (bits - 1)
    edges = st.sampled_from([0, 1, -1, half - 1, -half])
    values = np.array(data.draw(st.lists(edges | st.integers(-half, half - 1), min_size=1, max_size=20)), np.int64)
    shares = split_values(values, parties, bits=bits)
    assert len(shares) == parties
    assert np.array_equal(join_shares(shares, bits=bits), values)


def test_what_is_no_set_of_shares_is_refused() -> None:
    with pytest.raises(Malformed):
        split_values(np.array([2**31]), 2, bits=32)
    with pytest.raises(Malformed):
        split_values(np.array([1]), 1)
    with pytest.raises(Malformed):
        split_values(np.array([1]), 2, bits=48)
    shares = split_values(np.arange(4), 2)
    wrong: Any
    for wrong in ([], [shares[0], shares[1][:3]], [shares[0], shares[1].view(np.int64)]):
        with pytest.raises(Malformed):
            join_shares(wrong)


def uniform(words: Any) -> Any:
    """The p-value of the lowest and the highest byte being uniform, the smaller of the two."""
    size = words.dtype.itemsize
    planes = np.ascontiguousarray(words).view(np.uint8).reshape(-1, size)
    return min(chisquare(np.bincount(planes[:, place], minlength=256)).pvalue for place in (0, size - 1))


@pytest.mark.parametrize("value", [0, 12345, -(2**31)])
@pytest.mark.parametrize("bits", [32, 64])
def test_each_share_alone_is_uniform(value: Any, bits: int) -> None:
    for share in split_values(np.full(40_000, value), 3, bits=bits):
        assert uniform(share) > 1e-6


def test_a_share_that_hides_too_little_is_caught() -> None:
    noise = np.random.default_rng(0).integers(0, 2**32, 40_000).astype(np.uint64)
    assert uniform(np.uint64(12345) + noise) < 1e-6


@given(st.integers(2, 64), st.data())
def test_raised_shares_add_up_in_the_wide_ring(bits: int, data: Any) -> None:
    half = 2 ** (bits - 1)
    value = data.draw(st.integers(-half, half - 1))
    one = data.draw(st.integers(0, 2 * half - 1))
    shares = [np.array([share % (2 * half)], np.uint64) for share in (one, value - one)]
    total = raise_to_word(shares[0], bits) + raise_to_word(shares[1], bits)
    assert lower_from_word(total, bits).tolist() == [value]


def test_narrow_shares_in_a_wide_ring_would_show_the_value() -> None:
    """Without raising, the carry out of the narrow ring tells an exact 0 from an exact −1 whatever is added later."""
    bits, count = 40, 500
    one = np.random.default_rng(2).integers(0, 2**bits, count).astype(np.uint64)
    modulus = np.uint64(2**bits - 1)
    carries, raised = [], []
    for value in (0, 2**bits - 1):
        other = (np.uint64(value) - one) & modulus
        carries.append(((one + other) >> np.uint64(bits)).mean())
        raised.append(np.unique(raise_to_word(one, bits) + raise_to_word(other, bits)).size)
    assert carries[0] > 0.99 and carries[1] == 0
    assert raised == [1, 1]

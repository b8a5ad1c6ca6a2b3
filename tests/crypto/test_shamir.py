from __future__ import annotations

import secrets
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comity.crypto.shamir import PRIME, SHARE_BYTES, _weights, join, rebuild, split
from comity.errors import Malformed


def test_the_modulus_is_prime() -> None:
    # Lucas-Lehmer for 2^521 - 1.
    s = 4
    for _ in range(521 - 2):
        s = (s * s - 2) % PRIME
    assert s == 0


@given(st.binary(min_size=32, max_size=32), st.integers(1, 6), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_any_threshold_shares_give_the_secret(secret: bytes, threshold: int, more: int) -> None:
    shares = split(secret, threshold, range(1, threshold + more + 1))
    for chosen in list(combinations(shares, threshold))[:10]:
        assert join({x: shares[x] for x in chosen}) == secret


def test_a_published_example() -> None:
    """1234 + 166x + 94x² (Wikipedia, Shamir's secret sharing): 1234 from the points at 2, 4 and 5; nothing wraps."""
    points = {2: 1942, 4: 3402, 5: 4414}
    joined = join({x: y.to_bytes(SHARE_BYTES, "big") for x, y in points.items()})
    assert int.from_bytes(joined, "big") == 1234


def test_fewer_shares_fit_every_secret() -> None:
    """With one share missing, some share completes the set to any secret: the known ones say nothing."""
    shares = split(b"a" * 32, 3, [1, 2, 3])
    other = int.from_bytes(b"b" * 32, "big")
    # The parabola through (0, other), (1, s1), (2, s2) has a value at 3: the completing share.
    s1, s2 = (int.from_bytes(shares[x], "big") for x in (1, 2))
    third = (other - 3 * s1 + 3 * s2) % PRIME
    assert join({1: shares[1], 2: shares[2], 3: third.to_bytes(66, "big")}) == b"b" * 32


def test_shares_of_different_secrets_are_refused_with_overwhelming_probability() -> None:
    one, two = split(b"a" * 32, 2, [1, 2]), split(b"b" * 32, 2, [1, 2])
    with pytest.raises(Malformed):
        join({1: one[1], 2: two[2]})


@pytest.mark.parametrize(("threshold", "points"), [(0, [1]), (3, [1, 2]), (1, [0]), (1, [1, 1])])
def test_impossible_sharings_are_refused(threshold: int, points: Any) -> None:
    with pytest.raises(ValueError):
        split(b"a" * 32, threshold, points)
    with pytest.raises(ValueError):
        split(b"short", 1, [1])


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_wrong_shares_are_left_out_and_named(data: Any) -> None:
    threshold, more = data.draw(st.integers(2, 5)), data.draw(st.integers(0, 4))
    points = list(range(1, threshold + more + 1))
    shares = split(b"s" * 32, threshold, points)
    wrong = data.draw(st.sets(st.sampled_from(points), max_size=more))
    for point in wrong:
        shares[point] = secrets.token_bytes(66)
    secret, strangers = rebuild(shares, threshold)
    assert secret == b"s" * 32
    # A wrong share behind the ones that were needed is not looked at.
    assert strangers <= wrong
    assert not set(points[:threshold]) & wrong or strangers == wrong


def test_a_secret_without_enough_right_shares_is_given_up() -> None:
    shares = split(b"s" * 32, 3, range(1, 6))
    with pytest.raises(Malformed):
        rebuild({1: shares[1], 2: shares[2]}, 3)
    with pytest.raises(Malformed):
        rebuild({**shares, **{point: secrets.token_bytes(66) for point in (1, 2, 3)}}, 3)


def test_the_weights_of_many_points_are_computed_once() -> None:
    """Joining for hundreds of parties at hundreds of points took most of the time of a large sum."""
    many = dict.fromkeys(range(1, 588), bytes(66))
    _weights.cache_clear()
    for _ in range(50):
        assert join(many) == bytes(32)
    assert _weights.cache_info().misses == 1

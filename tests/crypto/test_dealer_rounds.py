"""Cubes and combinations with dealt randomness: exact in the ring, and masked by words that no coalition knows."""

from __future__ import annotations

import numpy as np
import pytest

from comity.crypto import dealer_combination as vectors
from comity.crypto import dealer_cubes as cubes
from comity.entropy import derive
from comity.errors import Malformed

ROWS = 37


def seeds(parties, what):
    return [derive(b"test", what, number) for number in range(parties)]


def words(generator, *shape):
    return generator.integers(0, 2**64, shape, dtype=np.uint64)


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_shares_add_up_to_the_value_and_its_cube(parties):
    generator = np.random.default_rng(parties)
    shares = words(generator, parties, ROWS)
    hands = cubes.deal_cubes(seeds(parties, "cubes"), ROWS)
    opened = sum(cubes.masked(hand, share) for hand, share in zip(hands, shares))
    found = [cubes.value_and_cube(hand, opened, first=at == 0) for at, hand in enumerate(hands)]
    z = sum(shares)
    np.testing.assert_array_equal(sum(value for value, _ in found), z)
    exact = np.array([int(one) ** 3 % 2**64 for one in z], np.uint64)
    np.testing.assert_array_equal(sum(cube for _, cube in found), exact)


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_shares_add_up_to_the_combinations(parties):
    generator = np.random.default_rng(parties)
    widths = [3, 1, 0, 4, 2][:parties]
    matrices = [words(generator, width, ROWS) for width in widths]
    shares = words(generator, parties, ROWS)
    own = seeds(parties, "matrices")
    masked = {at: x - vectors.matrix_mask(own[at], *x.shape) for at, x in enumerate(matrices)}
    # One opening of the matrices serves several vectors.
    for turn in range(2):
        hands = vectors.deal_vector(list(zip(own, widths)), seeds(parties, f"vector {turn}"), ROWS)
        opened = sum(vectors.masked(hand, share) for hand, share in zip(hands, shares))
        found = [vectors.combination(hand, at, matrices[at], masked, opened) for at, hand in enumerate(hands)]
        s = [int(one) for one in sum(shares)]
        exact = [sum(int(a) * b for a, b in zip(line, s)) % 2**64 for x in matrices for line in x]
        np.testing.assert_array_equal(sum(sums for sums, _ in found), np.array(exact, np.uint64))
        assert int(sum(total for _, total in found)[0]) == sum(s) % 2**64
        shares = words(generator, parties, ROWS)


def test_what_is_opened_and_what_the_last_party_is_dealt_have_no_pattern_of_the_value():
    """All values zero: words are still spread over the ring, and no two of one hand agree."""
    rows = 4000
    hands = cubes.deal_cubes(seeds(2, "spread"), rows)
    zero = np.zeros(rows, np.uint64)
    shown = [cubes.masked(hands[0], zero), *hands[0].powers, cubes.masked(hands[1], zero), *hands[1].powers]
    vector = vectors.deal_vector([(b"a" * 32, 1), (b"b" * 32, 1)], seeds(2, "spread"), rows)
    shown += [vectors.masked(hand, zero) for hand in vector]
    for one in shown:
        assert abs((one >> np.uint64(63)).mean() - 0.5) < 0.05
        assert abs((one & np.uint64(1)).mean() - 0.5) < 0.05
    assert len(np.unique(np.concatenate(shown))) == rows * len(shown)


def test_hands_of_another_size_are_refused():
    with pytest.raises(Malformed):
        cubes.CubeHand(b"short", 3)
    with pytest.raises(Malformed):
        cubes.CubeHand(b"x" * 32, 3, np.zeros((2, 4), np.uint64))
    with pytest.raises(Malformed):
        vectors.VectorHand(b"x" * 32, 3, 2, np.zeros(3, np.uint64))

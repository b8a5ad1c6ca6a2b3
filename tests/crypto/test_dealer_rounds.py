"""Waves and combinations with dealt randomness: exact in the ring, and masked by words that no coalition knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.crypto import dealer_waves as waves
from comity.crypto.products import dealer_combination as vectors
from comity.entropy import derive
from comity.errors import Malformed

ROWS = 37


def seeds(parties: Any, what: Any) -> list[Any]:
    return [derive(b"test", what, number) for number in range(parties)]


def words(generator: Any, *shape: Any) -> Any:
    return generator.integers(0, 2**64, shape, dtype=np.uint64)


CURVE = waves.Curve((1, 3, 4), (0.6, -0.2, 0.05))


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_shares_add_up_to_the_curve_within_its_rounding(parties: int) -> None:
    generator = np.random.default_rng(parties)
    shares = generator.integers(0, waves.STEPS, (parties, ROWS)).astype(np.uint16)
    hands = waves.deal_waves(seeds(parties, "waves"), ROWS, CURVE)
    shown = waves.open_angles([waves.mask_angles(hand, share) for hand, share in zip(hands, shares)])
    total: Any = sum(waves.evaluate_share(hand, CURVE, shown) for hand in hands)
    found = total.view(np.int64) * 4.0**-waves.PLACES
    z = 2 * np.pi * (shares.astype(np.int64).sum(axis=0) % waves.STEPS) / waves.STEPS
    exact = sum(b * np.sin(k * z) for k, b in zip(CURVE.harmonics, CURVE.amplitudes))
    assert 0 < np.abs(found - exact).max() <= CURVE.rounding
    assert np.abs(found).max() <= CURVE.largest


def test_the_bound_of_a_curve_counts_the_rounding_of_what_was_dealt() -> None:
    rows, highest = 1 << 12, 0.0
    for turn in range(8):
        hands = waves.deal_waves(seeds(2, f"rounding {turn}"), rows, CURVE)
        every = np.arange(rows).astype(np.uint16)
        shown = waves.open_angles(
            [waves.mask_angles(hands[0], every), waves.mask_angles(hands[1], np.zeros_like(every))]
        )
        total: Any = sum(waves.evaluate_share(hand, CURVE, shown) for hand in hands)
        highest = max(highest, np.abs(total.view(np.int64) * 4.0**-waves.PLACES).max())
    assert np.abs(CURVE.values).max() < highest <= CURVE.largest


def test_every_machine_has_the_same_integers() -> None:
    """Parties multiply shares by sines that each computes by itself: no table entry may be near a half."""
    from comity.methods.vertical.rounds import CURVES

    for amplitude in (1.0, *(b for curve in CURVES for b in curve.amplitudes)):
        exact = amplitude * np.sin(2 * np.pi * np.arange(waves.STEPS) / waves.STEPS) * 2**waves.PLACES
        assert np.abs(exact % 1 - 0.5).min() > 1e-7


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_shares_add_up_to_the_combinations(parties: int) -> None:
    generator = np.random.default_rng(parties)
    widths = [3, 1, 0, 4, 2][:parties]
    matrices = [words(generator, width, ROWS) for width in widths]
    shares = words(generator, parties, ROWS)
    own = seeds(parties, "matrices")
    masked = {at: x - vectors.expand_matrix_mask(own[at], *x.shape) for at, x in enumerate(matrices)}
    # One opening of the matrices serves several vectors.
    for turn in range(2):
        hands = vectors.deal_vector(list(zip(own, widths)), seeds(parties, f"vector {turn}"), ROWS)
        opened: Any = sum(vectors.mask_share(hand, share) for hand, share in zip(hands, shares))
        found = [vectors.combine(hand, at, matrices[at], masked, opened) for at, hand in enumerate(hands)]
        s = [int(one) for one in sum(shares)]
        exact = [sum(int(a) * b for a, b in zip(line, s)) % 2**64 for x in matrices for line in x]
        np.testing.assert_array_equal(sum(sums for sums, _ in found), np.array(exact, np.uint64))
        last: Any = sum(total for _, total in found)
        assert int(last[0]) == sum(s) % 2**64
        shares = words(generator, parties, ROWS)


def test_what_is_opened_and_what_the_last_party_is_dealt_have_no_pattern_of_the_value() -> None:
    """All values zero: words are still spread over the ring, and no two of one hand agree."""
    rows = 4000
    hands = waves.deal_waves(seeds(2, "spread"), rows, CURVE)
    zero = np.zeros(rows, np.uint64)
    shown = [*hands[0].shares, *hands[1].shares]
    for hand in hands:
        counts = np.bincount(waves.mask_angles(hand, np.zeros(rows, np.uint16)) >> 8, minlength=16)
        assert counts.min() > rows / 16 * 0.7 and counts.max() < rows / 16 * 1.3
    vector = vectors.deal_vector([(b"a" * 32, 1), (b"b" * 32, 1)], seeds(2, "spread"), rows)
    shown += [vectors.mask_share(hand, zero) for hand in vector]
    for one in shown:
        assert abs((one >> np.uint64(63)).mean() - 0.5) < 0.05
        assert abs((one & np.uint64(1)).mean() - 0.5) < 0.05
    assert len(np.unique(np.concatenate(shown))) == rows * len(shown)


def test_hands_of_another_size_are_refused() -> None:
    with pytest.raises(Malformed):
        waves.WaveHand(b"short", 3, 2)
    with pytest.raises(Malformed):
        waves.WaveHand(b"x" * 32, 3, 2, np.zeros((2, 3), np.uint64))
    with pytest.raises(Malformed):
        waves.Curve((1, 3), (0.5,))
    with pytest.raises(Malformed):
        vectors.VectorHand(b"x" * 32, 3, 2, np.zeros(3, np.uint64))

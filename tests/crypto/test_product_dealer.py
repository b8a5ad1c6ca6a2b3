from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from comity.crypto.products import dealer_product
from comity.crypto.products.dealer_product import Hand, Layout, Party, deal
from comity.crypto.products.fixed_point import FixedPoint, join_shares
from comity.crypto.products.inner_products import RUN, add_narrow_products, add_word_products
from comity.errors import Malformed, Refused
from tests.support.uniformity import uniform_bytes_pvalue

RNG = np.random.default_rng(7)


def exchange(layout: Any, parties: Any, matrices: Any) -> list[Any]:
    """Run all blocks; returns what each party opened, joined over blocks."""
    opened: list[Any] = [[] for _ in parties]
    at = 0
    for rows in layout.blocks():
        messages = [party.mask(matrix[at : at + rows]) for party, matrix in zip(parties, matrices)]
        for me, party in enumerate(parties):
            party.absorb({other: words for other, words in enumerate(messages) if other != me})
            opened[me].append(messages[me])
        at += rows
    return [np.concatenate(blocks, axis=1) for blocks in opened]


def parties_for(layout: Any, form: Any, hands: Any = None) -> list[Any]:
    hands = hands or deal(layout)
    return [Party(layout, me, hand, [form] * len(hands)) for me, hand in enumerate(hands)]


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 3 * RUN), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_word_products_are_exact_modulo_the_word(rows: int, columns: int, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = (rng.integers(0, 2**64, (n, length), dtype=np.uint64) for n in (rows, columns))
    start = rng.integers(0, 2**64, (rows, columns), dtype=np.uint64)
    out = start.copy()
    add_word_products(out, left, right)
    assert np.array_equal(out, start + left @ right.T)


@pytest.mark.parametrize("length", [1, RUN - 1, RUN, 2 * RUN + 5, 8192])
def test_narrow_products_are_exact_at_their_extremes(length: Any) -> None:
    left = np.full((3, length), -(2**31), np.int32)
    right = np.full((5, length), 2**16, np.int32)
    out = np.zeros((3, 5), np.int64)
    add_narrow_products(out, left, right)
    assert np.all(out == -(2**47) * length)


@given(st.integers(1, 40_000), st.lists(st.integers(1, 9), min_size=2, max_size=4), st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_all_pairs_are_exact(rows: int, columns: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    layout, form = Layout(rows, tuple(columns)), FixedPoint(16, 2.0)
    matrices = [rng.uniform(-2, 2, (rows, count)) for count in columns]
    parties = parties_for(layout, form)
    opened = exchange(layout, parties, matrices)
    assert sum(words.nbytes for words in opened) == layout.opened_bytes == 8 * rows * sum(columns)
    shares = [party.shares() for party in parties]
    for j in range(len(columns)):
        for i in range(j):
            exact = form.columns(matrices[i], np.int64) @ form.columns(matrices[j], np.int64).T
            assert np.array_equal(join_shares([shares[i][j], shares[j][i]]), exact)


@pytest.mark.parametrize("x, y", [(1.0, 1.0), (-1.0, 1.0), (0.0, -1.0)])
def test_extreme_values_are_exact(x: float, y: float) -> None:
    layout, form = Layout(5000, (2, 3)), FixedPoint(25)
    parties = parties_for(layout, form)
    exchange(layout, parties, [np.full((5000, 2), x), np.full((5000, 3), y)])
    product = join_shares([parties[0].shares()[1], parties[1].shares()[0]])
    assert np.all(product == int(5000 * x * y) * 2**50)


def test_too_little_room_is_refused_before_anything_is_masked() -> None:
    layout, form = Layout(10_000_000, (2, 2)), FixedPoint(19)
    hands = deal(Layout(1, (2, 2)))
    Party(layout, 0, hands[0], [form, form])
    with pytest.raises(Refused, match="ring has 64"):
        Party(layout, 0, hands[0], [form, form], noise=2**63)
    with pytest.raises(Refused, match="ring has 64"):
        Party(layout, 1, hands[1], [FixedPoint(21), form])


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_what_a_party_opens_is_uniform_whatever_it_holds(value: float) -> None:
    layout, form = Layout(30_000, (2, 2)), FixedPoint(16)
    matrices = [np.full((30_000, 2), value), np.zeros((30_000, 2))]
    opened = exchange(layout, parties_for(layout, form), matrices)
    assert uniform_bytes_pvalue(opened[0]) > 1e-6


def test_views_of_two_inputs_have_one_distribution_and_a_short_mask_is_caught() -> None:
    layout, form = Layout(20_000, (1, 1)), FixedPoint(16)
    views = [
        exchange(layout, parties_for(layout, form), [np.full((20_000, 1), value), np.zeros((20_000, 1))])[0].reshape(-1)
        for value in (-1.0, 1.0)
    ]
    assert ks_2samp(*(view.astype(float) for view in views)).pvalue > 1e-6
    short = [RNG.integers(0, 2**17, 20_000) + value * 2**16 for value in (-1, 1)]
    assert ks_2samp(*short).pvalue < 1e-6


def test_shares_are_uniform() -> None:
    layout, form = Layout(10, (60, 60)), FixedPoint(16)
    parties = parties_for(layout, form)
    exchange(layout, parties, [np.ones((10, 60)), np.ones((10, 60))])
    for party, other in zip(parties, (1, 0)):
        assert uniform_bytes_pvalue(party.shares()[other]) > 1e-6


def test_a_dealer_who_receives_a_noisy_share_tells_neighbours_apart() -> None:
    """The reason why shares go to a secure sum: the dealer takes its own randomness off and is left with the data."""
    layout, form, told = Layout(50, (2, 2)), FixedPoint(16), 0
    for _ in range(200):
        hands = deal(layout)
        x, y = (RNG.uniform(-1, 1, (50, 2)) for _ in range(2))
        neighbour = y.copy()
        neighbour[0] = RNG.uniform(-1, 1, 2)
        secret = RNG.integers(2)
        parties = parties_for(layout, form, hands)
        exchange(layout, parties, [x, (y, neighbour)[secret]])
        noise = np.rint(RNG.normal(0, 2.0**20, (2, 2))).astype(np.int64).view(np.uint64)
        share = parties[0].shares()[1] + noise
        # What the dealer knows: U_0, U_1 and R. The share is U_0ᵀ (X_1 − U_1) + R + noise.
        masks = [np.empty((2, 50), np.uint64) for _ in hands]
        for mask, hand in zip(masks, hands):
            dealer_product._fill_mask(mask, hand.seed, 0)
        seen = share - hands[0].corrections[1] + masks[0] @ masks[1].T
        distances = [
            np.abs(
                (seen - masks[0] @ form.columns(guess, np.int64).view(np.uint64).T).view(np.int64).astype(float)
            ).max()
            for guess in (y, neighbour)
        ]
        told += int(np.argmin(distances)) == secret
    assert told == 200


def test_a_hand_used_twice_would_show_a_difference() -> None:
    """The reason why a hand is dealt for one pass: two openings under one mask differ by the data."""
    layout, form = Layout(100, (2, 2)), FixedPoint(16)
    hands = deal(layout)
    x, z = (RNG.uniform(-1, 1, (100, 2)) for _ in range(2))
    first, second = (parties_for(layout, form, hands)[0].mask(rows) for rows in (x, z))
    difference = form.columns(x, np.int64) - form.columns(z, np.int64)
    assert np.array_equal((first - second).view(np.int64), difference)
    fresh = parties_for(layout, form)[0].mask(z)
    assert not np.array_equal((first - fresh).view(np.int64), difference)


def test_a_pass_that_only_masks_opens_the_same_and_has_no_share() -> None:
    layout, form = Layout(2 * Layout(1, (9, 9)).block_rows + 5, (9, 9)), FixedPoint(16)
    matrices = [RNG.uniform(-1, 1, (layout.rows, 9)) for _ in range(2)]
    hands = deal(layout)
    opened = exchange(layout, parties_for(layout, form, hands), matrices)
    party, at, found = parties_for(layout, form, hands)[0], 0, []
    with pytest.raises(Malformed):
        party.skip()
    for rows in layout.blocks():
        found.append(party.mask(matrices[0][at : at + rows]))
        party.skip()
        at += rows
    assert np.array_equal(np.concatenate(found, axis=1), opened[0])
    with pytest.raises(Malformed):
        party.mask(matrices[0][: layout.block_rows])
    with pytest.raises(Malformed):
        party.shares()


def test_no_mask_comes_twice() -> None:
    """Different blocks, parties and purposes have keystreams of their own."""
    layout = Layout(3 * Layout(1, (4, 4)).block_rows, (4, 4))
    zeros = [np.zeros((layout.rows, 4))] * 2
    hands = deal(layout)
    opened = exchange(layout, parties_for(layout, FixedPoint(16), hands), zeros)
    own = dealer_product._own_share(hands[1].seed, 0, 4, 4)
    words = np.concatenate([*(matrix.reshape(-1) for matrix in opened), -own.reshape(-1)])
    assert np.unique(words).size == words.size


def test_parties_keep_to_the_order() -> None:
    layout, form = Layout(600, (100, 100)), FixedPoint(16)
    assert layout.block_rows > 600
    party, other = parties_for(layout, form)
    rows = np.zeros((600, 100))
    with pytest.raises(Malformed):
        party.shares()
    with pytest.raises(Malformed):
        party.absorb({1: np.zeros((100, 600), np.uint64)})
    wrong: Any
    for wrong in (rows[:599], rows[:, :99], np.zeros((601, 100))):
        with pytest.raises(Malformed):
            party.mask(wrong)
    with pytest.raises(Malformed):
        party.mask(rows + 2)
    message = party.mask(rows)
    with pytest.raises(Malformed):
        party.mask(rows)
    with pytest.raises(Malformed):
        party.shares()
    good = other.mask(rows)
    for wrong in (good[:, :599], good[:99], good.view(np.int64), good.astype(">u8"), good.reshape(-1)):
        with pytest.raises(Malformed):
            party.absorb({1: wrong})
    for wrong in ({}, {0: good}, {1: good, 2: good}):
        with pytest.raises(Malformed):
            party.absorb(wrong)
    party.absorb({1: good})
    other.absorb({0: message})
    assert not join_shares([party.shares()[1], other.shares()[0]]).any()
    with pytest.raises(Malformed):
        party.mask(rows)


@pytest.mark.parametrize(
    "hand",
    [
        Hand(bytes(31), {1: np.zeros((2, 3), np.uint64)}),
        Hand(bytes(32), {}),
        Hand(bytes(32), {1: np.zeros((3, 2), np.uint64)}),
        Hand(bytes(32), {1: np.zeros((2, 3), np.int64)}),
        Hand(bytes(32), {2: np.zeros((2, 3), np.uint64)}),
    ],
)
def test_a_malformed_hand_is_refused(hand: Any) -> None:
    with pytest.raises(Malformed):
        Party(Layout(10, (2, 3)), 0, hand, [FixedPoint(16)] * 2)


@pytest.mark.parametrize("rows, columns", [(0, (1, 1)), (5, (1,)), (5, (1, 0))])
def test_a_layout_needs_rows_and_two_parties(rows: int, columns: Any) -> None:
    with pytest.raises(Malformed):
        Layout(rows, columns)


def test_memory_does_not_grow_with_the_rows() -> None:
    def peak(rows: Any) -> int:
        layout, form = Layout(rows, (5, 5)), FixedPoint(16)
        parties = parties_for(layout, form)
        tracemalloc.start()
        for count in layout.blocks():
            block = np.zeros((count, 5))
            messages = [party.mask(block) for party in parties]
            parties[0].absorb({1: messages[1]})
            parties[1].absorb({0: messages[0]})
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    unit = Layout(1, (5, 5)).block_rows
    assert peak(24 * unit) < 1.05 * peak(3 * unit)

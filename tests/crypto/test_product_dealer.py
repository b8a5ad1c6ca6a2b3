from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from comity.crypto.products import dealer_product
from comity.crypto.products.dealer_product import Hand, Layout, Office, Party, add_hand
from comity.crypto.products.fixed_point import FixedPoint, join_shares, lower_from_word, raise_to_word
from comity.crypto.products.inner_products import RUN, add_narrow_products, add_word_products
from comity.entropy import fresh_seed
from comity.errors import Malformed, Refused
from tests.support.uniformity import uniform_bytes_pvalue

RNG = np.random.default_rng(7)


def parties_for(layout: Any, form: Any, seed: Any = None) -> list[Any]:
    seed = seed or fresh_seed()
    return [Party(layout, me, seed, [form] * len(layout.columns)) for me in range(len(layout.columns))]


def show(layout: Any, parties: Any, matrices: Any) -> tuple[list[Any], Any]:
    """Run all blocks; returns what each party showed, joined over blocks, and the coordinator's side."""
    shown: list[Any] = [[] for _ in parties]
    office, at, ring = Office(layout), 0, np.uint64((1 << layout.bits) - 1)
    for rows in layout.blocks():
        messages = [party.mask(matrix[at : at + rows]) & ring for party, matrix in zip(parties, matrices)]
        office.add(messages)
        for me, words in enumerate(messages):
            shown[me].append(words)
        at += rows
    return [np.concatenate(blocks, axis=1) for blocks in shown], office


def shares_of(layout: Any, parties: Any, matrices: Any) -> list[Any]:
    _, office = show(layout, parties, matrices)
    hands = office.hands([fresh_seed() for _ in parties])
    return [party.shares(hand) for party, hand in zip(parties, hands)]


def joined(layout: Any, shares: Any) -> Any:
    total = sum((raise_to_word(share, layout.bits) for share in shares), np.uint64(0))
    return lower_from_word(np.asarray(total), layout.bits)


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


@given(
    st.integers(1, 40_000),
    st.lists(st.integers(1, 9), min_size=2, max_size=4),
    st.sampled_from([51, 56, 64]),
    st.integers(0, 2**32),
)
@settings(max_examples=15, deadline=None)
def test_all_pairs_are_exact(rows: int, columns: Any, bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    layout, form = Layout(rows, tuple(columns), bits), FixedPoint(16, 2.0)
    matrices = [rng.uniform(-2, 2, (rows, count)) for count in columns]
    shares = shares_of(layout, parties_for(layout, form), matrices)
    for j in range(len(columns)):
        for i in range(j):
            exact = form.columns(matrices[i], np.int64) @ form.columns(matrices[j], np.int64).T
            assert np.array_equal(joined(layout, [shares[i][j], shares[j][i]]), exact)


@pytest.mark.parametrize("x, y", [(1.0, 1.0), (-1.0, 1.0), (0.0, -1.0)])
def test_extreme_values_are_exact(x: float, y: float) -> None:
    layout, form = Layout(5000, (2, 3)), FixedPoint(25)
    shares = shares_of(layout, parties_for(layout, form), [np.full((5000, 2), x), np.full((5000, 3), y)])
    assert np.all(join_shares([shares[0][1], shares[1][0]]) == int(5000 * x * y) * 2**50)


def test_too_little_room_is_refused_before_anything_is_masked() -> None:
    layout, form, seed = Layout(10_000_000, (2, 2)), FixedPoint(19), fresh_seed()
    Party(layout, 0, seed, [form, form])
    with pytest.raises(Refused, match="ring has 64"):
        Party(layout, 0, seed, [form, form], noise=2**63)
    with pytest.raises(Refused, match="ring has 64"):
        Party(layout, 1, seed, [FixedPoint(21), form])
    with pytest.raises(Refused, match="ring has 56"):
        Party(Layout(10_000_000, (2, 2), 56), 0, seed, [form, form])


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("bits", [48, 64])
def test_what_a_party_shows_is_uniform_whatever_it_holds(value: float, bits: int) -> None:
    layout, form = Layout(30_000, (2, 2), bits), FixedPoint(12)
    matrices = [np.full((30_000, 2), value), np.zeros((30_000, 2))]
    shown, _ = show(layout, parties_for(layout, form), matrices)
    raw = np.ascontiguousarray(shown[0]).view(np.uint8).reshape(-1, 8)
    assert uniform_bytes_pvalue(raw[:, : bits // 8].copy()) > 1e-6
    assert not raw[:, bits // 8 :].any()


def test_views_of_two_inputs_have_one_distribution_and_a_short_mask_is_caught() -> None:
    layout, form = Layout(20_000, (1, 1)), FixedPoint(16)
    views = [
        show(layout, parties_for(layout, form), [np.full((20_000, 1), value), np.zeros((20_000, 1))])[0][0].reshape(-1)
        for value in (-1.0, 1.0)
    ]
    assert ks_2samp(*(view.astype(float) for view in views)).pvalue > 1e-6
    short = [RNG.integers(0, 2**17, 20_000) + value * 2**16 for value in (-1, 1)]
    assert ks_2samp(*short).pvalue < 1e-6


def test_shares_and_hands_are_uniform() -> None:
    layout, form = Layout(10, (60, 60)), FixedPoint(16)
    parties = parties_for(layout, form)
    _, office = show(layout, parties, [np.ones((10, 60)), np.ones((10, 60))])
    hands = office.hands([fresh_seed(), fresh_seed()])
    for party, hand, other in zip(parties, hands, (1, 0)):
        assert uniform_bytes_pvalue(party.shares(hand)[other]) > 1e-6
    assert uniform_bytes_pvalue(hands[0].corrections[1]) > 1e-6
    assert not hands[1].corrections


def test_a_coordinator_that_receives_a_noisy_share_tells_neighbours_apart() -> None:
    """The reason why shares go to a secure sum: the coordinator takes its own words off and is left with the data."""
    layout, form, told = Layout(50, (2, 2)), FixedPoint(16), 0
    for _ in range(200):
        x, y = (RNG.uniform(-1, 1, (50, 2)) for _ in range(2))
        neighbour = y.copy()
        neighbour[0] = RNG.uniform(-1, 1, 2)
        secret = RNG.integers(2)
        parties = parties_for(layout, form)
        shown, office = show(layout, parties, [x, (y, neighbour)[secret]])
        hands = office.hands([fresh_seed(), fresh_seed()])
        noise = np.rint(RNG.normal(0, 2.0**20, (2, 2))).astype(np.int64).view(np.uint64)
        share = parties[0].shares(hands[0])[1] + noise
        # What the coordinator knows: Y_0, Y_1 and R. The share is Y_0ᵀ (X_1 − Y_1) + R + noise.
        seen = share - hands[0].corrections[1] + shown[0] @ shown[1].T
        distances = [
            np.abs(
                (seen - shown[0] @ form.columns(guess, np.int64).view(np.uint64).T).view(np.int64).astype(float)
            ).max()
            for guess in (y, neighbour)
        ]
        told += int(np.argmin(distances)) == secret
    assert told == 200


def test_a_seed_used_twice_would_show_a_difference() -> None:
    """The reason why a seed is drawn for one matrix: two that are shown under one mask differ by the data."""
    layout, form, seed = Layout(100, (2, 2)), FixedPoint(16), fresh_seed()
    x, z = (RNG.uniform(-1, 1, (100, 2)) for _ in range(2))
    first, second = (parties_for(layout, form, seed)[0].mask(rows) for rows in (x, z))
    difference = form.columns(x, np.int64) - form.columns(z, np.int64)
    assert np.array_equal((first - second).view(np.int64), difference)
    fresh = parties_for(layout, form)[0].mask(z)
    assert not np.array_equal((first - fresh).view(np.int64), difference)


@pytest.mark.parametrize("shared", [False, True])
def test_masks_of_parties_differ_or_the_coordinator_would_read_the_difference_of_their_rows(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack on one mask for all parties: what two of them show differs by their rows."""
    if shared:
        fill = dealer_product._fill_mask
        monkeypatch.setattr(dealer_product, "_fill_mask", lambda mask, seed, party, block: fill(mask, seed, 0, block))
    layout, form = Layout(100, (2, 2)), FixedPoint(16)
    x, z = (RNG.uniform(-1, 1, (100, 2)) for _ in range(2))
    (first, second), _ = show(layout, parties_for(layout, form), [x, z])
    read = (first - second).view(np.int64)
    assert np.array_equal(read, form.columns(x, np.int64) - form.columns(z, np.int64)) is shared


def test_a_party_may_stop_between_blocks_and_go_on() -> None:
    layout, form, seed = Layout(2 * Layout(1, (9, 9)).block_rows + 5, (9, 9)), FixedPoint(16), fresh_seed()
    matrices = [RNG.uniform(-1, 1, (layout.rows, 9)) for _ in range(2)]
    parties = parties_for(layout, form, seed)
    shown, office = show(layout, parties, matrices)
    hand = office.hands([fresh_seed(), fresh_seed()])[0]
    so_far, at, found = None, 0, []
    for block, rows in enumerate(layout.blocks()):
        party = Party(layout, 0, seed, [form, form], block=block, so_far=so_far)
        found.append(party.mask(matrices[0][at : at + rows]).copy())
        so_far = party.so_far
        at += rows
        if at < layout.rows:
            with pytest.raises(Malformed):
                party.shares(hand)
    assert np.array_equal(np.concatenate(found, axis=1), shown[0])
    assert np.array_equal(add_hand(layout, 0, party.so_far, hand)[1], parties[0].shares(hand)[1])
    with pytest.raises(Malformed):
        Party(layout, 0, seed, [form, form], so_far={1: np.zeros((9, 8), np.uint64)})


def test_no_mask_comes_twice() -> None:
    """Different blocks, parties and purposes have keystreams of their own."""
    layout, seed = Layout(3 * Layout(1, (4, 4)).block_rows, (4, 4)), fresh_seed()
    zeros = [np.zeros((layout.rows, 4))] * 2
    shown, _ = show(layout, parties_for(layout, FixedPoint(16), seed), zeros)
    own = dealer_product._own_share(seed, 0, 4, 4)
    words = np.concatenate([*(matrix.reshape(-1) for matrix in shown), -own.reshape(-1)])
    assert np.unique(words).size == words.size


def test_parties_and_the_coordinator_keep_to_the_order() -> None:
    layout, form = Layout(600, (100, 50)), FixedPoint(16)
    assert layout.block_rows > 600
    party, other = parties_for(layout, form)
    rows, hand = np.zeros((600, 100)), Hand(fresh_seed(), {1: np.zeros((100, 50), np.uint64)})
    with pytest.raises(Malformed):
        party.shares(hand)
    wrong: Any
    for wrong in (rows[:599], rows[:, :99], np.zeros((601, 100))):
        with pytest.raises(Malformed):
            party.mask(wrong)
    with pytest.raises(Malformed):
        party.mask(rows + 2)
    good = [party.mask(rows), other.mask(rows[:, :50])]
    with pytest.raises(Malformed):
        party.mask(rows)
    office = Office(layout)
    with pytest.raises(Malformed):
        office.hands([fresh_seed(), fresh_seed()])
    for wrong in ([good[1], good[0]], [good[0], good[1][:, :599]], [good[0]], [good[0][:, :0], good[1][:, :0]]):
        with pytest.raises(Malformed):
            office.add(wrong)
    office.add(good)
    with pytest.raises(Malformed):
        office.add(good)
    hands = office.hands([fresh_seed(), fresh_seed()])
    assert not join_shares([party.shares(hands[0])[1], other.shares(hands[1])[0]]).any()


@pytest.mark.parametrize(
    "hand",
    [
        Hand(bytes(31), {1: np.zeros((2, 3), np.uint64)}),
        Hand(bytes(32), {}),
        Hand(bytes(32), {1: np.zeros((3, 2), np.uint64)}),
        Hand(bytes(32), {1: np.zeros((2, 3), np.int64)}),
        Hand(bytes(32), {2: np.zeros((2, 3), np.uint64)}),
        Hand(bytes(32), {1: np.zeros((2, 3), np.uint64), 0: np.zeros((2, 2), np.uint64)}),
    ],
)
def test_a_malformed_hand_is_refused(hand: Any) -> None:
    with pytest.raises(Malformed):
        add_hand(Layout(10, (2, 3)), 0, {1: np.zeros((2, 3), np.uint64)}, hand)


def test_a_malformed_seed_is_refused() -> None:
    with pytest.raises(Malformed):
        Party(Layout(10, (2, 3)), 0, bytes(31), [FixedPoint(16)] * 2)


@pytest.mark.parametrize("rows, columns, bits", [(0, (1, 1), 64), (5, (1,), 64), (5, (1, 0), 64), (5, (1, 1), 65)])
def test_a_layout_needs_rows_and_two_parties(rows: int, columns: Any, bits: int) -> None:
    with pytest.raises(Malformed):
        Layout(rows, columns, bits)


def test_memory_does_not_grow_with_the_rows() -> None:
    def peak(rows: Any) -> int:
        layout, form = Layout(rows, (5, 5)), FixedPoint(16)
        parties, office = parties_for(layout, form), Office(layout)
        tracemalloc.start()
        for count in layout.blocks():
            block = np.zeros((count, 5))
            office.add([party.mask(block) for party in parties])
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    unit = Layout(1, (5, 5)).block_rows
    assert peak(24 * unit) < 1.05 * peak(3 * unit)

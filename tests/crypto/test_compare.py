from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comity.crypto.comparisons.circuits import (
    all_of,
    count_gates,
    evaluate,
    is_negative,
    less_than,
    negate,
    run_together,
    to_xor_shares,
)
from comity.crypto.comparisons.exchange import Side, pack, run_locally, to_bits, unpack
from comity.errors import Malformed
from tests.support.two_sides import deal_triples, share_additively

RNG = np.random.default_rng(5)


def xored(bits: Any) -> Any:
    one = RNG.integers(0, 2, bits.shape, dtype=np.uint8)
    return one, bits ^ one


def run(circuit: Any) -> Any:
    """What a circuit computes, `circuit` making one side's half."""
    rounds = count_gates(circuit(Side.CURATOR))
    count = sum(rounds)
    triples = deal_triples(count)
    done = run_locally(*(evaluate(side, circuit(side), triples[side]) for side in Side))
    assert done.rounds == len(rounds)
    assert [len(m) for m in done.sent_to_curator] == [-(-2 * g // 8) for g in rounds]
    assert triples[0].left == triples[1].left == 0
    if isinstance(done.curator, tuple):
        return tuple(x ^ y for x, y in zip(done.curator, done.parties))
    return done.curator ^ done.parties


@st.composite
def ranged(draw: Any) -> Any:
    bits = draw(st.integers(2, 63))
    near = st.sampled_from([0, 1, -1, 2**bits - 1, -(2**bits), 1 - 2**bits])
    return bits, draw(st.lists(near | st.integers(-(2**bits), 2**bits - 1), min_size=1, max_size=20))


@given(ranged())
@settings(max_examples=60, deadline=None)
def test_is_negative(case: Any) -> None:
    bits, values = case
    shares = share_additively(values, RNG)
    assert run(lambda side: is_negative(side, shares[side], bits)).tolist() == [v < 0 for v in values]


@given(ranged())
@settings(max_examples=60, deadline=None)
def test_xor_shared(case: Any) -> None:
    bits, values = case
    shares = share_additively(values, RNG)
    expected = to_bits(np.array([v % 2**64 for v in values], np.uint64), bits)
    np.testing.assert_array_equal(run(lambda side: to_xor_shares(side, shares[side], bits)), expected)


@given(ranged(), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_less_than(case: Any, seed: int) -> None:
    bits, values = case
    x = np.array([v % 2**bits for v in values], np.uint64)
    # Equal, nearly equal and far values.
    y = np.random.default_rng(seed).permutation(x)
    y[::3] = x[::3]
    y[1::3] = x[1::3] ^ np.uint64(1)
    xs, ys = xored(to_bits(x, bits)), xored(to_bits(y, bits))
    np.testing.assert_array_equal(run(lambda side: less_than(side, xs[side], ys[side])), x < y)


def test_all_of_one_needs_no_gate() -> None:
    assert count_gates(all_of(np.ones((1, 5), np.uint8))) == []


@pytest.mark.parametrize("count", [2, 3, 7, 9])
def test_all_of_and_negation(count: int) -> None:
    bits = RNG.integers(0, 8, (count, 500), dtype=np.uint8).clip(0, 1)
    shares = xored(bits)
    np.testing.assert_array_equal(run(lambda side: all_of(shares[side])), bits.all(0))
    np.testing.assert_array_equal(negate(Side(0), shares[0]) ^ negate(Side(1), shares[1]), 1 - bits)


def test_together_takes_the_rounds_of_the_longer_circuit_in_either_order() -> None:
    values = RNG.integers(-100, 100, 7).tolist()
    shares = share_additively(values, RNG)
    bits = RNG.integers(0, 2, (3, 11), dtype=np.uint8)
    few = xored(bits)
    long, short = count_gates(is_negative(Side(0), shares[0], 20)), count_gates(all_of(few[0]))
    both = count_gates(run_together(all_of(few[0]), is_negative(Side(0), shares[0], 20)))
    assert both == [x + y for x, y in zip(long, short + [0] * (len(long) - len(short)))]
    for order in (1, -1):

        def circuit(side: Any, order: Any = order) -> Any:
            halves = (all_of(few[side]), is_negative(side, shares[side], 20))[::order]
            return run_together(*halves)

        conjunction, negative = run(circuit)[::order]
        np.testing.assert_array_equal(conjunction, bits.all(0))
        assert negative.tolist() == [v < 0 for v in values]


@given(st.lists(st.integers(0, 1), max_size=40))
def test_packed_bits_have_one_encoding(bits: Any) -> None:
    message = pack(np.array(bits, np.uint8))
    assert unpack(message, len(bits)).tolist() == bits
    for wrong in (message + b"\0", message[:-1] if message else b"\1"):
        with pytest.raises(Malformed):
            unpack(wrong, len(bits))
    for unused in range(len(bits) % 8 or 8, 8):
        with pytest.raises(Malformed, match="unused"):
            unpack(message[:-1] + bytes([message[-1] | 1 << unused]), len(bits))


def test_sides_that_do_not_end_together_are_an_error() -> None:
    def speaks(rounds: int) -> Generator[bytes, bytes, None]:
        for _ in range(rounds):
            yield b""

    with pytest.raises(ValueError, match="same round"):
        run_locally(speaks(1), speaks(2))

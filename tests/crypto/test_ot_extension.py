from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from comity.crypto.comparisons import oblivious_transfer as ot_extension
from comity.crypto.comparisons.exchange import Side, Transcript, run_locally, transpose
from comity.crypto.comparisons.oblivious_transfer import BASE, hash_rows, receive, send
from comity.crypto.comparisons.triples import Triples, deal, read_triples, transfer_triples
from comity.entropy import fresh_seed
from comity.errors import Malformed, Refused

OUTSIDE: dict[str, Any] = {"dealer": "office", "sides": ("curator", "parties")}


@given(st.integers(1, 20), st.integers(1, 70), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_transpose(rows: int, width: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).integers(0, 256, (8 * rows, width), dtype=np.uint8)
    plain = np.unpackbits(matrix, axis=1, bitorder="little").T
    np.testing.assert_array_equal(transpose(matrix), np.packbits(plain, axis=1, bitorder="little"))


def test_the_hash_is_aes_128_and_its_input_known_answer() -> None:
    # The example of FIPS 197, appendix C.1.
    plain = bytes.fromhex("00112233445566778899aabbccddeeff")
    cipher = bytes.fromhex("69c4e0d86a7b0430d8cdb78070b4c55a")
    rows = np.frombuffer(plain * 2, np.uint8).reshape(2, 16)
    expected = bytes(x ^ y for x, y in zip(plain, cipher))
    assert hash_rows(bytes(range(16)), rows).tobytes() == expected * 2


def transfers(count: Any, sessions: Any = (b"s", b"s")) -> Transcript[Any, Any]:
    return run_locally(send(sessions[0], count, os.urandom(32)), receive(sessions[1], count, os.urandom(32)))


@pytest.mark.parametrize("count", [64, 192, 8 * 4096 + 64, 70016])
def test_the_receiver_gets_the_chosen_bits(count: Any) -> None:
    done = transfers(count)
    (zero, one), (choices, bits) = done.curator, done.parties
    np.testing.assert_array_equal(bits, np.where(choices, one, zero))
    assert done.rounds == 3 and done.bytes == 32 + 32 * BASE + BASE * count // 8


def test_all_bits_are_fair_and_the_other_bit_is_independent_of_what_the_receiver_holds() -> None:
    done = transfers(64 * 4000)
    (zero, one), (choices, bits) = done.curator, done.parties
    other = np.where(choices, zero, one)
    slack = 5 * 0.5 / np.sqrt(choices.size)
    for sample in (choices, bits, other, other ^ bits, other ^ choices, bits ^ choices, other[1:] ^ other[:-1]):
        assert abs(sample.mean() - 0.5) < slack


@pytest.mark.parametrize("count", [0, -64, 65])
def test_counts_that_do_not_fit_the_blocks_are_errors(count: int) -> None:
    with pytest.raises(ValueError, match="multiple of 64"):
        next(send(b"", count, bytes(32)))


def view_of_sender(fixed_choices: Any, count: Any, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    monkeypatch.setattr(ot_extension, "draw_bits", lambda stream, size: np.full(size, fixed_choices, np.uint8))
    return np.unpackbits(np.frombuffer(transfers(count).sent_to_curator[2], np.uint8))


def looks_uniform(bits: Any) -> Any:
    """Chi-square of the sixteen values of four bits."""
    counts = np.bincount(bits.reshape(-1, 4) @ [8, 4, 2, 1], minlength=16)
    expected = counts.sum() / 16
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), 15) > 1e-6


@pytest.mark.parametrize("choice", [0, 1])
def test_the_sender_sees_uniform_columns_whatever_the_choices(choice: int, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = view_of_sender(choice, 6400, monkeypatch)
    assert looks_uniform(columns)
    assert looks_uniform((columns.reshape(BASE, -1)[1:] ^ columns.reshape(BASE, -1)[:-1]).ravel())


def test_control_columns_under_one_key_show_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ot_extension._expand_columns
    monkeypatch.setattr(ot_extension, "_expand_columns", lambda keys, width: honest([bytes(32)] * len(keys), width))
    assert not looks_uniform(view_of_sender(1, 640, monkeypatch))


def shares(triples: Any) -> Any:
    return triples.take(triples.left)


def multiply(curator: Any, parties: Any) -> Any:
    (a0, b0, c0), (a1, b1, c1) = shares(curator), shares(parties)
    return (a0 ^ a1) & (b0 ^ b1), c0 ^ c1


@pytest.mark.parametrize("count", [1, 63, 64, 1000])
def test_triples_multiply(count: int) -> None:
    done = run_locally(*(transfer_triples(side, count, session=b"s") for side in Side))
    product, c = multiply(done.curator, done.parties)
    assert product.size == count
    np.testing.assert_array_equal(product, c)
    curator, parties = deal(count, **OUTSIDE)
    product, c = multiply(read_triples(Side.CURATOR, curator, count), read_triples(Side.PARTIES, parties, count))
    np.testing.assert_array_equal(product, c)


def test_shares_of_triples_are_fair_and_independent_across_the_sides() -> None:
    done = run_locally(*(transfer_triples(side, 100_000, session=b"s") for side in Side))
    curator, parties = deal(100_000, **OUTSIDE)
    dealt_pair = read_triples(Side.CURATOR, curator, 100_000), read_triples(Side.PARTIES, parties, 100_000)
    for one, two in ((done.curator, done.parties), dealt_pair):
        (a0, b0, c0), (a1, b1, c1) = shares(one), shares(two)
        for sample in (a0, b0, c0, a1, b1, c1, a0 ^ a1, b0 ^ b1, a0 ^ b1, a1 ^ b0, a0 ^ b0, a1 ^ b1, c0 ^ a0, c1 ^ b1):
            assert abs(sample.mean() - 0.5) < 5 * 0.5 / np.sqrt(100_000)


def test_sides_in_different_sessions_get_nothing_that_multiplies() -> None:
    done = run_locally(
        transfer_triples(Side.CURATOR, 640, session=b"run 1"), transfer_triples(Side.PARTIES, 640, session=b"run 2")
    )
    product, c = multiply(done.curator, done.parties)
    assert 0.3 < np.mean(product == c) < 0.7


def test_a_triple_never_serves_twice() -> None:
    triples = Triples(*np.arange(9, dtype=np.uint8).reshape(3, 3))
    assert [x.tolist() for x in triples.take(2)] == [[0, 1], [3, 4], [6, 7]]
    with pytest.raises(Refused, match="never used twice"):
        triples.take(2)
    assert [x.tolist() for x in triples.take(1)] == [[2], [5], [8]]
    with pytest.raises(Refused):
        triples.take(1)


def test_a_side_can_not_deal() -> None:
    for dealer in ("curator", "parties"):
        with pytest.raises(Refused, match="is a side"):
            deal(10, dealer=dealer, sides=("curator", "parties"))


def test_a_side_is_rebuilt_from_its_seed_and_the_stored_messages() -> None:
    seeds = fresh_seed(), fresh_seed()
    first = run_locally(*(transfer_triples(side, 100, session=b"s", seed=seeds[side]) for side in Side))
    again = transfer_triples(Side.CURATOR, 100, session=b"s", seed=seeds[0])
    said = [next(again)]
    with pytest.raises(StopIteration) as end:
        for message in first.sent_to_curator:
            said.append(again.send(message))
    assert tuple(said) == first.sent_to_parties
    for one, two in zip(shares(end.value.value), shares(first.curator)):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("change", [lambda m: m[:-1], lambda m: m + b"\0", lambda m: b""])
def test_messages_of_a_wrong_length_are_refused(side: Any, change: Any) -> None:
    done = run_locally(*(transfer_triples(s, 64, session=b"s") for s in Side))
    sent = (done.sent_to_curator, done.sent_to_parties)[side]
    for place, message in enumerate(sent):
        if not message:
            continue
        exchange = transfer_triples(side, 64, session=b"s")
        next(exchange)
        with pytest.raises(Malformed):
            for i, told in enumerate(sent):
                exchange.send(change(told) if i == place else told)


def test_dealt_messages_of_a_wrong_length_are_refused() -> None:
    curator, parties = deal(100, **OUTSIDE)
    for side, message in ((Side.CURATOR, curator), (Side.PARTIES, parties)):
        for wrong in (message[:-1], message + b"\0", b"", message[:31]):
            with pytest.raises(Malformed):
                read_triples(side, wrong, 100)
    with pytest.raises(Malformed):
        read_triples(Side.PARTIES, parties[:-1] + bytes([parties[-1] | 0x80]), 100)

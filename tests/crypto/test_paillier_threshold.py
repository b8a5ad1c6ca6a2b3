"""Shared decryption: all parties read, fewer learn nothing, wrong parts are refused."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from gmpy2 import invert, lcm, mpz
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp, kstest

from comity.crypto.paillier.packing import Packing
from comity.crypto.paillier.threshold import KeyShare, combine, split
from comity.errors import Malformed, Refused
from tests.support.paillier import make_private_key

LIKELY = 1e-6


@cache
def shares(parties: int) -> tuple[KeyShare, ...]:
    return split(make_private_key(), parties)


@settings(max_examples=8, deadline=None)
@given(st.integers(-(2**1000), 2**1000), st.integers(-(2**40), 2**40), st.sampled_from([2, 3, 5]))
def test_all_parties_together_decrypt(a: int, b: int, parties: int) -> None:
    public = make_private_key().public
    total = public.rerandomise(public.add(public.encrypt(a), public.encrypt(b)))
    partials = {share.party: share.partial(total) for share in shares(parties)}
    assert combine(public, parties, partials) == a + b == make_private_key().decrypt(total)


def test_a_dealt_key_reads_packed_vectors() -> None:
    public, parts = make_private_key().public, shares(2)
    packing = Packing(public, 32, 2)
    total = packing.rerandomise(packing.add(packing.encrypt([1, -2, 3]), packing.encrypt([10, 20, -30])))
    plaintexts = [combine(public, 2, {s.party: s.partial(c) for s in parts}) for c in total.ciphertexts]
    assert packing.unpack(plaintexts, total.length, total.load) == [11, 18, -27]


def test_missing_and_unknown_parties_are_refused() -> None:
    public = make_private_key().public
    ciphertext = public.encrypt(9)
    partials = {share.party: share.partial(ciphertext) for share in shares(3)}
    for party in range(3):
        with pytest.raises(Refused, match=rf"\[{party}\] are missing"):
            combine(public, 3, {k: part for k, part in partials.items() if k != party})
    with pytest.raises(Refused, match="all 3"):
        combine(public, 3, {**partials, 3: partials[0]})
    # Fewer parts called complete do not pass either: their product is no power of 1 + n.
    with pytest.raises(Malformed, match="one ciphertext"):
        combine(public, 2, {0: partials[0], 1: partials[1]})


def test_parts_of_another_ciphertext_or_altered_are_refused() -> None:
    public = make_private_key().public
    ciphertext = public.encrypt(9)
    partials = {share.party: share.partial(ciphertext) for share in shares(3)}
    other = {**partials, 1: shares(3)[1].partial(public.encrypt(9))}
    again = {**partials, 1: partials[0]}
    flipped = {**partials, 2: bytes([partials[2][0] ^ 1]) + partials[2][1:]}
    for bad in (other, again, flipped):
        with pytest.raises(Malformed, match="one ciphertext"):
            combine(public, 3, bad)
    for data in (partials[0][:-1], partials[0] + b"\0", bytes(len(partials[0])), b"\xff" * len(partials[0]), b""):
        with pytest.raises(Malformed):
            combine(public, 3, {**partials, 0: data})


def test_a_share_survives_its_message() -> None:
    public, share = make_private_key().public, shares(3)[1]
    data = share.to_bytes()
    assert KeyShare.from_bytes(data, public) == share
    size = public.ciphertext_bytes
    zero_exponent = data[:8] + bytes(size) + data[8 + size :]
    large_exponent = data[:8] + b"\xff" * size + data[8 + size :]
    for bad in (
        b"",
        data[:-1],
        data + b"\0",
        b"\x03" + data[1:],
        data[:4] + b"\x01" + data[5:],
        zero_exponent,
        large_exponent,
        data[:-1] + bytes([data[-1] ^ 1]),
    ):
        with pytest.raises(Malformed):
            KeyShare.from_bytes(bad, public)
    with pytest.raises(Malformed):
        KeyShare.from_bytes(data, make_private_key(1).public)
    assert str(int(share.exponent)) not in repr(share)


@pytest.mark.parametrize("parties", [-1, 0, 1])
def test_one_party_shares_nothing(parties: int) -> None:
    with pytest.raises(ValueError, match="two parties"):
        split(make_private_key(), parties)


def test_the_last_part_says_no_more_than_the_plaintext() -> None:
    """A simulator who knows m and the coalition's parts writes the honest party's part exactly."""
    public, message = make_private_key().public, -123456789
    ciphertext = public.encrypt(message)
    *coalition, honest = (mpz.from_bytes(share.partial(ciphertext), "little") for share in shares(3))
    product = coalition[0] * coalition[1] % public.square
    assert honest == (1 + public.n * message) * invert(product, public.square) % public.square


def _places(dealt: list[tuple[KeyShare, ...]], party: int) -> np.ndarray:
    """Where a party's shares lie below n²/2, the public approximation of n·λ."""
    top = dealt[0][0].public.square // 2
    return np.array([int((each[party].exponent << 52) // top) / 2**52 for each in dealt])


def test_what_a_coalition_holds_is_independent_of_the_key() -> None:
    dealt = [[split(make_private_key(which), 3) for _ in range(250)] for which in (0, 1)]
    for party in range(3):
        views = [_places(of_key, party) for of_key in dealt]
        assert ks_2samp(*views).pvalue > LIKELY
        assert min(kstest(view, "uniform").pvalue for view in views) > LIKELY
    # Two of three together: their sum modulo n²/2 is as uniform as each.
    together = (_places(dealt[0], 1) + _places(dealt[0], 2)) % 1
    assert kstest(together, "uniform").pvalue > LIKELY


def test_a_dealer_that_does_not_mask_is_caught() -> None:
    """The same test on shares d − 1, 1: the first place is fixed, and that share decrypts almost alone."""
    key = make_private_key()
    order = lcm(key.p - 1, key.q - 1)
    exponent = order * invert(order, key.public.n) - 1
    dealt: list[tuple[KeyShare, ...]]
    dealt = [(KeyShare(key.public, 0, 2, exponent), KeyShare(key.public, 1, 2, mpz(1)))] * 250
    assert kstest(_places(dealt, 0), "uniform").pvalue < LIKELY

"""Paillier against textbook arithmetic, against phe, against what a peer may send, and against what each side sees."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import pytest
from gmpy2 import gcd, is_prime, jacobi, lcm, mpz, next_prime
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp, kstest

from comity.crypto.paillier import cryptosystem as paillier
from comity.crypto.paillier.cryptosystem import Ciphertext, FixedBase, PrivateKey, PublicKey
from comity.errors import Malformed
from tests.support.paillier import make_private_key

LIKELY = 1e-6
few = settings(max_examples=25, deadline=None)


@cache
def toy() -> PrivateKey:
    """Two safe primes so small that discrete logarithms are a look-up."""
    p, q, x = mpz(467), mpz(503), mpz(1234)
    return PrivateKey(PublicKey(p * q, -x * x % (p * q)), p, q)


def textbook(key: PrivateKey, value: int) -> int:
    """Decryption as the paper of 1999 writes it: L(c^λ mod n²) / L(g^λ mod n²) mod n."""
    n, order = int(key.public.n), int(lcm(key.p - 1, key.q - 1))
    scale = (pow(1 + n, order, n * n) - 1) // n
    return (pow(int(value), order, n * n) - 1) // n * pow(scale, -1, n) % n


def plaintexts() -> st.SearchStrategy[int]:
    limit = make_private_key().public.limit
    return st.one_of(st.integers(-limit, limit), st.integers(-100, 100), st.sampled_from([limit, -limit]))


@few
@given(st.data())
def test_a_table_gives_the_powers_of_its_base(data: st.DataObject) -> None:
    n = data.draw(st.integers(50, 2**70).map(lambda k: int(next_prime(k)) * int(next_prime(k + 1000))))
    base = data.draw(st.integers(2, n * n - 1).filter(lambda b: np.gcd.reduce([b, n], dtype=object) == 1))
    bits, window = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 8))
    exponent, message = data.draw(st.integers(0, 2**bits - 1)), data.draw(st.integers(-n, n))
    found = FixedBase(mpz(base), mpz(n), bits=bits, window=window).power(exponent, message)
    assert found == pow(base, exponent, n * n) * (1 + n * message) % (n * n)


@pytest.mark.parametrize("exponent", [-1, 1 << 16])
def test_a_table_refuses_exponents_it_has_no_rows_for(exponent: int) -> None:
    with pytest.raises(ValueError, match="16 bits"):
        FixedBase(mpz(2), mpz(77), bits=16, window=4).power(exponent)


@few
@given(plaintexts())
def test_decryption_gives_back_the_plaintext(message: int) -> None:
    key = make_private_key()
    ciphertext = key.public.encrypt(message)
    assert key.decrypt(ciphertext) == message
    assert key.decrypt(key.public.read(key.public.write(ciphertext))) == message


@pytest.mark.parametrize("message", [0, 1, -1, 2**2000, -(2**2000)])
def test_the_textbook_reads_our_ciphertexts(message: int) -> None:
    key = make_private_key()
    assert textbook(key, key.public.encrypt(message).value) == message % key.public.n


def test_every_small_plaintext_of_a_small_key() -> None:
    key = toy()
    for message in range(-key.public.limit, key.public.limit + 1, 61):
        assert key.decrypt(key.public.encrypt(message)) == message


def test_textbook_encryption_is_read() -> None:
    key, n = make_private_key(), int(make_private_key().public.n)
    value = pow(1 + n, 31337, n * n) * pow(secrets.randbelow(n), n, n * n) % (n * n)
    assert key.decrypt(Ciphertext(mpz(value))) == 31337


def test_phe_reads_ours_and_we_read_its() -> None:
    phe = pytest.importorskip("phe", reason="phe is in the extra `bench`, which `make test` does not install")
    key = make_private_key()
    public = phe.PaillierPublicKey(int(key.public.n))
    theirs = phe.PaillierPrivateKey(public, int(key.p), int(key.q))
    assert theirs.raw_decrypt(int(key.public.encrypt(271828).value)) == 271828
    assert key.decrypt(Ciphertext(mpz(public.raw_encrypt(314159)))) == 314159


@few
@given(st.integers(-(2**900), 2**900), st.integers(-(2**900), 2**900), st.integers(-(2**64), 2**64))
def test_sums_and_products(a: int, b: int, factor: int) -> None:
    key, public = make_private_key(), make_private_key().public
    computed = public.add_plain(public.add(public.multiply(public.encrypt(a), factor), public.encrypt(b)), -a)
    assert key.decrypt(computed) == a * factor + b - a
    assert key.decrypt(public.rerandomise(computed)) == a * factor + b - a


@pytest.mark.parametrize("factor", [0, 1, -1])
def test_edge_factors(factor: int) -> None:
    public = make_private_key().public
    assert make_private_key().decrypt(public.multiply(public.encrypt(-12), factor)) == -12 * factor


def test_a_key_of_3072_bits() -> None:
    key = PrivateKey.generate(3072)
    peer = PublicKey.from_bytes(key.public.to_bytes())
    assert key.decrypt(peer.rerandomise(peer.multiply(peer.encrypt(-(2**2000)), 3))) == -3 * 2**2000


def test_out_of_range_is_refused() -> None:
    key, public = make_private_key(), make_private_key().public
    for message in (public.limit + 1, -public.limit - 1):
        with pytest.raises(Malformed, match="bits"):
            public.encrypt(message)
        with pytest.raises(Malformed):
            public.multiply(public.encrypt(1), message)
    top = public.encrypt(public.limit)
    for overflowed in (public.add(top, public.encrypt(1)), public.multiply(public.add(top, public.encrypt(1)), -1)):
        with pytest.raises(Malformed, match="range"):
            key.decrypt(overflowed)
    with pytest.raises(TypeError):
        public.encrypt(1.5)  # type: ignore[arg-type]


def test_what_is_raised_to_the_secret_power_is_known_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ciphertext that somebody chose is raised as another one of the same plaintext, another one each time."""
    raised: list[int] = []
    logarithm = paillier._Half._logarithm

    def watched(self: paillier._Half, value: mpz) -> mpz:
        raised.append(int(value))
        return logarithm(self, value)

    key = PrivateKey(make_private_key().public, make_private_key().p, make_private_key().q)
    chosen = key.public.encrypt(77)
    assert key.decrypt(chosen) == 77
    monkeypatch.setattr(paillier._Half, "_logarithm", watched)
    assert [key.decrypt(chosen) for _ in range(20)] == [77] * 20
    assert len(set(raised)) == 40, "once for each prime"
    assert not {chosen.value % key.p**2, chosen.value % key.q**2} & set(raised)


def test_only_fresh_ciphertexts_leave() -> None:
    public = make_private_key().public
    made = public.encrypt(5)
    for computed in (
        public.add(made, made),
        public.add_plain(made, 1),
        public.multiply(made, 2),
        public.read(public.write(made)),
    ):
        with pytest.raises(ValueError, match="re-randomised"):
            public.write(computed)
        assert len(public.write(public.rerandomise(computed))) == public.ciphertext_bytes == 512


def test_malformed_ciphertexts_are_refused() -> None:
    key, public = make_private_key(), make_private_key().public
    good = public.write(public.encrypt(1))
    size = public.ciphertext_bytes
    numbers = [0, public.square, public.square + 1, public.n, key.p, key.q * 17, 2 ** (8 * size) - 1]
    for data in [b"", good[:-1], good + b"\0", *(int(number).to_bytes(size, "little") for number in numbers)]:
        with pytest.raises(Malformed):
            public.read(data)


def test_generated_keys_keep_the_conditions() -> None:
    key = make_private_key()
    assert key.public.bits == 2048 and key.p % 4 == key.q % 4 == 3
    assert jacobi(-key.public.h, key.p) == jacobi(-key.public.h, key.q) == 1
    assert PrivateKey.from_bytes(key.to_bytes()) == key
    assert PublicKey.from_bytes(key.public.to_bytes()) == key.public
    assert str(int(key.p)) not in repr(key)
    with pytest.raises(ValueError, match="2048 or 3072"):
        PrivateKey.generate(1024)


def _prime(bits: int, residue: int, start: mpz | None = None) -> mpz:
    """The first prime of this residue modulo 4 at or above a start."""
    prime = next_prime(start or mpz(secrets.randbits(bits) | 3 << (bits - 2)))
    while prime % 4 != residue:
        prime = next_prime(prime)
    return prime


def _bytes(bits: int, **numbers: tuple[int, int]) -> bytes:
    return bits.to_bytes(4, "little") + b"".join(int(v).to_bytes(size, "little") for v, size in numbers.values())


def _public(n: int, h: int, bits: int = 2048) -> bytes:
    return _bytes(bits, n=(n, 256), h=(h, 256))


def test_bad_moduli_are_refused() -> None:
    n, p = make_private_key().public.n, make_private_key().p
    cofactor = next(c for c in count(mpz(2) ** 2044 + 1, 4) if is_prime(c))
    # h = 4 passes every check of its own, so that the modulus alone is at fault.
    for name, bad in {
        "even": n - 1,
        "three modulo four": p * _prime(1024, 1),
        "short": p * _prime(1023, 3),
        "square": p * p,
        "prime": _prime(2048, 1),
        "small factor": 9 * cofactor,
        "close factors": p * _prime(1024, 3, p),
    }.items():
        with pytest.raises(Malformed, match="modulus"):
            pytest.fail(f"{name}: taken for {PublicKey.from_bytes(_public(bad, 4))}")
    assert PublicKey.from_bytes(_public(n, 4)).n == n


def test_bad_bases_and_lengths_of_public_keys_are_refused() -> None:
    n, h, p = make_private_key().public.n, make_private_key().public.h, make_private_key().p
    for name, data in {
        "h is one": _public(n, 1),
        "h is minus one": _public(n, n - 1),
        "h is zero": _public(n, 0),
        "h above n": _public(n, n + 4),
        "h divides n": _public(n, p),
        "h of the other symbol": _public(n, next(x for x in range(2, 1000) if jacobi(x, n) == -1)),
        "another size": _public(n, h, 3072),
        "no size": _public(n, h, 0),
        "truncated": _public(n, h)[:-1],
        "longer": _public(n, h) + b"\0",
        "empty": b"",
    }.items():
        with pytest.raises(Malformed):
            pytest.fail(f"{name}: taken for {PublicKey.from_bytes(data)}")


def test_bad_private_keys_are_refused() -> None:
    key = make_private_key()
    p, q, n = key.p, key.q, key.public.n

    def data(p: mpz, q: mpz, h: mpz | None = None) -> bytes:
        # −4 is of the right form for every pair of primes, so that the pair alone is at fault.
        return _bytes(2048, p=(p, 128), q=(q, 128), h=((p * q - 4 if h is None else h), 256))

    def fitting(candidates: Iterator[mpz]) -> mpz:
        return next(c for c in candidates if gcd(p - 1, c - 1) == 2 and gcd(p * c, (p - 1) * (c - 1)) == 1)

    composites = (c for c in count(q + 4, 4) if not is_prime(c))
    neighbours = (c for c in count(p + 4, 4) if is_prime(c))
    for bad, reason in (
        (data(p, fitting(composites)), "not prime"),
        (data(p, _prime(1024, 1)), "3 modulo 4"),
        (data(p, p), "too close"),
        (data(p, fitting(neighbours)), "too close"),
        (data(p, _prime(1000, 3)), "1024 bits"),
        (data(p, q, mpz(4)), "form"),
        (data(p, q, n - 1), "form"),
        (key.to_bytes()[:-1], "bytes"),
        (key.to_bytes() + b"\0", "bytes"),
    ):
        with pytest.raises(Malformed, match=reason):
            PrivateKey.from_bytes(bad)
    assert PrivateKey.from_bytes(data(p, q)).p == p


def test_a_common_factor_of_the_orders_is_refused() -> None:
    # p = 2·3·k + 1 and q = 2·3·l + 1 share the factor 3 below p − 1 and q − 1.
    primes = []
    for _ in range(2):
        k = 2**1021 + secrets.randbits(1018) | 1
        while not is_prime(mpz(6 * k + 1)):
            k += 2
        primes.append(mpz(6 * k + 1))
    assert "common factor" in paillier._describe_fault(primes[0], primes[1], 1024)


def _fractions(values: list[mpz], modulus: mpz) -> np.ndarray:
    return np.array([int((value % modulus << 52) // modulus) / 2**52 for value in values])


def _views_differ(key: PublicKey, messages: tuple[int, int], count: int = 300) -> bool:
    """Whether whole ciphertexts, or their residues modulo n, tell two plaintexts apart."""
    first, second = ([key.encrypt(message).value for _ in range(count)] for message in messages)
    tests = [ks_2samp(_fractions(first, m), _fractions(second, m)).pvalue for m in (key.square, key.n, mpz(2**20))]
    found: bool = min(tests) < LIKELY
    return found


def test_ciphertexts_of_two_plaintexts_look_alike() -> None:
    public = make_private_key().public
    assert not _views_differ(public, (0, public.limit))
    ciphertexts = [public.encrypt(0).value for _ in range(300)]
    assert kstest(_fractions(ciphertexts, public.square), "uniform").pvalue > LIKELY
    assert len(set(ciphertexts)) == 300


def test_without_randomness_the_view_tells_plaintexts_apart() -> None:
    assert _views_differ(PublicKey(make_private_key().public.n, mpz(1)), (0, make_private_key().public.limit))


@cache
def _logarithms() -> dict[int, int]:
    """Discrete logarithms to the base h^n modulo the toy n: what unlimited power and the factors give the holder."""
    found: dict[Any, Any]
    public, value, found = toy().public, mpz(1), {}
    while int(value) not in found:
        found[int(value)] = len(found)
        value = value * public._residue % public.n
    return found


def _holder_sees(factor: int, hide: str, count: int = 400) -> np.ndarray:
    """The exponent of a computed ciphertext's randomness, as a fraction of the order."""
    public, logs = toy().public, _logarithms()
    seen = []
    for _ in range(count):
        computed = public.multiply(public.encrypt(1), factor)
        if hide == "full":
            sent = public.rerandomise(computed)
        else:
            sent = public.add(computed, public.encrypt(0))
        seen.append(logs[int(sent.value % public.n)] / len(logs))
    return np.array(seen)


def test_the_holder_of_the_key_can_not_see_the_factor() -> None:
    views = [_holder_sees(factor, "full") for factor in (1, 200)]
    assert ks_2samp(*views).pvalue > LIKELY
    assert min(kstest(view, "uniform").pvalue for view in views) > LIKELY


def test_half_length_exponents_would_show_the_factor_to_the_holder() -> None:
    assert ks_2samp(*(_holder_sees(factor, "half") for factor in (1, 200))).pvalue < LIKELY


def test_an_unrandomised_product_shows_its_factor_to_anyone() -> None:
    public = make_private_key().public
    sent = public.encrypt(7)
    returned = public.multiply(sent, 23)
    guesses = [factor for factor in range(50) if public.multiply(sent, factor).value == returned.value]
    assert guesses == [23]
    hidden = public.rerandomise(returned)
    assert all(public.multiply(sent, factor).value != hidden.value for factor in range(50))

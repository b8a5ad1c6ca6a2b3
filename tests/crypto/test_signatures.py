"""Signatures: the scheme of the standard, and a memory that makes nothing good that is not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from nacl import bindings

from comity.crypto import sealing
from comity.crypto.sealing import Signer, signature_memory_disabled, verify_signature
from comity.errors import Malformed

SEED, OTHER = b"a" * 32, b"b" * 32


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    sealing._memory.clear()
    yield
    sealing._memory.clear()


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """How often a signature was looked at in earnest."""
    found = []
    really = bindings.crypto_sign_open

    def counting(signed: Any, public: Any) -> bytes:
        found.append(public)
        return really(signed, public)

    monkeypatch.setattr(bindings, "crypto_sign_open", counting)
    return found


@pytest.mark.parametrize("data", [b"", b"x", b"data" * 1000])
def test_signatures_are_those_of_the_standard(data: Any) -> None:
    ours, theirs = Signer(SEED), Ed25519PrivateKey.from_private_bytes(SEED)
    assert ours.public == theirs.public_key().public_bytes_raw()
    assert ours.sign(data) == theirs.sign(data)
    Ed25519PublicKey.from_public_bytes(ours.public).verify(ours.sign(data), data)
    sealing._memory.clear()
    verify_signature(ours.public, theirs.sign(data), data)


def wrongs() -> Iterator[Any]:
    """Everything near a good signature that is none."""
    good = Signer(SEED).sign(b"data")
    public, other = Signer(SEED).public, Signer(OTHER).public
    yield from ((other, good, b"data"), (public, good, b"date"), (public, good, b"data "), (public, good, b""))
    yield from ((public, good[:-1], b"data"), (public, b"", b"data"), (public[:-1], good, b"data"))
    yield from ((b"", good, b"data"), (public + good[:1], good[1:], b"data"), (public, good + b"d", b"ata"))
    yield from ((public, bytes(byte ^ (at == place) for at, byte in enumerate(good)), b"data") for place in (0, 31, 63))
    yield public, Signer(OTHER).sign(b"data"), b"data"


@pytest.mark.parametrize("known", [False, True])
def test_what_does_not_verify_never_does_however_often_it_is_asked(known: bool) -> None:
    for public, signature, data in wrongs():
        sealing._memory.clear()
        if known:
            # The good one is in memory, and makes no other good.
            Signer(SEED).sign(b"data")
        for _ in range(3):
            with pytest.raises(Malformed) as raised:
                verify_signature(public, signature, data)
            assert raised.value.code == "signature"


def test_a_signature_is_verified_once_in_a_process_and_not_at_all_where_it_was_made(verified: Any) -> None:
    signer, foreign = Signer(SEED), Ed25519PrivateKey.from_private_bytes(OTHER)
    verify_signature(signer.public, signer.sign(b"own"), b"own")
    assert verified == []
    public, signature = foreign.public_key().public_bytes_raw(), foreign.sign(b"theirs")
    for _ in range(3):
        verify_signature(public, signature, b"theirs")
    assert verified == [public]


def test_what_one_site_would_do_can_be_measured(verified: Any) -> None:
    signer = Signer(SEED)
    signature = signer.sign(b"data")
    with signature_memory_disabled():
        for _ in range(3):
            verify_signature(signer.public, signature, b"data")
    assert len(verified) == 3
    verify_signature(signer.public, signature, b"data")
    assert len(verified) == 3


def test_the_memory_is_bounded_and_what_it_forgot_is_verified_again(
    monkeypatch: pytest.MonkeyPatch, verified: Any
) -> None:
    monkeypatch.setattr(sealing, "_MAX_REMEMBERED", 4)
    signer = Signer(SEED)
    made = {b"%d" % number: signer.sign(b"%d" % number) for number in range(20)}
    assert len(sealing._memory._new) + len(sealing._memory._old) <= 8
    for data, signature in made.items():
        verify_signature(signer.public, signature, data)
    assert 12 <= len(verified) <= 20


def test_threads_share_the_memory() -> None:
    signer = Signer(SEED)
    made = [(signer.sign(b"%d" % number), b"%d" % number) for number in range(200)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: verify_signature(signer.public, *one), made * 4))
        bad = list(pool.map(_fails, [(signer.public, made[0][0], data) for _, data in made[1:]]))
    assert all(bad)


def _fails(one: Any) -> bool:
    try:
        verify_signature(*one)
    except Malformed:
        return True
    return False


def test_a_key_of_small_order_signs_nothing() -> None:
    """Under such a key one signature fits every message, which not every library refuses."""
    weak = bytes([1]) + bytes(31)
    forged = weak + bytes(32)
    for data in (b"a", b"b"):
        with pytest.raises(Malformed):
            verify_signature(weak, forged, data)

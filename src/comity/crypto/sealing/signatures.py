"""Ed25519 signatures, by libsodium: half the time of OpenSSL's, and stricter about keys and signatures that are not in
their one canonical form.

Whether a signature verifies depends on key, signature and data alone. A process therefore remembers, by a hash of the
three, those that it found good and those that it made itself, which are good because the scheme is correct; what it
found bad it does not remember. At a site that saves next to nothing, since others' signatures are new to it. A process
that plays all parties of a consortium would otherwise verify each signed list and key once for each of them: what such
a run takes is no measure of one site, and `unremembered` is there to measure that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from nacl import bindings
from nacl.exceptions import CryptoError

from comity.errors import Malformed

KEY_BYTES = 32
SIGNATURE_BYTES = 64

# Of each generation; the older of two is forgotten as a whole.
_MOST = 1 << 15


class _Good:
    """Hashes of what verifies, bounded. Threads may lose an entry to each other, which costs one verification."""

    def __init__(self) -> None:
        self.enabled = True
        self._new: set[bytes] = set()
        self._old: set[bytes] = set()

    def __contains__(self, item: bytes) -> bool:
        return self.enabled and (item in self._new or item in self._old)

    def add(self, item: bytes) -> None:
        if len(self._new) >= _MOST:
            self._old, self._new = self._new, set()
        self._new.add(item)

    def clear(self) -> None:
        self._new, self._old = set(), set()


_good = _Good()


class Signer:
    """The private half, from a seed of 32 bytes."""

    def __init__(self, seed: bytes) -> None:
        self.public, self._secret = bindings.crypto_sign_seed_keypair(seed)

    def sign(self, data: bytes) -> bytes:
        signature: bytes = bindings.crypto_sign(data, self._secret)[:SIGNATURE_BYTES]
        _good.add(_hash(self.public, signature, data))
        return signature


def verify(public: bytes, signature: bytes, data: bytes) -> None:
    """Malformed where the holder of this key did not sign the data."""
    if len(public) == KEY_BYTES and len(signature) == SIGNATURE_BYTES:
        item = _hash(public, signature, data)
        if item in _good:
            return
        try:
            bindings.crypto_sign_open(signature + data, public)
        except CryptoError:
            pass
        else:
            _good.add(item)
            return
    raise Malformed("a signature does not verify under the pinned key", code="signature")


@contextmanager
def unremembered() -> Iterator[None]:
    """Every signature is verified as if it were new, in all threads: what one site or coordinator alone would do."""
    _good.enabled = False
    try:
        yield
    finally:
        _good.enabled = True


def _hash(public: bytes, signature: bytes, data: bytes) -> bytes:
    # Key and signature have fixed lengths, so that no two triples have the same bytes.
    return hashlib.sha256(b"".join((public, signature, data))).digest()

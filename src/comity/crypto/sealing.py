"""Identities, signatures and sealed messages.

A party has one Ed25519 key that signs and one hybrid ML-KEM-768 + X25519 key that opens messages sealed to it. The
study's roster pins both public keys, so a relay can neither read nor replace a message. A third key, `relay_key`,
identifies the party to a relay. Studies do not pin it. The signing key signs it, so the fingerprint of the pinned keys
vouches for it too.

Sealing      HPKE base mode with AES-256-GCM and a fresh encapsulation for every message: no nonce can repeat, even
             after a restart. Confidentiality holds against an adversary that records today and has a quantum computer
             later, as long as one of ML-KEM-768 and X25519 holds.
Signatures   Ed25519 by libsodium, which takes half the time of OpenSSL's and is stricter about keys and signatures that
             are not in canonical form. They are classical. Whether a signature verifies depends only on key, signature
             and data, so a process remembers, by a hash of the three, the signatures that it verified or made; it does
             not remember bad ones. A site saves almost nothing by this, since signatures of others are new to it. A
             process that plays all parties of a consortium would otherwise verify each signed list and key once per
             party. Such a run does not measure one site's work; `signature_memory_disabled` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from weakref import WeakValueDictionary

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from nacl import bindings
from nacl.exceptions import CryptoError

from comity.crypto.relay_key import RelayKey, decode_user, relay_statement
from comity.entropy import derive, fresh_seed
from comity.errors import Malformed

SEALING_BYTES = 1184 + 32
SUITE = hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)


@dataclass(frozen=True)
class PublicIdentity:
    """The raw public keys of a party, as the roster pins them."""

    sign: bytes
    mlkem: bytes
    x25519: bytes

    def verify(self, signature: bytes, data: bytes) -> None:
        """Malformed if the holder of the pinned key did not sign the data."""
        verify_signature(self.sign, signature, data)

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Encrypts to this party alone, bound to `context`, which the receiver must supply again."""
        return SUITE.encrypt(data, _sealing_key(self.mlkem, self.x25519), info=context)

    def sealing(self) -> bytes:
        """The public keys that others seal to, as bytes."""
        return self.mlkem + self.x25519

    @classmethod
    def from_sealing(cls, raw: bytes) -> PublicIdentity:
        """A fresh key of a run: others seal to it, and it signs nothing."""
        if len(raw) != SEALING_BYTES:
            raise Malformed(f"a sealing key has {SEALING_BYTES} bytes, found {len(raw)}", code="sealed")
        return cls(b"", raw[:-32], raw[-32:])

    @property
    def fingerprint(self) -> str:
        """A hash of all three keys, short enough to be read out: 128 bits in groups of four digits."""
        raw = b"".join(len(key).to_bytes(4, "big") + key for key in (self.sign, self.mlkem, self.x25519))
        text = hashlib.sha256(b"comity identity\0" + raw).hexdigest()[:32]
        return " ".join(text[at : at + 4] for at in range(0, len(text), 4))

    def to_texts(self) -> dict[str, str]:
        return {"sign": self.sign.hex(), "mlkem": self.mlkem.hex(), "x25519": self.x25519.hex()}

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> PublicIdentity:
        """The identity with these keys; the same object for the same keys. Of a thousand sites in ten processes, each
        pins and reads in each study the keys of all others."""
        raw = tuple(bytes.fromhex(texts[name]) for name in ("sign", "mlkem", "x25519"))
        found = _identities.get(raw)
        if found is None:
            # An equal one that another thread has stored meanwhile does no harm.
            found = _identities[raw] = cls(*raw)
        return found

    def relay_user(self, text: str) -> str:
        """The party's user at a relay, from the text `relay` of its public keys. Malformed unless this identity signed
        it: the fingerprint that people compare covers this identity alone."""
        user, _, signature = text.partition(".")
        try:
            self.verify(bytes.fromhex(signature), relay_statement(user))
        except ValueError as error:
            raise Malformed("a relay key is USER.SIGNATURE, as comity keys show prints it", code="keys") from error
        if decode_user(user) == self.sign:
            raise Malformed("a relay key must not be the key that signs: a relay chooses what it signs", code="keys")
        return user


_identities: WeakValueDictionary[tuple[bytes, ...], PublicIdentity] = WeakValueDictionary()


@lru_cache(maxsize=1024)
def _sealing_key(mlkem: bytes, x25519: bytes) -> hpke.MLKEM768X25519PublicKey:
    try:
        return hpke.MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(mlkem), X25519PublicKey.from_public_bytes(x25519)
        )
    except ValueError as error:
        raise Malformed("a public key is invalid", code="sealed") from error


class Identity:
    """A party's private keys, all derived from one 32-byte secret."""

    def __init__(self, secret: bytes | None = None) -> None:
        root = fresh_seed() if secret is None else secret
        self._root = root
        lattice = MLKEM768PrivateKey.from_seed_bytes(
            derive(root, "identity", "mlkem", 0) + derive(root, "identity", "mlkem", 1)
        )
        curve = X25519PrivateKey.from_private_bytes(derive(root, "identity", "x25519"))
        self._halves = lattice, curve
        self._opener = hpke.MLKEM768X25519PrivateKey(lattice, curve)

    # Computed at first use: a key of a run signs nothing, and most of the time it only opens.

    @cached_property
    def _signer(self) -> Signer:
        return Signer(derive(self._root, "identity", "sign"))

    @cached_property
    def public(self) -> PublicIdentity:
        lattice, curve = self._halves
        return PublicIdentity(
            self._signer.public,
            lattice.public_key().public_bytes_raw(),
            curve.public_key().public_bytes_raw(),
        )

    def to_texts(self) -> dict[str, str]:
        """All public keys: those that a study pins, and the relay key with the signature that vouches for it."""
        user = RelayKey(relay_seed(self._root)).user
        return {**self.public.to_texts(), "relay": f"{user}.{self.sign(relay_statement(user)).hex()}"}

    def sign(self, data: bytes) -> bytes:
        return self._signer.sign(data)

    def open(self, box: bytes, context: bytes) -> bytes:
        try:
            return SUITE.decrypt(box, self._opener, info=context)
        except (InvalidTag, ValueError) as error:
            raise Malformed("a sealed message does not open", code="sealed") from error


def relay_seed(secret: bytes) -> bytes:
    """The seed of the relay key of the identity with this secret."""
    return derive(secret, "identity", "relay")


def lock(key: bytes, data: bytes, context: bytes) -> bytes:
    """AES-256-GCM under a key that encrypts only one message, so a constant nonce is safe."""
    return AESGCM(key).encrypt(bytes(12), data, context)


def unlock(key: bytes, box: bytes, context: bytes) -> bytes:
    try:
        return AESGCM(key).decrypt(bytes(12), box, context)
    except InvalidTag as error:
        raise Malformed("a locked message does not open", code="sealed") from error


SIGNING_KEY_BYTES = 32
SIGNATURE_BYTES = 64

_MAX_REMEMBERED = 1 << 15
"""Per generation; the older of two generations is forgotten at once."""


class _SignatureMemory:
    """A bounded set of hashes of good signatures. Threads may lose an entry, which costs one verification."""

    def __init__(self) -> None:
        self.enabled = True
        self._new: set[bytes] = set()
        self._old: set[bytes] = set()

    def __contains__(self, item: bytes) -> bool:
        return self.enabled and (item in self._new or item in self._old)

    def add(self, item: bytes) -> None:
        if len(self._new) >= _MAX_REMEMBERED:
            self._old, self._new = self._new, set()
        self._new.add(item)

    def clear(self) -> None:
        self._new, self._old = set(), set()


_memory = _SignatureMemory()


class Signer:
    """The private half, from a seed of 32 bytes."""

    def __init__(self, seed: bytes) -> None:
        self.public, self._secret = bindings.crypto_sign_seed_keypair(seed)

    def sign(self, data: bytes) -> bytes:
        signature: bytes = bindings.crypto_sign(data, self._secret)[:SIGNATURE_BYTES]
        _memory.add(_hash(self.public, signature, data))
        return signature


def verify_signature(public: bytes, signature: bytes, data: bytes) -> None:
    """Malformed if the holder of this key did not sign the data."""
    if len(public) == SIGNING_KEY_BYTES and len(signature) == SIGNATURE_BYTES:
        item = _hash(public, signature, data)
        if item in _memory:
            return
        try:
            bindings.crypto_sign_open(signature + data, public)
        except CryptoError:
            pass
        else:
            _memory.add(item)
            return
    raise Malformed("a signature does not verify under the pinned key", code="signature")


@contextmanager
def signature_memory_disabled() -> Iterator[None]:
    """Verifies every signature as if it were new, in all threads, as one site or coordinator would."""
    _memory.enabled = False
    try:
        yield
    finally:
        _memory.enabled = True


def _hash(public: bytes, signature: bytes, data: bytes) -> bytes:
    # Key and signature have fixed lengths, so no two triples have the same bytes.
    return hashlib.sha256(b"".join((public, signature, data))).digest()

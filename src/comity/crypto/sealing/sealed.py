"""Identities, signatures and sealed messages.

A party has one Ed25519 key that signs and one hybrid ML-KEM-768 + X25519 key that opens what is sealed to it; the
study's roster pins both public keys, so whoever relays a message can neither read nor replace it. Sealing is HPKE base
mode with AES-256-GCM and a fresh encapsulation for every message: no nonce can repeat, also after a restart. The
confidentiality holds against an adversary that records today and has a quantum computer later, as long as one of
ML-KEM-768 and X25519 stands; the signatures are classical.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from comity.crypto.sealing import signatures
from comity.entropy import derive, fresh_seed
from comity.errors import Malformed

SEALING_BYTES = 1184 + 32
SUITE = hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)


@dataclass(frozen=True)
class PublicIdentity:
    """What the roster pins of a party: raw public keys."""

    sign: bytes
    mlkem: bytes
    x25519: bytes

    def verify(self, signature: bytes, data: bytes) -> None:
        """Malformed where the holder of the pinned key did not sign this."""
        signatures.verify(self.sign, signature, data)

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Encrypt to this party alone, bound to `context`, which the receiver must supply again."""
        return SUITE.encrypt(data, _sealing_key(self.mlkem, self.x25519), info=context)

    def sealing(self) -> bytes:
        """The half that others seal to, as bytes."""
        return self.mlkem + self.x25519

    @classmethod
    def from_sealing(cls, raw: bytes) -> PublicIdentity:
        """A key to seal to, that signs nothing: the fresh one of a run."""
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
        return cls(*(bytes.fromhex(texts[name]) for name in ("sign", "mlkem", "x25519")))


@lru_cache(maxsize=1024)
def _sealing_key(mlkem: bytes, x25519: bytes) -> hpke.MLKEM768X25519PublicKey:
    try:
        return hpke.MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(mlkem), X25519PublicKey.from_public_bytes(x25519)
        )
    except ValueError as error:
        raise Malformed("a public key is not one", code="sealed") from error


class Identity:
    """A party's private keys, all derived from one 32-byte secret."""

    def __init__(self, secret: bytes | None = None) -> None:
        root = fresh_seed() if secret is None else secret
        self._sign_seed = derive(root, "identity", "sign")
        lattice = MLKEM768PrivateKey.from_seed_bytes(
            derive(root, "identity", "mlkem", 0) + derive(root, "identity", "mlkem", 1)
        )
        curve = X25519PrivateKey.from_private_bytes(derive(root, "identity", "x25519"))
        self._halves = lattice, curve
        self._opener = hpke.MLKEM768X25519PrivateKey(lattice, curve)

    # Made when they are used: a key of a run signs nothing, and most of the time it only opens.

    @cached_property
    def _signer(self) -> signatures.Signer:
        return signatures.Signer(self._sign_seed)

    @cached_property
    def public(self) -> PublicIdentity:
        lattice, curve = self._halves
        return PublicIdentity(
            self._signer.public,
            lattice.public_key().public_bytes_raw(),
            curve.public_key().public_bytes_raw(),
        )

    def sign(self, data: bytes) -> bytes:
        return self._signer.sign(data)

    def open(self, box: bytes, context: bytes) -> bytes:
        try:
            return SUITE.decrypt(box, self._opener, info=context)
        except (InvalidTag, ValueError) as error:
            raise Malformed("a sealed message does not open", code="sealed") from error


def lock(key: bytes, data: bytes, context: bytes) -> bytes:
    """AES-256-GCM under a key that encrypts one message ever (so a constant nonce is sound)."""
    return AESGCM(key).encrypt(bytes(12), data, context)


def unlock(key: bytes, box: bytes, context: bytes) -> bytes:
    try:
        return AESGCM(key).decrypt(bytes(12), box, context)
    except InvalidTag as error:
        raise Malformed("a locked message does not open", code="sealed") from error

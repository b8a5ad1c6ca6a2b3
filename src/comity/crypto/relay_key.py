"""A member's key at the relay: an Ed25519 key that signs the relay's nonces and nothing else.

    UABC...        the public half as NATS writes the name of a user: prefix, key and checksum in base32

A server chooses the nonce that its client signs, so a hostile relay can have any text signed that the client accepts.

Promise    No answer to a nonce is a valid signature of Comity, and no signature of Comity lets anybody in at a relay.
Why        The key is derived from the key file's secret under a separate label; it is never the key that a study pins.
           It signs nothing but nonces in the form that the server uses (base64url). Every statement that Comity signs
           contains a zero byte, so even the two keys exchanged would not help.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from nacl import bindings

from comity.errors import Malformed

_USER: Final = 20 << 3
"""NATS's prefix of a user's public key; it makes the text begin with U."""
_USER_CHARACTERS: Final = 56
_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_NONCE: Final = re.compile(r"[A-Za-z0-9_-]{8,32}\Z")
"""The server sends 15 characters."""


class RelayKey:
    """The private half. It can answer a relay, and has no method that signs anything else."""

    def __init__(self, seed: bytes) -> None:
        self.public, self._secret = bindings.crypto_sign_seed_keypair(seed)

    @property
    def user(self) -> str:
        """The name of this key's user at a relay."""
        return encode_user(self.public)

    def answer(self, nonce: str) -> bytes:
        """The signature of a relay's nonce, in base64. Malformed for any other text: nothing is signed then."""
        if not isinstance(nonce, str) or _NONCE.match(nonce) is None:
            raise Malformed("the relay asks to sign something that is not a nonce of its server", code="nonce")
        return base64.b64encode(bindings.crypto_sign(nonce.encode("ascii"), self._secret)[:_SIGNATURE_BYTES])


def encode_user(public: bytes) -> str:
    raw = bytes([_USER]) + public
    # binascii.crc_hqx is the CRC-16 that NATS uses, which it writes with the low byte first.
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode("ascii")


def decode_user(text: str) -> bytes:
    """The public key in the name of a user; ValueError if it is none, or is not in the one form that NATS writes."""
    raw = base64.b32decode(text) if len(text) == _USER_CHARACTERS else b""
    public = raw[1 : 1 + _KEY_BYTES]
    if len(public) != _KEY_BYTES or encode_user(public) != text:
        raise ValueError("expected a NATS user key of 56 characters, with its checksum")
    return public


def relay_statement(user: str) -> bytes:
    """What a party's signing key signs about its relay key. The prefix keeps it apart from all else that it signs."""
    return b"comity relay key\0" + decode_user(user)

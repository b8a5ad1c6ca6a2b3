"""Signatures on asks and replies, and on released values.

Asks and replies. The coordinator's Ed25519 signature follows an ask; it covers the digest of the ask and the party that
it is for. The site's signature follows a reply; it covers the digest of the reply and that of the signed ask. So an ask
shown to another site, a reply to another ask or of another party, a reflected ask and a truncated message all fail to
verify. Study, run and path are part of the ask. Both keys are pinned in the roster. The carrier still sees the bytes:
what it must not see is sealed or masked before.

Released values. The coordinator signs each value that a run releases, and the signature outlives the run.

    Promise    With the study, which pins the coordinator's key, anyone can tell years later that a value is what this
               run released under this name, even if a receiver passed it on.
    Against    Those who hold the files meanwhile. Not against the coordinator, which signs.

This signature covers study, run, release, the ask that brought the value, and the value's digest. A party gets only the
signatures of values that were released to it: a digest of a value says something about it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comity.crypto.sealing import Identity, PublicIdentity
from comity.errors import Malformed
from comity.federation.declare.consortium import Consortium
from comity.federation.messages.codec import encode

SIGNATURE_BYTES = 64


@dataclass(frozen=True)
class Digests:
    """SHA-256 of a message without its signature and with it, from one pass over the bytes."""

    body: bytes
    whole: bytes

    @classmethod
    def of(cls, body: bytes | memoryview, signature: bytes | memoryview) -> Digests:
        state = hashlib.sha256(body)
        first = state.digest()
        state.update(signature)
        return cls(first, state.digest())

    @classmethod
    def of_signed(cls, raw: bytes) -> Digests:
        view = memoryview(raw)
        return cls.of(view[:-SIGNATURE_BYTES], view[-SIGNATURE_BYTES:])


def sign_ask(keys: Identity, party: str, ask: bytes) -> tuple[bytes, Digests]:
    """The ask as it is sent to `party`, with its digests."""
    state = hashlib.sha256(ask)
    body = state.digest()
    signature = keys.sign(_asked(party, body))
    state.update(signature)
    return ask + signature, Digests(body, state.digest())


def verify_ask(coordinator: PublicIdentity, party: str, raw: bytes, digests: Digests | None = None) -> bytes:
    """The ask that the coordinator signed for `party`; `digests` are those of `raw`, where they are known."""
    _check_length(raw)
    digests = digests or Digests.of_signed(raw)
    coordinator.verify(raw[-SIGNATURE_BYTES:], _asked(party, digests.body))
    return raw[:-SIGNATURE_BYTES]


def sign_reply(
    keys: Identity, party: str, raw: bytes, reply: bytes, digests: Digests | None = None, sent: bytes | None = None
) -> bytes:
    """The reply of `party` to the ask that reached it as `raw`; `digests` are those of `raw`, and `sent` is the SHA-256
    of the reply, where they are known."""
    asked = (digests or Digests.of_signed(raw)).whole
    return reply + keys.sign(_replied(party, asked, sent or hashlib.sha256(reply).digest()))


def verified_reply(site: PublicIdentity, party: str, asked: Digests, answer: bytes) -> tuple[bytes, bytes]:
    """What `party` replied to the ask with these digests, and the SHA-256 of it."""
    _check_length(answer)
    reply = answer[:-SIGNATURE_BYTES]
    digest = hashlib.sha256(reply).digest()
    site.verify(answer[-SIGNATURE_BYTES:], _replied(party, asked.whole, digest))
    return reply, digest


def verify_reply(site: PublicIdentity, party: str, raw: bytes, answer: bytes) -> bytes:
    """What `party` replied to the ask that was sent to it as `raw`."""
    return verified_reply(site, party, Digests.of_signed(raw), answer)[0]


def _check_length(raw: bytes) -> None:
    if len(raw) <= SIGNATURE_BYTES:
        raise Malformed(f"a message ends in a signature of {SIGNATURE_BYTES} bytes, found {len(raw)}", code="signature")


def _asked(party: str, ask: bytes) -> bytes:
    return encode(["ask", party, ask])


def _replied(party: str, asked: bytes, reply: bytes) -> bytes:
    return encode(["reply", party, asked, reply])


Signatures = Mapping[str, Mapping[str, bytes]]
"""By release, then by the path of the ask that brought the value."""


@dataclass(frozen=True)
class SignaturesForm:
    """The form of the signatures that `run.end` brings."""

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return type(value) is dict and all(
            type(paths) is dict and all(type(one) is bytes and len(one) == SIGNATURE_BYTES for one in paths.values())
            for paths in value.values()
        )


def sign_value(keys: Identity, study: str, run: str, name: str, path: str, value: bytes) -> bytes:
    """The coordinator's signature on an encoded value."""
    return keys.sign(_said(study, run, name, path, value))


def check_signed_value(
    coordinator: PublicIdentity, signature: bytes, study: str, run: str, name: str, path: str, value: bytes
) -> None:
    """Refuse a value that the coordinator has not signed."""
    coordinator.verify(signature, _said(study, run, name, path, value))


def _said(study: str, run: str, name: str, path: str, value: bytes) -> bytes:
    return encode(["released", study, run, name, path, hashlib.sha256(value).digest()])

"""Signatures on what passes between the coordinator and a site: no byte of an ask or a reply can be changed on the way.

An ask is followed by the coordinator's Ed25519 signature over its digest and the party it is for; a reply by the site's
over its own digest and that of the signed ask it answers. So an ask shown to another site, a reply to another ask, one
of another party, a reflected ask and a truncated message all fail to verify. Study, run and path stand in the ask
itself. Both keys are pinned in the roster. Whoever carries the bytes still sees them: what they must not see is sealed
or masked before it gets here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from comity.crypto.sealing import Identity, PublicIdentity
from comity.errors import Malformed
from comity.federation.messages.codec import encode

SIGNATURE_BYTES = 64


@dataclass(frozen=True)
class Digests:
    """SHA-256 of a message without its signature and with it, from one pass over what may be many megabytes."""

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


def signed_ask(keys: Identity, party: str, ask: bytes) -> tuple[bytes, Digests]:
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


def sign_reply(keys: Identity, party: str, raw: bytes, reply: bytes, digests: Digests | None = None) -> bytes:
    """The reply of `party` to the ask that reached it as `raw`; `digests` are those of `raw`, where they are known."""
    asked = (digests or Digests.of_signed(raw)).whole
    return reply + keys.sign(_replied(party, asked, hashlib.sha256(reply).digest()))


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

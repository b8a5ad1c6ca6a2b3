"""Signatures on what passes between the coordinator and a site: no byte of an ask or a reply can be changed on the way.

An ask is followed by the coordinator's Ed25519 signature over its digest and the party it is for; a reply by the site's
over its own digest and that of the signed ask it answers. So an ask shown to another site, a reply to another ask, one
of another party, a reflected ask and a truncated message all fail to verify. Study, run and path stand in the ask
itself. Both keys are pinned in the roster. Whoever carries the bytes still sees them: what they must not see is sealed
or masked before it gets here.
"""

from __future__ import annotations

import hashlib

from comity.crypto.sealed import Identity, PublicIdentity
from comity.errors import Malformed
from comity.federation.codec import encode

SIGNATURE_BYTES = 64


def sign_ask(keys: Identity, party: str, ask: bytes) -> bytes:
    """The ask as it is sent to `party`."""
    return ask + keys.sign(_asked(party, ask))


def verify_ask(coordinator: PublicIdentity, party: str, raw: bytes) -> bytes:
    """The ask that the coordinator signed for `party`."""
    ask, signature = _parts(raw)
    coordinator.verify(signature, _asked(party, ask))
    return ask


def sign_reply(keys: Identity, party: str, raw: bytes, reply: bytes) -> bytes:
    """The reply of `party` to the ask that reached it as `raw`."""
    return reply + keys.sign(_replied(party, raw, reply))


def verify_reply(site: PublicIdentity, party: str, raw: bytes, answer: bytes) -> bytes:
    """What `party` replied to the ask that was sent to it as `raw`."""
    reply, signature = _parts(answer)
    site.verify(signature, _replied(party, raw, reply))
    return reply


def _parts(raw: bytes) -> tuple[bytes, bytes]:
    if len(raw) <= SIGNATURE_BYTES:
        raise Malformed(f"a message ends in a signature of {SIGNATURE_BYTES} bytes, found {len(raw)}", code="signature")
    return raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]


def _asked(party: str, ask: bytes) -> bytes:
    return encode(["ask", party, hashlib.sha256(ask).digest()])


def _replied(party: str, raw: bytes, reply: bytes) -> bytes:
    return encode(["reply", party, hashlib.sha256(raw).digest(), hashlib.sha256(reply).digest()])

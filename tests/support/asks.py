"""Asks as a coordinator would send them, also with keys that are not the coordinator's."""

from __future__ import annotations

from comity.crypto.sealing import Identity
from comity.federation.messages import signatures


def sign_ask(keys: Identity, party: str, ask: bytes) -> bytes:
    """The ask as it is sent to `party`, signed with `keys`."""
    return signatures.sign_ask(keys, party, ask)[0]

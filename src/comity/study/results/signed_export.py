"""An owner's signature on an export of its ledger, with the key that studies pin of it."""

from __future__ import annotations

from comity.crypto.sealing import Identity, PublicIdentity
from comity.federation.messages.codec import encode
from comity.privacy.ledger import Check, Sign


def sign_with(keys: Identity) -> Sign:
    """Signs what `Ledger.export` states."""
    return lambda statement: keys.sign(_signed(statement))


def check_with(owner: PublicIdentity) -> Check:
    """Checks it for `verify_export`. The key comes from the verifier, never from the export."""
    return lambda signature, statement: owner.verify(signature, _signed(statement))


def _signed(statement: bytes) -> bytes:
    # Apart from everything else that the same key signs.
    return encode(["exported ledger", statement])

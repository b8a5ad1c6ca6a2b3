"""Values between the coordinator and one site that nobody else may read: each crosses as a box for its receiver.

A release is `sealed` if its protection says so, whoever its two ends are. Between parties that is a letter
(`federation.messages.letters`). Between the coordinator and a site the value stands in an ask or a reply, which its
sender signs; here it is put into a box (HPKE) that opens for its receiver alone, and as this value of this ask alone:
study, run, path, sender, receiver and name are part of what is authenticated. Whoever records the wire or reads the
journal keeps the box.

Why it matters: a dealer's hand is independent of all records, and yet with it a peer reads the rows that it masks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from comity.crypto.sealing import Identity, PublicIdentity
from comity.errors import Malformed
from comity.federation.declare.declaration import Declaration
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.letters import Head

Named = Callable[[str], Head]


def sealed_values(
    values: Mapping[str, Any], declared: Declaration, receiver: PublicIdentity, head: Named
) -> dict[str, Any]:
    """Values as they cross: a box in place of each whose release is sealed. `head` makes the head of a name."""
    return {
        name: receiver.seal(encode(value), _context(head(name))) if declared[name].sealed else value
        for name, value in values.items()
    }


def sealed_value(value: Any, receiver: PublicIdentity, head: Head) -> bytes:
    """One value in a box, where whether there is one depends on the receiver."""
    return receiver.seal(encode(value), _context(head))


def opened_value(box: bytes, keys: Identity, head: Head) -> Any:
    """What `sealed_value` put into the box."""
    return _opened(head.name, box, keys, head)


def opened_values(values: Mapping[str, Any], declared: Declaration, keys: Identity, head: Named) -> dict[str, Any]:
    """The same at the other end. A sealed release that crossed in clear is refused."""
    return {
        name: _opened(name, value, keys, head(name)) if declared[name].sealed else value
        for name, value in values.items()
    }


def _opened(name: str, box: Any, keys: Identity, head: Head) -> Any:
    if type(box) is not bytes:
        raise Malformed(f"{name} crosses in a sealed box, found a {type(box).__name__}", code="sealed", key=name)
    return decode(keys.open(box, _context(head)))


def _context(head: Head) -> bytes:
    return encode(["value", head.raw])

"""Sealed values: letters between parties, and values between the coordinator and one site.

A letter is sealed to the receiver's key of the run, signed with the sender's pinned key, and relayed by the
coordinator. Keys of a run are deleted with it, so pinned keys that are stolen later open nothing that was recorded.

A letter has a head (study, run, path, sender, receiver, name) and a box. For a small value the box is the value, sealed
by HPKE. A large value, or one for several receivers, is locked once, under a fresh AES-256-GCM key that encrypts
nothing else; each receiver gets a letter with that key sealed to it. The signature then covers 32 bytes of a large box,
and the box is stored once, beside the letters. Both forms refuse a head of another study, run or receiver, an
altered box, and a sender that did not sign. For the second form this holds because

    the signature covers the head, the sealed key and the SHA-256 of the box;
    the key is sealed under the head, so it opens for the receiver that the head names, and as this letter only;
    the box is locked under study, run, path, sender and name.

A letter whose shared box is stored elsewhere carries the digest of the box (`bulk`) instead.

Between the coordinator and a site, a sealed value is part of an ask or a reply, which its sender signs. It is put into
a box (HPKE) that only its receiver can open, and only as this value of this ask: study, run, path, sender, receiver and
name are authenticated. A recorded message or a journal holds the box only. This matters for a dealer's values: they are
independent of all records, but a peer that had them could read the rows that they mask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from comity.crypto.sealing import Identity, PublicIdentity, lock, unlock
from comity.entropy import fresh_seed
from comity.errors import Malformed
from comity.federation.declare.declaration import Declaration
from comity.federation.messages.codec import decode, encode

Letter = dict[str, Any]

_KEY_BYTES = 32


@dataclass(frozen=True)
class Head:
    """Where a letter belongs; the receiver compares it with its own study, run and path."""

    study: str
    run: str
    path: str
    sender: str
    to: str
    name: str

    @cached_property
    def raw(self) -> bytes:
        return encode([self.study, self.run, self.path, self.sender, self.to, self.name])

    @property
    def common(self) -> bytes:
        """What all letters of one value share."""
        return encode(["in common", self.study, self.run, self.path, self.sender, self.name])

    @classmethod
    def of(cls, letter: Mapping[str, Any]) -> Head:
        match decode(letter["head"]):
            case [str(study), str(run), str(path), str(sender), str(to), str(name)]:
                return cls(study, run, path, sender, to, name)
            case _:
                raise Malformed("the head of a sealed message is malformed", code="sealed")


def seal(keys: Identity, receiver: PublicIdentity, head: Head, data: bytes) -> Letter:
    box = receiver.seal(data, head.raw)
    return {"to": head.to, "head": head.raw, "box": box, "signature": keys.sign(head.raw + box)}


def seal_in_common(
    keys: Identity, receivers: Mapping[str, PublicIdentity], heads: Mapping[str, Head], data: bytes
) -> tuple[list[Letter], bytes]:
    """A letter for each receiver, and the box that they share."""
    key, common = fresh_seed(), next(iter(heads.values())).common
    box = lock(key, data, common)
    digest = hashlib.sha256(box).digest()
    letters: list[Letter] = []
    for to, receiver in receivers.items():
        head = heads[to].raw
        sealed = receiver.seal(key, _for_key(head))
        signature = keys.sign(_in_common(head, sealed, digest))
        letters.append({"to": to, "head": head, "key": sealed, "bulk": digest, "signature": signature})
    return letters, box


def unseal(keys: Identity, sender: PublicIdentity, head: Head, letter: Letter) -> bytes:
    """The value's bytes, if the sender that the head names signed this letter for the holder of `keys`."""
    raw, box, signature = letter["head"], letter["box"], letter["signature"]
    if "key" not in letter:
        sender.verify(signature, raw + box)
        return keys.open(box, raw)
    sealed = letter["key"]
    sender.verify(signature, _in_common(raw, sealed, hashlib.sha256(box).digest()))
    key = keys.open(sealed, _for_key(raw))
    if len(key) != _KEY_BYTES:
        raise Malformed(f"the key of a box has {_KEY_BYTES} bytes, found {len(key)}", code="sealed")
    return unlock(key, box, head.common)


def is_letter(found: Any) -> bool:
    """Whether this has the form of a letter as a site gets it."""
    match found:
        case {"to": str(), "head": bytes(), "box": bytes(), "signature": bytes(), **rest}:
            return not rest or (set(rest) == {"key"} and isinstance(rest["key"], bytes))
        case _:
            return False


def is_split_letter(found: Any) -> bool:
    """Whether this has the form of a letter as a site sends it, with a digest where its box is shared."""
    match found:
        case {"to": str(), "head": bytes(), "signature": bytes(), "box": bytes(), **rest}:
            return not rest
        case {"to": str(), "head": bytes(), "signature": bytes(), "key": bytes(), "bulk": bytes(), **rest}:
            return not rest
        case _:
            return False


def attach_box(letter: Letter, box_of: Callable[[bytes], bytes]) -> Letter:
    """The letter with its box, fetched by digest where it is shared."""
    if "bulk" not in letter:
        return letter
    return {**{name: part for name, part in letter.items() if name != "bulk"}, "box": box_of(letter["bulk"])}


def join_boxes(stored: bytes, box_of: Callable[[bytes], bytes]) -> bytes:
    """The reply as it came, with its boxes."""
    reply = decode(stored)
    return encode({**reply, "boxes": [box_of(digest) for digest in reply["boxes"]]})


def _for_key(head: bytes) -> bytes:
    return encode(["key in common", head])


def _in_common(head: bytes, sealed: bytes, digest: bytes) -> bytes:
    return encode(["letter in common", head, sealed, digest])


HeadOf = Callable[[str], Head]


def seal_values(
    values: Mapping[str, Any], declared: Declaration, receiver: PublicIdentity, head: HeadOf
) -> dict[str, Any]:
    """Values as they are sent: a box in place of each whose release is sealed. `head` makes the head of a name."""
    return {
        name: receiver.seal(encode(value), _context(head(name))) if declared[name].sealed else value
        for name, value in values.items()
    }


def seal_value(value: Any, receiver: PublicIdentity, head: Head) -> bytes:
    """One value in a box."""
    return receiver.seal(encode(value), _context(head))


def open_value(box: bytes, keys: Identity, head: Head) -> Any:
    """What `sealed_value` put into the box."""
    return _opened(head.name, box, keys, head)


def open_values(values: Mapping[str, Any], declared: Declaration, keys: Identity, head: HeadOf) -> dict[str, Any]:
    """Values as they were before `sealed_values`. A sealed release that arrives in clear is refused."""
    return {
        name: _opened(name, value, keys, head(name)) if declared[name].sealed else value
        for name, value in values.items()
    }


def _opened(name: str, box: Any, keys: Identity, head: Head) -> Any:
    if type(box) is not bytes:
        raise Malformed(f"{name} must arrive in a sealed box, found a {type(box).__name__}", code="sealed", key=name)
    return decode(keys.open(box, _context(head)))


def _context(head: Head) -> bytes:
    return encode(["value", head.raw])

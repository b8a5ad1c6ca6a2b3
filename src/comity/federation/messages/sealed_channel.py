"""Asks, studies and replies sealed between the coordinator and a site: whoever carries them sees sizes and times.

Promise    What crosses is a box for its receiver, signed inside: no value, name or path, nor the study's hash or the
           run's id, can be read on the way, also where values are entrusted to the coordinator. A box says what it is
           for: one with a study opens nowhere as an ask, nor the other way round, whatever its carrier calls it.
Against    Whoever runs the relay, records the wire or changes what it carries. Seals are post-quantum hybrids
           (`comity.crypto.sealing`); what is altered opens nowhere, and the signatures inside say who wrote it.

    ask      a fresh AES-256-GCM key, sealed to the site's pinned key by HPKE; under it, once and for all, the signed
             ask and the coordinator's fresh key for the replies to it. Made again it is the same bytes, because the
             key encrypts nothing else
    study    the same, with the packed study in place of the ask
    reply    sealed by HPKE to that fresh key, whose secret half is in the coordinator's memory alone while it waits:
             neither party's pinned key opens a recorded reply later

Limit      A recorded ask or study opens with the site's pinned key. What only one site may see in it (hands of a
           dealer, letters of others) is sealed inside to a key of the run, and stays so.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from comity.crypto.sealing import SEALING_BYTES, Identity, PublicIdentity, lock, unlock
from comity.entropy import fresh_seed
from comity.errors import Malformed, Refused
from comity.federation.messages.asking import Asking
from comity.federation.messages.channel import FOR_EVER, Channel, Message, Patience
from comity.federation.messages.codec import encode

_MAGIC = b"CMS1"
_LENGTH = struct.Struct(">H")
_KEY_BYTES = 32


Purpose = Literal["ask", "study"]


class SealedChannel:
    """A channel over another one, which carries boxes. `roster` pins the keys of the parties."""

    def __init__(self, channel: Channel, roster: Mapping[str, PublicIdentity]) -> None:
        self._channel = channel
        self._roster = roster

    def ask(self, messages: Mapping[str, Message], *, patience: Patience = FOR_EVER) -> Asking:
        boxes = sealed(messages, self._roster)
        asking = self._channel.ask(boxes.messages, patience=patience)
        asking.open_with(boxes.opened)
        return asking


@dataclass(frozen=True)
class Boxes:
    """Messages in boxes, and how to open the replies to them: with a key that is in this memory alone."""

    messages: Mapping[str, Message]
    opened: Callable[[str, bytes], bytes]


def sealed(messages: Mapping[str, Message], roster: Mapping[str, PublicIdentity], purpose: Purpose = "ask") -> Boxes:
    """Each message in a box for its party, by the key that `roster` pins of it."""
    for party in messages:
        if party not in roster:
            raise Refused(f"{party} has no pinned key in the roster; pin it in the study", code="stranger")
    keys = Identity(fresh_seed())
    answers = keys.public.sealing()
    boxes = {party: _sealed(roster[party], _context(purpose, party), make, answers) for party, make in messages.items()}
    return Boxes(boxes, lambda party, box: _opened_reply(keys, party, box))


def _sealed(receiver: PublicIdentity, context: bytes, make: Message, answers: bytes) -> Message:
    made: list[tuple[bytes, bytes]] = []

    def message() -> bytes:
        if not made:
            key = fresh_seed()
            made.append((key, receiver.seal(key, context)))
        key, header = made[0]
        return _MAGIC + _LENGTH.pack(len(header)) + header + lock(key, answers + make(), context)

    return message


@dataclass(frozen=True)
class OpenedAsk:
    """A signed ask or study out of its box, and how its reply is to be sealed."""

    raw: bytes
    reply: Callable[[bytes], bytes]


def opened_ask(keys: Identity, party: str, box: bytes, purpose: Purpose = "ask") -> OpenedAsk:
    """What is in a box for this party and purpose; Malformed whatever else it is. Nothing about who wrote it is known
    yet: anybody can seal to a pinned key."""
    context = _context(purpose, party)
    start = len(_MAGIC) + _LENGTH.size
    if box[: len(_MAGIC)] != _MAGIC or len(box) < start:
        raise Malformed(
            f"{_WORDS[purpose]} between organisations comes in a sealed box, and this is none", code="sealed"
        )
    (length,) = _LENGTH.unpack(box[len(_MAGIC) : start])
    key = keys.open(box[start : start + length], context)
    if len(key) != _KEY_BYTES:
        raise Malformed(f"the key of a box has {_KEY_BYTES} bytes, found {len(key)}", code="sealed")
    inside = unlock(key, box[start + length :], context)
    receiver = PublicIdentity.from_sealing(inside[:SEALING_BYTES])
    return OpenedAsk(inside[SEALING_BYTES:], lambda reply: receiver.seal(reply, _reply_context(party)))


def _opened_reply(keys: Identity, party: str, box: bytes) -> bytes:
    """Nothing where it does not open, which verifies as no reply: the party is lost, and nobody else."""
    try:
        return keys.open(box, _reply_context(party))
    except Malformed:
        return b""


_WORDS: Mapping[Purpose, str] = {"ask": "an ask", "study": "a packed study"}


def _context(purpose: Purpose, party: str) -> bytes:
    return encode([f"sealed {purpose}", party])


def _reply_context(party: str) -> bytes:
    return encode(["sealed reply", party])

"""Asks, studies and replies sealed between the coordinator and a site: their carrier sees only sizes and times.

Promise    What is sent is a box for its receiver, signed inside. The carrier can read no value, name or path, nor the
           study's hash or the run's id, even where values are entrusted to the coordinator. A box is bound to its
           purpose: one with a study does not open as an ask, nor the other way round.
Against    Those who run the relay, record the traffic or change it. Seals are post-quantum hybrids
           (`comity.crypto.sealing`); an altered box does not open, and the signatures inside name the author.

    ask      a fresh AES-256-GCM key, sealed to the site's pinned key by HPKE. It encrypts the signed ask and the
             coordinator's fresh key for the replies, and nothing else, so making the box again gives the same bytes
    study    the same, with the packed study in place of the ask
    reply    sealed by HPKE to that fresh key. Its secret half exists only in the coordinator's memory while it waits:
             no pinned key opens a recorded reply later

Limit      The site's pinned key opens a recorded ask or study. What only one site may see in it (a dealer's values,
           letters of others) is sealed inside to a key of the run.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from comity.crypto.sealing import SEALING_BYTES, Identity, PublicIdentity, lock, unlock
from comity.entropy import fresh_seed
from comity.errors import Malformed, Refused
from comity.federation.messages.channel import NO_TIMEOUT, Channel, Message, PendingAsk, Timeouts
from comity.federation.messages.codec import encode

_MAGIC = b"CMS1"
_LENGTH = struct.Struct(">H")
_KEY_BYTES = 32


Purpose = Literal["ask", "study"]


class SealedChannel:
    """A channel that sends boxes over another channel. `roster` pins the keys of the parties."""

    def __init__(self, channel: Channel, roster: Mapping[str, PublicIdentity]) -> None:
        self._channel = channel
        self._roster = roster

    def ask(self, messages: Mapping[str, Message], *, timeouts: Timeouts = NO_TIMEOUT) -> PendingAsk:
        boxes = seal_messages(messages, self._roster)
        asking = self._channel.ask(boxes.messages, timeouts=timeouts)
        asking.open_with(boxes.open_reply)
        return asking


@dataclass(frozen=True)
class Boxes:
    """Sealed messages, and `open_reply` for their replies, with a key that only this process has."""

    messages: Mapping[str, Message]
    open_reply: Callable[[str, bytes], bytes]


def seal_messages(
    messages: Mapping[str, Message], roster: Mapping[str, PublicIdentity], purpose: Purpose = "ask"
) -> Boxes:
    """Seal each message to the key that `roster` pins for its party."""
    for party in messages:
        if party not in roster:
            raise Refused(f"{party} has no pinned key in the roster; pin it in the study", code="stranger")
    keys = Identity(fresh_seed())
    answers = keys.public.sealing()
    boxes = {party: _seal(roster[party], _context(purpose, party), make, answers) for party, make in messages.items()}
    return Boxes(boxes, lambda party, box: _open_reply(keys, party, box))


def _seal(receiver: PublicIdentity, context: bytes, make: Message, answers: bytes) -> Message:
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
    """A signed ask or study out of its box; `seal_reply` seals the reply to the sender."""

    raw: bytes
    seal_reply: Callable[[bytes], bytes]


def open_ask(keys: Identity, party: str, box: bytes, purpose: Purpose = "ask") -> OpenedAsk:
    """Open a box for this party and purpose; Malformed if it is anything else. Its author is not known yet: anyone can
    seal to a pinned key."""
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


def _open_reply(keys: Identity, party: str, box: bytes) -> bytes:
    """Empty if the box does not open, which fails to verify: only this party is lost."""
    try:
        return keys.open(box, _reply_context(party))
    except Malformed:
        return b""


_WORDS: Mapping[Purpose, str] = {"ask": "an ask", "study": "a packed study"}


def _context(purpose: Purpose, party: str) -> bytes:
    return encode([f"sealed {purpose}", party])


def _reply_context(party: str) -> bytes:
    return encode(["sealed reply", party])

"""What crosses the relay: the subjects of each party, and frames that carry messages in pieces.

Subjects   Each party has two: the coordinator alone publishes at one, the party alone at the other. There is no third,
           no wildcard and no inbox. The relay enforces this (`server`); nothing here does.
Frames     A frame has a kind, an id, a number and a body. A short message travels in the frame that announces it. The
           receiver pulls a longer one piece by piece, a few at a time, because a bus drops what a slow receiver does
           not take. So neither end, nor the relay, holds more of it than a window.
Promise    A message's id is the hash of its bytes, and the receiver checks it on the whole message: pieces of two
           messages never mix. Nothing more is trusted here, because messages carry their authors' signatures.
Pipe       The same frames travel between the two processes of a site: one talks to the relay, the other answers. A step
           can hold the interpreter's lock for longer than a coordinator waits for a sign of life, so a separate process
           sends these signs.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from comity.errors import BadInput
from comity.federation.declare.consortium import MAX_NAME_LENGTH, fold, is_party_name

COORDINATOR = "coordinator"
RELAY = "relay"


def checked_name(name: str) -> str:
    """A member's name, which stands in subjects, in certificates and in file names: what means anything special in one
    of them can't be part of it."""
    if not is_party_name(name):
        raise BadInput(
            f"a member's name has 1 to {MAX_NAME_LENGTH} letters of a to z, digits, - and _, and begins with a letter "
            f"or digit; found {ascii(name)[:80]}",
            code="name",
            key="party",
        )
    return name


def checked_party(name: str) -> str:
    """A name that a party may have: the coordinator's and the relay's are theirs in any case of letters, because file
    systems differ in whether they tell one from the other."""
    if fold(checked_name(name)) in (COORDINATOR, RELAY):
        raise BadInput(f"{name!r} is no name for a party; choose another", code="name", key="party")
    return name


def ask_subject(party: str) -> str:
    """Where the coordinator asks `party`: it alone publishes here, the party alone listens."""
    return f"comity.ask.{party}"


def reply_subject(party: str) -> str:
    """Where `party` replies: it alone publishes here, the coordinator alone listens."""
    return f"comity.reply.{party}"


PIECE = 256 << 10
"""Bytes that are pulled at once."""
SHORT = 64 << 10
"""Bytes of a message that goes with its announcement."""
WINDOW = 4
"""Pieces of one message that are on their way."""
ID_BYTES = 16
_HEAD = struct.Struct(">B16sQ")
LONGEST = PIECE + _HEAD.size + 256
"""Bytes of the longest frame, and what the relay carries at most."""


class Kind(IntEnum):
    ASK = 1  # id: the message. number: its size. body: the message, at first and where it is short
    PULL = 2  # id: the message that a piece is wanted of. number: which piece
    PIECE = 3  # id: the message. number: which piece. body: its bytes
    HAVE = 4  # id: the ask, whose message arrived whole
    ALIVE = 5  # id: the ask, which is known here and waits or is worked on
    REPLY = 6  # id: the ask. number: size of the reply. body: the reply's id, then the reply where it is short
    FAILED = 7  # id: the ask, which this site could not work on. body: a short public word
    DONE = 8  # id: the ask, whose reply is there or wanted no more
    STUDY = 9  # as ASK, of a packed study; the reply says that it arrived


SIZE, FRAME, UNTRUE = b"size", b"frame", b"untrue"
"""Why something is not worked on: too large, no frame, or another message than was announced."""


@dataclass(frozen=True)
class Frame:
    kind: Kind
    id: bytes
    number: int = 0
    body: bytes | memoryview = b""

    def to_bytes(self) -> bytes:
        return _HEAD.pack(self.kind, self.id, self.number) + self.body

    @classmethod
    def of(cls, raw: bytes) -> Frame | None:
        """The frame in these bytes, or None: what is not a frame is dropped."""
        try:
            kind, name, number = _HEAD.unpack_from(raw)
            return cls(Kind(kind), name, number, memoryview(raw)[_HEAD.size :])
        except (struct.error, ValueError):
            return None


def id_of(message: bytes) -> bytes:
    """The same message has the same name, so that asking again is asking for the same thing."""
    return hashlib.sha256(message).digest()[:ID_BYTES]


def piece_of(message: bytes, number: int) -> memoryview:
    return memoryview(message)[number * PIECE : (number + 1) * PIECE]


class Pulling:
    """A message that is pulled. Pieces are taken in order, and handed on as they come; where one is missing, pulling
    goes back to it at the next beat."""

    def __init__(self, name: bytes, size: int) -> None:
        self.id = name
        self.size = size
        self._state = hashlib.sha256()
        self._next = self._asked = 0
        self._seen = -1

    @property
    def is_whole(self) -> bool:
        return self._next * PIECE >= self.size

    @property
    def is_true(self) -> bool:
        """Whether what was put together is what its name says."""
        return self.is_whole and self._state.digest()[:ID_BYTES] == self.id

    @property
    def under_way(self) -> int:
        """Pieces that were asked for and have not come."""
        return max(0, self._asked - self._next)

    def wanted(self, room: int = WINDOW) -> Iterator[int]:
        """The pieces to pull now, no more than there is room for."""
        last = min(-(-self.size // PIECE), self._next + WINDOW)
        while self._asked < last and room > 0:
            room -= 1
            self._asked += 1
            yield self._asked - 1

    def takes(self, number: int, body: bytes | memoryview) -> bool:
        """Whether this is the next piece; it counts then, and whoever pulls keeps it."""
        if number != self._next or self.is_whole or len(body) != min(PIECE, self.size - number * PIECE):
            return False
        self._state.update(body)
        self._next += 1
        return True

    def again(self) -> None:
        """At each beat: where nothing came since the last, pull again what is missing."""
        if self._next == self._seen:
            self._asked = self._next
        self._seen = self._next


_LENGTH = struct.Struct(">I")


def packed(frame: Frame) -> bytes:
    raw = frame.to_bytes()
    return _LENGTH.pack(len(raw)) + raw


def frames(line: socket.socket) -> Iterator[Frame]:
    """What the other end says, until it is gone."""
    with line.makefile("rb", buffering=LONGEST) as file:
        while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
            frame = Frame.of(file.read(_LENGTH.unpack(head)[0]))
            if frame is None:
                return
            yield frame


async def next_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next that the other end says; None when it is gone."""
    try:
        head = await reader.readexactly(_LENGTH.size)
        return Frame.of(await reader.readexactly(_LENGTH.unpack(head)[0]))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None

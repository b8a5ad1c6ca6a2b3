"""What travels over the bus: frames, and messages in pieces.

A frame has a kind, an id, a number and a body. A short message goes with the frame that announces it; of a longer one
the receiver pulls the pieces, a few at a time, because a bus drops what a slow receiver does not take. So neither end
nor the relay holds more of it than a window. A message is named by the hash of its bytes, and put together it must
have that hash: pieces of two messages never mix. Nothing here is trusted beyond that: messages carry the signatures of
those who wrote them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

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

"""What crosses the relay: the subjects of each party, and frames that carry messages in pieces.

Subjects   Each party has two: the coordinator alone publishes at one, the party alone at the other. There is no third,
           no wildcard and no inbox. The relay enforces this (`server`); nothing here does.
Frames     A frame has a kind, an id, a number and a body. A short message travels in the frame that announces it. The
           first pieces of a longer one follow that frame unasked, as many as it says, and the receiver pulls the others
           piece by piece, because a bus drops what a slow receiver does not take. So neither end, nor the relay, holds
           more of it than a window. The window doubles each time that all of it arrives, so a message that crosses a
           wide area waits for few replies.
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

# Subjects.


def require_member_name(name: str) -> str:
    """Return a member's name, or refuse it. It appears in subjects, configurations and file names, so it has no
    character with a special meaning in any of them."""
    if not is_party_name(name):
        raise BadInput(
            f"a member's name has 1 to {MAX_NAME_LENGTH} letters of a to z, digits, - and _, and begins with a letter "
            f"or digit; found {ascii(name)[:80]}",
            code="name",
            key="party",
        )
    return name


def require_party_name(name: str) -> str:
    """Return a party's name, or refuse it. The names of coordinator and relay are reserved in upper and lower case,
    because some file systems do not distinguish them."""
    if fold(require_member_name(name)) in (COORDINATOR, RELAY):
        raise BadInput(f"{name!r} is reserved and cannot name a party; choose another name", code="name", key="party")
    return name


def ask_subject(party: str) -> str:
    """Where the coordinator asks `party`: the coordinator alone publishes here, the party alone subscribes."""
    return f"comity.ask.{party}"


def reply_subject(party: str) -> str:
    """Where `party` replies: the party alone publishes here, the coordinator alone subscribes."""
    return f"comity.reply.{party}"


# Frames.

PIECE_BYTES = 256 << 10
INLINE_BYTES = 64 << 10
"""A message up to this size travels in the frame that announces it."""
WINDOW_PIECES, MAX_WINDOW_PIECES = 4, 64
"""Pieces of one message in flight at once: at first and after a loss, and at most."""
MAX_PUSHED_PIECES = 32
"""Pieces of one message that are sent unasked."""
ID_BYTES = 16
_HEAD = struct.Struct(">B16sQBB")
MAX_FRAME_BYTES = PIECE_BYTES + _HEAD.size + 256
"""The relay carries no larger payload."""


class Kind(IntEnum):
    ASK = 1  # id: the message. number: its size. body: the message, if it is short and this is the first frame
    PULL = 2  # id: the message of which a piece is requested. number: which piece
    PIECE = 3  # id: the message. number: which piece. body: its bytes
    HAVE = 4  # id: the ask, whose message arrived whole
    ALIVE = 5  # id: the ask, which the site knows and which waits or is being answered
    REPLY = 6  # id: the ask. number: the reply's size. body: the reply's id, then the reply if it is short
    FAILED = 7  # id: the ask, which the site could not answer. body: a code
    DONE = 8  # id: the ask, whose reply has arrived or is no longer wanted
    STUDY = 9  # as ASK, with a packed study; the reply says that it arrived


TOO_LARGE, NOT_A_FRAME, WRONG_HASH = b"size", b"frame", b"untrue"
"""Why a site drops something: too large, not a frame, or not the message that was announced."""


@dataclass(frozen=True)
class Frame:
    """`pushed` is how many pieces of an announced message follow unasked; `room`, in an ask, how many of its reply."""

    kind: Kind
    id: bytes
    number: int = 0
    body: bytes | memoryview = b""
    pushed: int = 0
    room: int = 0

    def to_bytes(self) -> bytes:
        return _HEAD.pack(self.kind, self.id, self.number, self.pushed, self.room) + self.body

    @classmethod
    def of(cls, raw: bytes) -> Frame | None:
        """The frame in these bytes, or None if they are not a frame."""
        try:
            kind, name, number, pushed, room = _HEAD.unpack_from(raw)
            return cls(Kind(kind), name, number, memoryview(raw)[_HEAD.size :], pushed, room)
        except (struct.error, ValueError):
            return None


def message_id(message: bytes) -> bytes:
    """The same message has the same id, so asking twice asks for the same thing."""
    return hashlib.sha256(message).digest()[:ID_BYTES]


def count_pieces(size: int) -> int:
    return -(-size // PIECE_BYTES)


def get_piece(message: bytes, number: int) -> memoryview:
    return memoryview(message)[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]


class PulledMessage:
    """A message that its receiver pulls. It accepts pieces in order and leaves storing them to the caller; after a loss
    the next repetition pulls again from the missing piece. `pushed` is how many pieces the sender sends unasked."""

    def __init__(self, name: bytes, size: int, pushed: int = 0) -> None:
        self.id = name
        self.size = size
        self._state = hashlib.sha256()
        self._next = 0
        self._asked = min(pushed, MAX_PUSHED_PIECES, count_pieces(size))
        self._window = max(WINDOW_PIECES, self._asked)
        self._seen = -1

    @property
    def is_whole(self) -> bool:
        return self._next * PIECE_BYTES >= self.size

    @property
    def is_intact(self) -> bool:
        """Whether the whole message has the announced hash."""
        return self.is_whole and self._state.digest()[:ID_BYTES] == self.id

    @property
    def in_flight(self) -> int:
        """Pieces that were requested and have not arrived."""
        return max(0, self._asked - self._next)

    def next_pieces(self, room: int = MAX_WINDOW_PIECES) -> Iterator[int]:
        """The pieces to request now, at most `room` of them; they count as in flight."""
        last = min(count_pieces(self.size), self._next + self._window)
        while self._asked < last and room > 0:
            room -= 1
            self._asked += 1
            yield self._asked - 1

    def accept(self, number: int, body: bytes | memoryview) -> bool:
        """Count a piece if it is the next one; the caller then stores it."""
        if number != self._next or self.is_whole or len(body) != min(PIECE_BYTES, self.size - number * PIECE_BYTES):
            return False
        self._state.update(body)
        self._next += 1
        # A piece that was pushed may arrive after its request was given up.
        self._asked = max(self._asked, self._next)
        self._window = min(self._window + 1, MAX_WINDOW_PIECES)
        return True

    def retry(self) -> None:
        """At each repetition: if nothing arrived since the last one, request the missing pieces again."""
        if self._next == self._seen:
            self._asked, self._window = self._next, WINDOW_PIECES
        self._seen = self._next


# The pipe between the two processes of a site.

_LENGTH = struct.Struct(">I")


def pack_frame(frame: Frame) -> bytes:
    raw = frame.to_bytes()
    return _LENGTH.pack(len(raw)) + raw


def read_frames(line: socket.socket) -> Iterator[Frame]:
    """Frames from the other process, until it closes the pipe."""
    with line.makefile("rb", buffering=MAX_FRAME_BYTES) as file:
        while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
            frame = Frame.of(file.read(_LENGTH.unpack(head)[0]))
            if frame is None:
                return
            yield frame


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame from the other process; None once it has closed the pipe."""
    try:
        head = await reader.readexactly(_LENGTH.size)
        return Frame.of(await reader.readexactly(_LENGTH.unpack(head)[0]))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None

"""Two sides that send each other one message per round, and bits as they are sent.

A two-sided computation is a generator on each side: it yields the message of a round and is sent the other side's
message of the same round. A side with nothing to say yields no bytes. What a generator yields depends only on its
arguments, secrets included, and on the messages that it was sent. A carrier may therefore rebuild one after a restart,
from the same arguments and the stored messages, but must never replace a stored message by another. Messages are
neither sealed nor signed here: the carrier's signatures detect an altered message of the right form.

In memory a bit is a uint8 that is 0 or 1; in a message eight bits make a byte, the first bit lowest. The unused bits of
the last byte are zero, so a list of bits has one encoding.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.errors import Malformed

Result = TypeVar("Result")
OfCurator = TypeVar("OfCurator")
OfParties = TypeVar("OfParties")

Exchange = Generator[bytes, bytes, Result]


class Side(IntEnum):
    """The curator, and the representative of the parties."""

    CURATOR = 0
    PARTIES = 1


@dataclass(frozen=True)
class Transcript(Generic[OfCurator, OfParties]):
    """The result of each side, and every message that it was sent, by round."""

    curator: OfCurator
    parties: OfParties
    sent_to_curator: tuple[bytes, ...]
    sent_to_parties: tuple[bytes, ...]

    @property
    def rounds(self) -> int:
        return len(self.sent_to_curator)

    @property
    def bytes(self) -> int:
        """In both directions."""
        return sum(map(len, self.sent_to_curator + self.sent_to_parties))


def run_locally(curator: Exchange[OfCurator], parties: Exchange[OfParties]) -> Transcript[OfCurator, OfParties]:
    """Both sides in one process, message by message."""
    sent_to_curator: list[bytes] = []
    sent_to_parties: list[bytes] = []
    curator_done, curator_message, curator_result = _advance(curator, None)
    parties_done, parties_message, parties_result = _advance(parties, None)
    while not (curator_done or parties_done):
        sent_to_curator.append(parties_message)
        sent_to_parties.append(curator_message)
        curator_done, curator_message, curator_result = _advance(curator, sent_to_curator[-1])
        parties_done, parties_message, parties_result = _advance(parties, sent_to_parties[-1])
    if curator_done != parties_done or curator_result is None or parties_result is None:
        raise ValueError("the two sides were expected to end in the same round")
    return Transcript(curator_result[0], parties_result[0], tuple(sent_to_curator), tuple(sent_to_parties))


def _advance(side: Exchange[Result], message: bytes | None) -> tuple[bool, bytes, tuple[Result] | None]:
    try:
        return False, next(side) if message is None else side.send(message), None
    except StopIteration as end:
        return True, b"", (end.value,)


Bits = NDArray[np.uint8]
Words = NDArray[np.uint64]

# The three swaps that transpose eight rows of eight bits in one 64-bit word: by 1, 2 and 4 places.
_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))


def pack(bits: Bits) -> bytes:
    return np.packbits(bits, axis=None, bitorder="little").tobytes()


def unpack(message: bytes, count: int) -> Bits:
    """The `count` bits of a message that holds exactly that many."""
    if len(message) != -(-count // 8):
        raise Malformed(f"{count} bits in {-(-count // 8)} bytes were expected, found {len(message)} bytes")
    bits = np.unpackbits(np.frombuffer(message, np.uint8), bitorder="little")
    if bits[count:].any():
        raise Malformed(f"the unused bits after the {count} declared ones were expected to be zero")
    return bits[:count]


def draw_bits(stream: Stream, count: int) -> Bits:
    """`count` independent uniform bits."""
    words = stream.words(-(-count // 64))
    return np.unpackbits(words.view(np.uint8), bitorder="little")[:count]


def to_bits(words: Words, count: int) -> Bits:
    """The lowest `count` bits of each word, lowest first: shape (count, words)."""
    octets = np.ascontiguousarray(words, "<u8").view(np.uint8).reshape(-1, 8)
    return np.ascontiguousarray(np.unpackbits(octets, axis=1, bitorder="little")[:, :count].T)


def transpose(matrix: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The transpose of a packed bit matrix of 8r rows and c bytes (8c columns): 8c rows and r bytes."""
    rows, width = matrix.shape
    blocks = matrix.reshape(rows // 8, 8, width).transpose(2, 0, 1)
    words = np.ascontiguousarray(blocks).view("<u8")[..., 0]
    for shift, mask in _SWAPS:
        moved = (words ^ (words >> np.uint64(shift))) & np.uint64(mask)
        words = words ^ moved ^ (moved << np.uint64(shift))
    octets = np.ascontiguousarray(words, "<u8")[..., None].view(np.uint8)
    return np.ascontiguousarray(octets.transpose(0, 2, 1)).reshape(8 * width, rows // 8)

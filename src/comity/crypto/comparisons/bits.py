"""Arrays of bits, their packed form on the wire, and the transpose of a packed bit matrix.

In memory a bit is a uint8 that is 0 or 1; on the wire eight bits make a byte, the first bit lowest. The unused bits of
the last byte are zero, so that a list of bits has one encoding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.errors import Malformed

Bits = NDArray[np.uint8]
Words = NDArray[np.uint64]

# The three exchanges that transpose eight rows of eight bits held in one 64-bit word: by 1, 2 and 4 places.
_EXCHANGES = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))


def pack(bits: Bits) -> bytes:
    return np.packbits(bits, axis=None, bitorder="little").tobytes()


def unpack(message: bytes, count: int) -> Bits:
    """The `count` bits of a message of exactly that many; anything else is refused."""
    if len(message) != -(-count // 8):
        raise Malformed(f"{count} bits in {-(-count // 8)} bytes were expected, found {len(message)} bytes")
    bits = np.unpackbits(np.frombuffer(message, np.uint8), bitorder="little")
    if bits[count:].any():
        raise Malformed(f"the unused bits after the {count} declared ones were expected to be zero")
    return bits[:count]


def uniform(stream: Stream, count: int) -> Bits:
    """`count` independent uniform bits."""
    words = stream.words(-(-count // 64))
    return np.unpackbits(words.view(np.uint8), bitorder="little")[:count]


def binary(words: Words, count: int) -> Bits:
    """The lowest `count` bits of each word, lowest first: shape (count, words)."""
    octets = np.ascontiguousarray(words, "<u8").view(np.uint8).reshape(-1, 8)
    return np.ascontiguousarray(np.unpackbits(octets, axis=1, bitorder="little")[:, :count].T)


def transpose(matrix: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A packed bit matrix of 8r rows and c bytes (8c columns) turned into one of 8c rows and r bytes."""
    rows, width = matrix.shape
    blocks = matrix.reshape(rows // 8, 8, width).transpose(2, 0, 1)
    words = np.ascontiguousarray(blocks).view("<u8")[..., 0]
    for shift, mask in _EXCHANGES:
        moved = (words ^ (words >> np.uint64(shift))) & np.uint64(mask)
        words = words ^ moved ^ (moved << np.uint64(shift))
    octets = np.ascontiguousarray(words, "<u8")[..., None].view(np.uint8)
    return np.ascontiguousarray(octets.transpose(0, 2, 1)).reshape(8 * width, rows // 8)

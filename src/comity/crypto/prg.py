"""Masks over Z_2^32 and Z_2^64, expanded from seeds.

A mask is indistinguishable from uniform to whoever lacks its seed (AES-128 in counter mode). A seed makes one mask
ever: callers derive it from the run, the release and the index.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream

Words = NDArray[np.uint32] | NDArray[np.uint64]

# Words are made and added in pieces that stay in the cache, in memory that is kept: fresh pages cost as much as masks.
_PIECE = 1 << 18
_kept = threading.local()


def add(total: Words, seed: bytes) -> None:
    """Add the seed's mask to a contiguous vector, in place, modulo its word size."""
    _apply(total, seed, np.add)


def subtract(total: Words, seed: bytes) -> None:
    """Take the seed's mask off again."""
    _apply(total, seed, np.subtract)


def _buffer() -> NDArray[np.uint8]:
    """One per thread."""
    if not hasattr(_kept, "buffer"):
        _kept.buffer = np.empty(_PIECE, np.uint8)
    found: NDArray[np.uint8] = _kept.buffer
    return found


def _apply(total: Words, seed: bytes, operation: np.ufunc) -> None:
    if total.dtype.str not in ("<u4", "<u8") or not total.flags.c_contiguous:
        raise TypeError(f"masks are for contiguous vectors of 32- or 64-bit words, found {total.dtype}")
    stream, flat = Stream(seed), total.reshape(-1)
    piece, buffer = _PIECE // flat.itemsize, _buffer()
    for start in range(0, flat.size, piece):
        part = flat[start : start + piece]
        room = buffer[: part.nbytes]
        stream.fill(room)
        operation(part, room.view(part.dtype), out=part)

"""Masks over Z_2^32 and Z_2^64, expanded from seeds.

A mask is indistinguishable from uniform to whoever lacks its seed. It is the encryption of zeros by AES-128 in XTS mode
under the seed's two keys, unit after unit, the unit's number being its tweak: block j of a unit is E₁(T) ⊕ T with
T = E₂(unit)·α^j. XTS is a tweakable cipher (P. Rogaway, Efficient instantiations of tweakable blockciphers and
refinements to modes OCB and PMAC, 2004): under different tweaks, zeros encrypt to values as good as independent uniform
ones, up to about q²/2^125 for q blocks if AES-128 is a pseudorandom permutation, which is the bound of counter mode but
for a small factor. It is chosen for its speed: 1.8 times that of counter mode where there are wide AES instructions.

A seed makes one mask ever: callers derive it from the run, the release and the index.
"""

from __future__ import annotations

import threading

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

Words = NDArray[np.uint32] | NDArray[np.uint64]

SEED_BYTES = 32
_BLOCK = 16

# A unit is made and added while it is in the second cache, in memory that is kept: fresh pages cost as much as masks.
# It is long enough that starting the cipher costs little, and far below the 2^20 blocks that XTS allows.
_UNIT = 1 << 19
_ZEROS = memoryview(bytes(_UNIT))
# The cipher wants room for a block more than it writes.
_ROOM = _UNIT + _BLOCK
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
        _kept.buffer = np.empty(_ROOM, np.uint8)
    found: NDArray[np.uint8] = _kept.buffer
    return found


def _apply(total: Words, seed: bytes, operation: np.ufunc) -> None:
    if total.dtype.str not in ("<u4", "<u8") or not total.flags.c_contiguous:
        raise TypeError(f"masks are for contiguous vectors of 32- or 64-bit words, found {total.dtype}")
    if len(seed) != SEED_BYTES:
        raise ValueError(f"a mask needs a seed of {SEED_BYTES} bytes, found {len(seed)}")
    keys, flat, length = algorithms.AES(seed), total.reshape(-1), _UNIT // total.itemsize
    buffer = _buffer()
    room, words = memoryview(buffer.data), buffer[:_UNIT].view(total.dtype)
    for unit, start in enumerate(range(0, flat.size, length)):
        part = flat[start : start + length]
        # Whole blocks: a shorter last one would be made from the one before it.
        made = -(-part.nbytes // _BLOCK) * _BLOCK
        cipher = Cipher(keys, modes.XTS(unit.to_bytes(_BLOCK, "little"))).encryptor()
        cipher.update_into(_ZEROS[:made], room[: made + _BLOCK])
        operation(part, words[: part.size], out=part)

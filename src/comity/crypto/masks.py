"""Masks over Z_2^32 and Z_2^64, expanded from seeds.

A mask is indistinguishable from uniform to anyone who lacks its seed. It is the encryption of zeros by AES-128 in XTS
mode under the seed's two keys, unit after unit, with the unit's number as tweak: block j of a unit is E₁(T) ⊕ T with
T = E₂(unit)·α^j. XTS is a tweakable cipher (P. Rogaway, Efficient instantiations of tweakable blockciphers and
refinements to modes OCB and PMAC, 2004): under different tweaks, zeros encrypt to values as good as independent uniform
ones, up to about q²/2^125 for q blocks if AES-128 is a pseudorandom permutation, which is the bound of counter mode but
for a small factor. XTS is 1.8 times as fast as counter mode on processors with wide AES instructions.

A seed makes only one mask: callers derive it from the run, the release and the index.
"""

from __future__ import annotations

import threading

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

Words = NDArray[np.uint32] | NDArray[np.uint64]

SEED_BYTES = 32
_BLOCK = 16

# A unit is made and added while it is in the second cache, in memory that is reused: fresh pages cost as much as masks.
# It is long enough to make starting the cipher cheap, and far below the 2^20 blocks that XTS allows.
_UNIT = 1 << 19
_ZEROS = memoryview(bytes(_UNIT))
# The cipher needs room for one more block than it writes.
_BUFFER_BYTES = _UNIT + _BLOCK
_reused = threading.local()


def add(total: Words, seed: bytes) -> None:
    """Adds the seed's mask to a contiguous vector, in place, modulo its word size."""
    _apply(total, seed, np.add)


def subtract(total: Words, seed: bytes) -> None:
    """Removes the seed's mask."""
    _apply(total, seed, np.subtract)


def _buffer() -> NDArray[np.uint8]:
    """One per thread."""
    if not hasattr(_reused, "buffer"):
        _reused.buffer = np.empty(_BUFFER_BYTES, np.uint8)
    found: NDArray[np.uint8] = _reused.buffer
    return found


def _apply(total: Words, seed: bytes, operation: np.ufunc) -> None:
    if total.dtype.str not in ("<u4", "<u8") or not total.flags.c_contiguous:
        raise TypeError(f"masks are for contiguous vectors of 32- or 64-bit words, found {total.dtype}")
    if len(seed) != SEED_BYTES:
        raise ValueError(f"a mask needs a seed of {SEED_BYTES} bytes, found {len(seed)}")
    keys, flat, length = algorithms.AES(seed), total.reshape(-1), _UNIT // total.itemsize
    buffer = _buffer()
    target, words = memoryview(buffer.data), buffer[:_UNIT].view(total.dtype)
    for unit, start in enumerate(range(0, flat.size, length)):
        part = flat[start : start + length]
        # Whole blocks: XTS would make a shorter last one from the one before it.
        made = -(-part.nbytes // _BLOCK) * _BLOCK
        cipher = Cipher(keys, modes.XTS(unit.to_bytes(_BLOCK, "little"))).encryptor()
        cipher.update_into(_ZEROS[:made], target[: made + _BLOCK])
        operation(part, words[: part.size], out=part)

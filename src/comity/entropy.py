"""Randomness as AES-128-CTR streams: secret ones from the operating system's entropy, public ones from a label.

    Stream.public("my split", 7).permutation(100)     # the same order on every machine

A `Stream` expands 32 bytes into any number of uniform 64-bit words, at gigabytes per second, and derives the few
distributions that *public* randomness needs (splits, generated records, random features). It draws no privacy noise:
`comity.privacy.randomness` does. Use a seed for one stream only; `derive` separates purposes by HKDF.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from comity.special import ndtri

__all__ = ["Shape", "Stream", "derive", "fresh_seed"]

_NO_SALT = bytes(32)
_CHUNK = 1 << 18
# A view, because slicing bytes would copy them.
_ZEROS = memoryview(bytes(_CHUNK))

Shape = int | tuple[int, ...]


def fresh_seed() -> bytes:
    """32 bytes from the operating system."""
    return os.urandom(32)


def derive(secret: bytes, *label: str | int | bytes) -> bytes:
    """32 bytes for one purpose: HKDF-SHA256 with the length-prefixed label as context, so labels can't collide."""
    info = b"".join([len(part).to_bytes(4, "big") + part for part in map(_label, label)])
    # The two steps of RFC 5869 without a salt, for the length of one block.
    return hmac.digest(hmac.digest(_NO_SALT, secret, "sha256"), info + b"\x01", "sha256")


def _label(part: str | int | bytes) -> bytes:
    if isinstance(part, bytes):
        return b"b" + part
    return (b"i%d" % part) if isinstance(part, int) else b"s" + part.encode()


class Stream:
    """Uniform words from a 32-byte seed; the same seed gives the same words on every machine."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise ValueError(f"a stream needs a seed of 32 bytes, found {len(seed)}")
        # The seed gives both key and first counter, so a seed is never used for two streams.
        self._encryptor = Cipher(algorithms.AES(seed[:16]), modes.CTR(seed[16:])).encryptor()

    @classmethod
    def public(cls, *label: str | int | bytes) -> Stream:
        """Public, reproducible randomness that a label names (a study's hash, a run, a purpose)."""
        return cls(derive(b"comity public randomness", *label))

    def bytes(self, count: int) -> bytes:
        return self.words(-(-count // 8)).tobytes()[:count]

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite a contiguous array of bytes."""
        view, count = memoryview(out.data), len(out)
        for start in range(0, count, _CHUNK):
            size = min(_CHUNK, count - start)
            self._encryptor.update_into(_ZEROS[:size], view[start : start + size])

    def words(self, count: int) -> NDArray[np.uint64]:
        """`count` independent uniform 64-bit words."""
        out = np.empty(8 * count, np.uint8)
        self.fill(out)
        return out.view("<u8")

    def uniform(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Uniform on the open interval (0, 1): the middle of one of 2^53 equal cells."""
        words = self.words(_size(shape)) >> np.uint64(11)
        return ((words.astype(np.float64) + 0.5) * 2.0**-53).reshape(shape)

    def normal(self, shape: Shape = ()) -> NDArray[np.float64]:
        """Standard normal, by inversion. For public randomness only."""
        return np.asarray(ndtri(self.uniform(shape)), np.float64)

    def integers(self, below: int, shape: Shape = ()) -> NDArray[np.int64]:
        """Uniform on 0 … below − 1; the bias of the multiplication is under below/2^53."""
        return np.floor(self.uniform(shape) * below).astype(np.int64)

    def permutation(self, count: int) -> NDArray[np.int64]:
        """A uniform order of 0 … count − 1 (sorting 64-bit words; ties have probability below count²/2^65)."""
        return np.argsort(self.words(count), kind="stable").astype(np.int64)

    def choice(self, weights: Sequence[float] | NDArray[np.float64], shape: Shape = ()) -> NDArray[np.int64]:
        """Indices drawn with probabilities proportional to `weights`."""
        edges = np.cumsum(np.asarray(weights, np.float64))
        return np.searchsorted(edges[:-1] / edges[-1], self.uniform(shape), side="right").astype(np.int64)


def _size(shape: Shape) -> int:
    return int(np.prod(shape)) if isinstance(shape, tuple) else int(shape)

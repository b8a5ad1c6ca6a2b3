"""Words modulo 2^48, 2^56 or 2^64 as they are sent: six, seven or eight bytes each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from comity.errors import Malformed

Words = NDArray[np.uint64]

_PARTS: Final[dict[int, dict[str, str]]] = {
    48: {"low": "<u4", "high": "<u2"},
    56: {"low": "<u4", "high": "<u2", "top": "|u1"},
    64: {"low": "<u4", "high": "<u4"},
}
WIDTHS: Final = tuple(_PARTS)


def packed_parts(bits: int) -> Mapping[str, str]:
    """The parts of packed words and their types."""
    if bits not in _PARTS:
        raise Malformed(f"words of {', '.join(map(str, WIDTHS))} bits were expected, found {bits}")
    return _PARTS[bits]


def pack_words(words: Words, bits: int) -> dict[str, NDArray[Any]]:
    """What is above `bits` is left out."""
    kinds, halves = packed_parts(bits), np.ascontiguousarray(words, "<u8").view("<u4")
    packed = {"low": halves[::2].copy(), "high": halves[1::2].astype(kinds["high"])}
    if "top" in kinds:
        packed["top"] = (halves[1::2] >> np.uint32(16)).astype(kinds["top"])
    return packed


def unpack_words(packed: Mapping[str, NDArray[Any]], count: int) -> Words:
    sizes = {name: part.size for name, part in packed.items()}
    if set(sizes.values()) != {count}:
        raise Malformed(f"{count} words were expected, found {sizes}", code="form")
    words = np.empty(count, "<u8")
    halves = words.view("<u4")
    halves[::2], halves[1::2] = packed["low"], packed["high"]
    if "top" in packed:
        halves[1::2] |= packed["top"].astype(np.uint32) << np.uint32(16)
    return words

"""Values to bytes and back, without pickle: canonical, self-delimiting, limited.

A message is the magic `CMY1` and one value. A value is a tag byte and its content:

    N T F        nothing, true, false
    i            length byte, then that many bytes of two's complement, shortest form
    f            8 bytes of an IEEE double
    s b          4-byte length, then UTF-8 text or raw bytes
    l            4-byte count, then the values
    d            4-byte count, then (text key, value) pairs in strictly rising order of key
    a            dtype code, number of axes, 8-byte sizes, then the elements in C order, little endian

Equal values give equal bytes, and bytes that are not the canonical form of their value are refused, so a digest of an
ask identifies it. Whatever the bytes, `decode` gives a value or `Malformed`, and allocates no more than a small
multiple of the message's length, itself limited.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from comity.errors import Malformed

MAGIC = b"CMY1"
LIMIT = 1 << 30
DEPTH = 16
ITEMS = 1 << 18
INTEGER_BYTES = 16
AXES = 8

_CODES = {"<f8": 0, "<f4": 1, "<i8": 2, "<u8": 3, "<i4": 4, "<u4": 5, "|i1": 6, "|u1": 7, "<i2": 8, "<u2": 9}
_DTYPES = {code: np.dtype(name) for name, code in _CODES.items()}

Value = Any  # None, bool, int, float, str, bytes, ndarray, list or dict of these


def encode(value: Value) -> bytes:
    """The one byte string of a value. A model, a frame or any other object never crosses: TypeError."""
    parts: list[bytes | memoryview] = [MAGIC]
    _put(value, parts, 0)
    return b"".join(parts)


def _put(value: Value, parts: list[bytes | memoryview], depth: int) -> None:
    if depth > DEPTH:
        raise TypeError(f"nested deeper than {DEPTH}")
    if value is None:
        parts.append(b"N")
    elif isinstance(value, bool | np.bool_):
        parts.append(b"T" if value else b"F")
    elif isinstance(value, int | np.integer):
        number = int(value)
        digits = number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
        if len(digits) > INTEGER_BYTES:
            raise TypeError(f"an integer of more than {INTEGER_BYTES} bytes does not cross a boundary")
        parts.append(b"i" + bytes([len(digits)]) + digits)
    elif isinstance(value, float | np.floating):
        parts.append(b"f" + struct.pack("<d", float(value)))
    elif isinstance(value, str):
        parts.append(b"s" + _counted(value.encode()))
    elif isinstance(value, bytes | bytearray | memoryview):
        raw = value if isinstance(value, bytes) else bytes(value)
        parts += [b"b" + len(raw).to_bytes(4, "big"), raw]
    elif isinstance(value, np.ndarray):
        code = _CODES.get(value.dtype.str)
        if code is None or value.ndim > AXES:
            raise TypeError(f"an array of {value.dtype} with {value.ndim} axes does not cross a boundary")
        sizes = struct.pack(f"<{value.ndim}Q", *value.shape)
        # Elements are copied once, into the message.
        elements = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
        parts += [b"a", bytes([code, value.ndim]), sizes, elements]
    elif isinstance(value, list | tuple):
        parts.append(b"l" + len(value).to_bytes(4, "big"))
        for item in value:
            _put(item, parts, depth + 1)
    elif isinstance(value, Mapping):
        if any(not isinstance(key, str) for key in value):
            raise TypeError("keys are texts")
        parts.append(b"d" + len(value).to_bytes(4, "big"))
        for key in sorted(value, key=str.encode):
            parts.append(_counted(key.encode()))
            _put(value[key], parts, depth + 1)
    else:
        raise TypeError(f"{type(value).__name__} does not cross a boundary")


def _counted(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


def decode(raw: bytes, *, limit: int = LIMIT) -> Value:
    """The value of a canonical message; `Malformed` for anything else. Arrays are read-only views of the message."""
    if len(raw) > limit:
        raise Malformed(f"a message of {len(raw)} bytes is over the limit of {limit}", code="too-large")
    reader = _Reader(bytes(raw))
    if reader.take(4) != MAGIC:
        raise _wrong("it does not begin with the magic bytes")
    value = reader.value(0)
    if reader.at != len(reader.raw):
        raise _wrong("bytes follow its end")
    return value


def leading_text(raw: bytes, *, most: int) -> str | None:
    """The text that the list in a message begins with, where there is one of up to so many bytes. The rest is not read
    and may be anything."""
    reader = _Reader(raw[: len(MAGIC) + 10 + most])
    try:
        begins = reader.take(len(MAGIC)) == MAGIC and reader.take(1) == b"l" and reader.count() > 0
        return reader.text() if begins and reader.take(1) == b"s" else None
    except Malformed:
        return None


def _wrong(why: str) -> Malformed:
    return Malformed(f"malformed message: {why}")


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0
        self.items = 0

    def take(self, count: int) -> bytes:
        if count > len(self.raw) - self.at:
            raise _wrong("it is truncated")
        self.at += count
        return self.raw[self.at - count : self.at]

    def count(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def text(self) -> str:
        try:
            return self.take(self.count()).decode()
        except UnicodeDecodeError as error:
            raise _wrong("a text is not UTF-8") from error

    def value(self, depth: int) -> Value:
        self.items += 1
        if depth > DEPTH or self.items > ITEMS:
            raise _wrong("it is nested too deeply or has too many items")
        tag = self.take(1)
        if tag == b"a":
            return self.array()
        if tag == b"l":
            return [self.value(depth + 1) for _ in range(self.count())]
        if tag == b"d":
            return self.mapping(depth)
        if tag == b"b":
            return self.take(self.count())
        if tag == b"s":
            return self.text()
        if tag == b"i":
            return self.integer()
        if tag == b"f":
            return struct.unpack("<d", self.take(8))[0]
        if tag in b"NTF":
            return {b"N": None, b"T": True, b"F": False}[tag]
        raise _wrong("a tag is unknown")

    def integer(self) -> int:
        raw = self.take(self.take(1)[0])
        number = int.from_bytes(raw, "big", signed=True)
        if not 0 < len(raw) <= INTEGER_BYTES or len(raw) != (number if number >= 0 else ~number).bit_length() // 8 + 1:
            raise _wrong("an integer is not in its shortest form")
        return number

    def mapping(self, depth: int) -> dict[str, Value]:
        out: dict[str, Value] = {}
        last: bytes | None = None
        for _ in range(self.count()):
            key = self.text()
            if last is not None and key.encode() <= last:
                raise _wrong("keys are not in rising order")
            last = key.encode()
            out[key] = self.value(depth + 1)
        return out

    def array(self) -> np.ndarray[Any, Any]:
        code, axes = self.take(2)
        dtype = _DTYPES.get(code)
        if dtype is None or axes > AXES:
            raise _wrong("an array has an unknown type or too many axes")
        shape = struct.unpack(f"<{axes}Q", self.take(8 * axes))
        if prod(max(size, 1) for size in shape) > LIMIT:
            raise _wrong("an array is too large")
        return np.frombuffer(self.take(dtype.itemsize * prod(shape)), dtype).reshape(shape)

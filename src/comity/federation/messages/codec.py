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

import hashlib
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
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


@dataclass(frozen=True, slots=True)
class Embedded:
    """A value that was encoded before, to stand inside of others: its bytes are made once."""

    message: bytes


def embed(value: Value, *, depth: int) -> Embedded:
    """A value to stand at most so deep inside of others."""
    parts: list[bytes | memoryview] = [MAGIC]
    _put(value, parts, depth)
    return Embedded(b"".join(parts))


def _put(value: Value, parts: list[bytes | memoryview], depth: int) -> None:
    # Texts, bytes and what holds them are nearly everything that crosses in numbers.
    kind = type(value)
    if kind is str:
        raw = value.encode()
        parts.append(b"s" + len(raw).to_bytes(4, "big") + raw)
    elif kind is bytes:
        parts.append(b"b" + len(value).to_bytes(4, "big"))
        parts.append(value)
    elif kind is dict:
        _put_mapping(value, parts, depth)
    elif kind is list:
        _put_list(value, parts, depth)
    else:
        _put_rarer(value, parts, depth)


def _check_depth(value: Collection[Value], depth: int) -> None:
    if value and depth >= DEPTH:
        raise TypeError(f"nested deeper than {DEPTH}")


def _put_list(value: list[Value] | tuple[Value, ...], parts: list[bytes | memoryview], depth: int) -> None:
    _check_depth(value, depth)
    parts.append(b"l" + len(value).to_bytes(4, "big"))
    for item in value:
        if type(item) is str:
            raw = item.encode()
            parts.append(b"s" + len(raw).to_bytes(4, "big") + raw)
        else:
            _put(item, parts, depth + 1)


def _put_mapping(value: Mapping[str, Value], parts: list[bytes | memoryview], depth: int) -> None:
    try:
        # The order of the keys' UTF-8 is that of their code points, in which Python compares.
        keys = sorted(value)
        raws = [key.encode() for key in keys]
    except (TypeError, AttributeError) as error:
        raise TypeError("keys are texts") from error
    _check_depth(value, depth)
    parts.append(b"d" + len(value).to_bytes(4, "big"))
    for key, raw in zip(keys, raws):
        item = value[key]
        if type(item) is bytes:
            parts.append(len(raw).to_bytes(4, "big") + raw + b"b" + len(item).to_bytes(4, "big"))
            parts.append(item)
        else:
            parts.append(len(raw).to_bytes(4, "big") + raw)
            _put(item, parts, depth + 1)


# A branch for each type that the codec writes.
def _put_rarer(value: Value, parts: list[bytes | memoryview], depth: int) -> None:  # noqa: C901
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
        raw = value.encode()
        parts.append(b"s" + len(raw).to_bytes(4, "big") + raw)
    elif isinstance(value, bytes | bytearray | memoryview):
        _put(bytes(value), parts, depth)
    elif isinstance(value, np.ndarray):
        code = _CODES.get(value.dtype.str)
        if code is None or value.ndim > AXES:
            raise TypeError(f"an array of {value.dtype} with {value.ndim} axes does not cross a boundary")
        sizes = struct.pack(f"<{value.ndim}Q", *value.shape)
        # Elements are copied once, into the message.
        elements = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
        parts += [b"a", bytes([code, value.ndim]), sizes, elements]
    elif isinstance(value, list | tuple):
        _put_list(value, parts, depth)
    elif isinstance(value, Mapping):
        _put_mapping(value, parts, depth)
    elif isinstance(value, Embedded):
        parts.append(memoryview(value.message)[len(MAGIC) :])
    else:
        raise TypeError(f"{type(value).__name__} does not cross a boundary")


def decode(raw: bytes, *, limit: int = LIMIT) -> Value:
    """The value of a canonical message; `Malformed` for anything else. Arrays are read-only views of the message."""
    if len(raw) > limit:
        raise Malformed(f"a message of {len(raw)} bytes is over the limit of {limit}", code="too-large")
    reader = _Reader(bytes(raw))
    if reader.take(4) != MAGIC:
        raise _wrong("it does not begin with the magic bytes")
    reader.hold(1)
    value = reader.value(0)
    if reader.at != len(reader.raw):
        raise _wrong("bytes follow its end")
    return value


def leading_text(raw: bytes, *, most: int) -> str | None:
    """The text that the list in a message begins with, where there is one of up to so many bytes. The rest is not read
    and may be anything."""
    reader = _Reader(raw[: len(MAGIC) + 10 + most])
    try:
        begins = reader.take(len(MAGIC)) == MAGIC and reader.take(1) == b"l" and reader.count(1) > 0
        return _text(reader.counted()) if begins and reader.take(1) == b"s" else None
    except Malformed:
        return None


def _wrong(why: str) -> Malformed:
    return Malformed(f"malformed message: {why}")


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _wrong("a text is not UTF-8") from error


_SHARED_BYTES = 1 << 16
"""Arrays from this size on are views of the whole message, which they keep in memory; shorter ones are copied."""

_LIST, _MAPPING, _TEXT, _BYTES, _ARRAY, _INTEGER, _FLOAT = b"ldsbaif"
_CONSTANTS = {ord("N"): None, ord("T"): True, ord("F"): False}


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0
        self.items = 0

    def hold(self, count: int) -> None:
        """Counts values before they are read: a container of too many is refused by what it says of itself."""
        self.items += count
        if self.items > ITEMS:
            raise _wrong("it has too many items")

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.raw):
            raise _wrong("it is truncated")
        found = self.raw[self.at : end]
        self.at = end
        return found

    def counted(self) -> bytes:
        """A 4-byte length and as many bytes."""
        start = self.at + 4
        end = start + int.from_bytes(self.raw[self.at : start], "big")
        if end > len(self.raw):
            raise _wrong("it is truncated")
        self.at = end
        return self.raw[start:end]

    def count(self, depth: int) -> int:
        """How many values a container has, which stand at this depth."""
        found = int.from_bytes(self.take(4), "big")
        if found and depth > DEPTH:
            raise _wrong("it is nested too deeply")
        self.hold(found)
        return found

    def value(self, depth: int) -> Value:
        if self.at >= len(self.raw):
            raise _wrong("it is truncated")
        tag = self.raw[self.at]
        self.at += 1
        if tag == _TEXT:
            return _text(self.counted())
        if tag == _BYTES:
            return self.counted()
        if tag == _MAPPING:
            return self.mapping(depth + 1)
        if tag == _LIST:
            return self.sequence(depth + 1)
        if tag == _ARRAY:
            return self.array()
        if tag == _INTEGER:
            return self.integer()
        if tag == _FLOAT:
            return struct.unpack("<d", self.take(8))[0]
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        raise _wrong("a tag is unknown")

    def integer(self) -> int:
        raw = self.take(self.take(1)[0])
        number = int.from_bytes(raw, "big", signed=True)
        if not 0 < len(raw) <= INTEGER_BYTES or len(raw) != (number if number >= 0 else ~number).bit_length() // 8 + 1:
            raise _wrong("an integer is not in its shortest form")
        return number

    def sequence(self, depth: int) -> list[Value]:
        out: list[Value] = []
        raw, size = self.raw, len(self.raw)
        for _ in range(self.count(depth)):
            at = self.at
            if at < size and raw[at] == _TEXT:
                # Lists of names are most of what is read in a run of many parties.
                start = at + 5
                self.at = end = start + int.from_bytes(raw[at + 1 : start], "big")
                if end > size:
                    raise _wrong("it is truncated")
                out.append(_text(raw[start:end]))
            else:
                out.append(self.value(depth))
        return out

    def mapping(self, depth: int) -> dict[str, Value]:
        out: dict[str, Value] = {}
        last = None
        raw, size = self.raw, len(self.raw)
        for _ in range(self.count(depth)):
            start = self.at + 4
            self.at = end = start + int.from_bytes(raw[self.at : start], "big")
            if end > size:
                raise _wrong("it is truncated")
            key = _text(raw[start:end])
            if last is not None and key <= last:
                raise _wrong("keys are not in rising order")
            last = key
            if end < size and raw[end] == _BYTES:
                self.at = end + 1
                out[key] = self.counted()
            else:
                out[key] = self.value(depth)
        return out

    def array(self) -> np.ndarray[Any, Any]:
        code, axes = self.take(2)
        dtype = _DTYPES.get(code)
        if dtype is None or axes > AXES:
            raise _wrong("an array has an unknown type or too many axes")
        shape = struct.unpack(f"<{axes}Q", self.take(8 * axes))
        if prod(max(size, 1) for size in shape) > LIMIT:
            raise _wrong("an array is too large")
        count = prod(shape)
        size = dtype.itemsize * count
        if size < _SHARED_BYTES:
            return np.frombuffer(self.take(size), dtype).reshape(shape)
        if size > len(self.raw) - self.at:
            raise _wrong("it is truncated")
        start, self.at = self.at, self.at + size
        return np.frombuffer(self.raw, dtype, count, start).reshape(shape)


# A large sum shows every party the same lists of names: each list is encoded and hashed once, not once for each party.
_CACHED_LISTS = 16


def encode_names(names: Sequence[str]) -> Embedded:
    """A list of parties, encoded."""
    return _encoded_names(tuple(names))[0]


def names_digest(names: Sequence[str]) -> bytes:
    """SHA-256 of an encoded list of parties."""
    return _encoded_names(tuple(names))[1]


@lru_cache(maxsize=_CACHED_LISTS)
def _encoded_names(names: tuple[str, ...]) -> tuple[Embedded, bytes]:
    made = embed(list(names), depth=1)
    return made, hashlib.sha256(made.message).digest()

"""The codec: canonical, and whatever the bytes, a value or a Comity error within the limit of memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from comity.errors import ComityError, Malformed
from comity.federation.messages.codec import DEPTH, MAGIC, decode, encode

arrays = npst.arrays(
    st.sampled_from(["<f8", "<i8", "<u8", "|u1", "<i4", "<f4"]),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**127), 2**127 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=40)
    | arrays
)
values = st.recursive(
    leaves, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=5), v, max_size=4), max_leaves=20
)


def same(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@given(values)
@settings(max_examples=400, deadline=None)
def test_values_come_back_and_equal_values_give_equal_bytes(value: Any) -> None:
    raw = encode(value)
    assert same(decode(raw), value)
    assert encode(decode(raw)) == raw


@given(st.binary(max_size=300))
@settings(max_examples=3000, deadline=None)
def test_any_bytes_give_a_canonical_value_or_malformed(raw: bytes) -> None:
    for message in (raw, MAGIC + raw):
        try:
            value = decode(message)
        except Malformed:
            continue
        assert encode(value) == message


def examples() -> list[Any]:
    return [
        encode(
            [
                "study",
                "run",
                "vote[0]",
                b"x" * 50,
                {"a": np.arange(12.0).reshape(3, 4), "b": [1, -5, 2**70]},
                None,
                True,
            ]
        ),
        encode({"ok": {"votes": np.arange(20, dtype="<i8")}, "mail": [{"to": "ash", "head": b"h", "box": b"b" * 90}]}),
        encode([[[[[1.5, "é"]]]], {"k": {"l": {"m": b""}}}]),
    ]


@pytest.mark.parametrize("messages", [10_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_mutated_messages_never_raise_anything_else(messages: int) -> None:
    generator = np.random.default_rng(11)
    originals = examples()
    outcomes = {"value": 0, "refused": 0}
    for _ in range(messages):
        raw = bytearray(originals[generator.integers(len(originals))])
        for _ in range(generator.integers(1, 4)):
            kind, at = generator.integers(5), int(generator.integers(len(raw))) if raw else 0
            if kind == 0 and raw:
                raw[at] = generator.integers(256)
            elif kind == 1:
                del raw[at:]
            elif kind == 2:
                raw[at:at] = generator.bytes(int(generator.integers(1, 9)))
            elif kind == 3:
                del raw[at : at + generator.integers(1, 9)]
            elif raw:
                raw[at : at + 4] = b"\xff\xff\xff\xff"
        try:
            value = decode(bytes(raw))
        except ComityError:
            outcomes["refused"] += 1
        else:
            assert encode(value) == bytes(raw)
            outcomes["value"] += 1
    assert outcomes["value"] > messages // 100 and outcomes["refused"] > messages // 2


def bombs() -> Iterator[Any]:
    huge = (2**32 - 1).to_bytes(4, "big")
    yield MAGIC + b"l" + huge
    yield MAGIC + b"d" + huge
    yield MAGIC + b"s" + huge
    yield MAGIC + b"a" + bytes([0, 8]) + b"\xff" * 64
    yield MAGIC + b"a" + bytes([0, 2]) + (0).to_bytes(8, "little") + (2**60).to_bytes(8, "little")
    yield MAGIC + b"l" + (300_000).to_bytes(4, "big") + b"N" * 300_000
    yield MAGIC + (b"l" + (1).to_bytes(4, "big")) * 100_000 + b"N"
    yield MAGIC + b"i\xff" + b"\x01" * 255


@pytest.mark.parametrize("place", range(8))
def test_bombs_are_refused_without_the_memory_they_ask_for(place: int) -> None:
    raw = list(bombs())[place]
    tracemalloc.start()
    with pytest.raises(Malformed):
        decode(raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 * len(raw) + (1 << 20)


def test_messages_over_the_limit_are_refused_before_they_are_read() -> None:
    with pytest.raises(Malformed, match="over the limit"):
        decode(encode(b"x" * 2000), limit=1000)


def test_objects_do_not_cross() -> None:
    for value in (object(), {1: 2}, np.array(["a"]), np.array([1 + 2j]), np.array([True]), {1, 2}, 2**200):
        with pytest.raises(TypeError):
            encode(value)
    deep: Any = 1
    for _ in range(DEPTH + 2):
        deep = [deep]
    with pytest.raises(TypeError):
        encode(deep)


@pytest.mark.parametrize(
    "raw",
    [
        MAGIC + b"i\x02\x00\x01",  # not shortest
        MAGIC + b"i\x00",
        MAGIC + b"d" + (2).to_bytes(4, "big") + (b"\0\0\0\x01b" + b"N") + (b"\0\0\0\x01a" + b"N"),
        MAGIC + b"d" + (2).to_bytes(4, "big") + (b"\0\0\0\x01a" + b"N") * 2,
        encode(1) + b"\0",
        b"CMY2N",
        b"",
    ],
)
def test_forms_that_are_not_canonical_are_refused(raw: Any) -> None:
    with pytest.raises(Malformed):
        decode(raw)


@pytest.mark.parametrize("leaf", ["text", b"bytes", 1, None, [], {}, np.zeros(2)])
@pytest.mark.parametrize("around", [lambda value: [value], lambda value: {"key": value}])
def test_every_kind_of_value_may_lie_equally_deep(leaf: Any, around: Any) -> None:
    deep = leaf
    for _ in range(DEPTH):
        deep = around(deep)
    raw = encode(deep)
    assert encode(decode(raw)) == raw
    with pytest.raises(TypeError, match="nested deeper"):
        encode(around(deep))
    inside = raw[len(MAGIC) :]
    wrapped = b"l\0\0\0\1" + inside if isinstance(deep, list) else b"d\0\0\0\1\0\0\0\3key" + inside
    with pytest.raises(Malformed, match="too deeply"):
        decode(MAGIC + wrapped)

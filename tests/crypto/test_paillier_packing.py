"""Packed vectors against plain lists; headroom, range and shape are enforced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comity.crypto.paillier.packing import PackedVector, Packing
from comity.errors import Malformed
from tests.support.paillier import make_private_key

few = settings(max_examples=20, deadline=None)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_packing_and_unpacking_are_inverse(data: st.DataObject) -> None:
    packing = Packing(make_private_key().public, data.draw(st.integers(2, 300)), data.draw(st.integers(1, 10**6)))
    values = data.draw(st.lists(st.integers(-packing.limit, packing.limit), max_size=3 * packing.slots))
    plaintexts = packing.pack(values)
    assert len(plaintexts) == packing.ciphertexts(len(values))
    assert all(abs(plaintext) <= make_private_key().public.limit for plaintext in plaintexts)
    assert packing.unpack(plaintexts, len(values), 1) == values


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_full_slots_do_not_reach_their_neighbours(data: st.DataObject) -> None:
    packing = Packing(make_private_key().public, data.draw(st.integers(2, 70)), data.draw(st.integers(1, 1000)))
    ends = st.sampled_from([packing.limit, -packing.limit, 0])
    values = data.draw(st.lists(ends, min_size=1, max_size=packing.slots))
    for factor in (packing.terms, -packing.terms):
        scaled = [plaintext * factor for plaintext in packing.pack(values)]
        assert all(abs(plaintext) <= make_private_key().public.limit for plaintext in scaled)
        assert packing.unpack(scaled, len(values), packing.terms) == [value * factor for value in values]


@few
@given(st.data())
def test_sums_and_multiples_of_encrypted_vectors(data: st.DataObject) -> None:
    key, packing = make_private_key(), Packing(make_private_key().public, 40, 20)
    length = data.draw(st.integers(1, 100))
    vectors = st.lists(st.integers(-packing.limit, packing.limit), min_size=length, max_size=length)
    a, b, factor = data.draw(vectors), data.draw(vectors), data.draw(st.integers(-19, 19))
    computed = packing.add(packing.multiply(packing.encrypt(a), factor), packing.encrypt(b))
    received = packing.read(packing.write(packing.rerandomise(computed)), length, computed.load)
    assert packing.decrypt(key, received) == [x * factor + y for x, y in zip(a, b, strict=True)]


def test_numpy_vectors_and_the_empty_one() -> None:
    key, packing = make_private_key(), Packing(make_private_key().public, 64, 3)
    values = np.array([2**63 - 1, -(2**63) + 1, 0, -1], np.int64)
    total = packing.add(*(packing.encrypt(values) for _ in range(3)))
    assert packing.decrypt(key, total) == [3 * int(value) for value in values]
    assert packing.decrypt(key, packing.encrypt([])) == []
    with pytest.raises(TypeError):
        packing.encrypt([0.5])  # type: ignore[list-item]


@pytest.mark.parametrize("value", [128, -128, 10**9])
def test_values_out_of_range_are_refused(value: int) -> None:
    with pytest.raises(Malformed, match="8 bits"):
        Packing(make_private_key().public, 8, 4).encrypt([0, value, 1])


def test_more_terms_than_the_headroom_are_refused() -> None:
    packing = Packing(make_private_key().public, 16, 4)
    vector = packing.encrypt([5])
    four = packing.add(*[vector] * 4)
    assert packing.decrypt(make_private_key(), four) == [20]
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: packing.add(four, vector),
        lambda: packing.multiply(vector, 5),
        lambda: packing.multiply(four, -2),
        lambda: packing.read(packing.write(vector), 1, 5),
        lambda: packing.read(packing.write(vector), 1, 0),
    )
    for attempt in attempts:
        with pytest.raises(Malformed, match="4 terms"):
            attempt()


def test_a_slot_that_overflowed_behind_the_count_is_refused() -> None:
    packing = Packing(make_private_key().public, 8, 3)
    plain = packing.pack([127, 1])[0]
    for plaintext, load in ((2 * plain, 1), (5 * plain, 3), (1 << packing.width * 2, 1), (-1 << packing.width * 2, 1)):
        with pytest.raises(Malformed):
            packing.unpack([plaintext], 2, load)
    assert packing.unpack([3 * plain], 2, 3) == [381, 3]


def test_wrong_shapes_are_refused() -> None:
    packing = Packing(make_private_key().public, 32, 8)
    vector = packing.encrypt(range(packing.slots + 1))
    data = packing.write(vector)
    assert len(data) == 2 * make_private_key().public.ciphertext_bytes
    for bad, length in ((data[:-1], vector.length), (data + b"\0", vector.length), (data, packing.slots), (b"", 1)):
        with pytest.raises(Malformed, match="bytes"):
            packing.read(bad, length)
    with pytest.raises(Malformed, match="unit"):
        packing.read(bytes(len(data)), vector.length)
    with pytest.raises(Malformed, match="one length"):
        packing.add(vector, packing.encrypt([1]))
    with pytest.raises(Malformed, match="plaintexts"):
        packing.unpack([0], vector.length, 1)
    with pytest.raises(ValueError, match="re-randomised"):
        packing.write(packing.add(vector, vector))


@pytest.mark.parametrize(("bits", "terms"), [(1, 1), (8, 0), (2047, 1), (2040, 1000)])
def test_layouts_that_do_not_fit_are_refused(bits: int, terms: int) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        Packing(make_private_key().public, bits, terms)


def test_one_slot_as_wide_as_the_key_allows() -> None:
    packing = Packing(make_private_key().public, 2046, 1)
    assert packing.slots == 1
    assert packing.decrypt(make_private_key(), packing.encrypt([packing.limit, -packing.limit])) == [
        packing.limit,
        -packing.limit,
    ]
    assert isinstance(packing.encrypt([0]), PackedVector)

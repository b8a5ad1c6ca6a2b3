from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from comity.crypto import masks
from comity.entropy import Stream, fresh_seed

SHAPES = [(0,), (1,), (5,), (3, 4), (1 << 10,), (1003,)]


def blocks(seed: bytes, unit: int, count: int) -> bytes:
    """E₁(T) ⊕ T, block by block, with T doubled in GF(2^128) from one to the next."""
    first, second = (Cipher(algorithms.AES(key), modes.ECB()).encryptor() for key in (seed[:16], seed[16:]))
    tweak, out = int.from_bytes(second.update(unit.to_bytes(16, "little")), "little"), b""
    for _ in range(count):
        made = int.from_bytes(first.update(tweak.to_bytes(16, "little")), "little") ^ tweak
        out += made.to_bytes(16, "little")
        tweak = (tweak << 1) ^ (0x87 | 1 << 128 if tweak >> 127 else 0)
    return out


@pytest.fixture(params=[1 << 19, 1 << 10])
def unit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The length of a unit as it is, and one that makes several of a short vector."""
    monkeypatch.setattr(masks, "_UNIT", request.param)
    return request.param


@pytest.mark.parametrize("dtype", ["<u4", "<u8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_added_is_the_mask_of_the_seed_and_comes_off_again(dtype: str, shape: Any, unit: Any) -> None:
    seed = fresh_seed()
    start = Stream.public("vector").words(int(np.prod(shape))).astype(dtype).reshape(shape)
    total = start.copy()
    masks.add(total, seed)
    expected = b"".join(blocks(seed, number, min(unit, 8192) // 16) for number in range(8))
    np.testing.assert_array_equal(total - start, np.frombuffer(expected[: total.nbytes], dtype).reshape(shape))
    masks.subtract(total, seed)
    np.testing.assert_array_equal(total, start)


def test_no_unit_repeats_another() -> None:
    total = np.zeros(3 * masks._UNIT // 8 + 5, np.uint64)
    masks.add(total, fresh_seed())
    assert len(np.unique(total)) == total.size


@pytest.mark.parametrize("place", [0, 15, 16, 31])
def test_every_byte_of_a_seed_changes_the_whole_mask(place: int) -> None:
    seed = bytearray(fresh_seed())
    one, two = np.zeros(8, np.uint64), np.zeros(8, np.uint64)
    masks.add(one, bytes(seed))
    seed[place] ^= 1
    masks.add(two, bytes(seed))
    assert not np.isin(one, two).any()


def test_only_vectors_of_words_are_masked_and_by_whole_seeds() -> None:
    wrong: Any
    for wrong in (np.zeros(3), np.zeros(3, np.int64), np.zeros((4, 4), np.uint64)[:, ::2]):
        with pytest.raises(TypeError):
            masks.add(wrong, fresh_seed())
    with pytest.raises(ValueError, match="32 bytes"):
        masks.add(np.zeros(3, np.uint64), bytes(31))

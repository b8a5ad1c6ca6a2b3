from __future__ import annotations

import numpy as np
import pytest

from comity.crypto.packed_words import WIDTHS, pack_words, packed_parts, unpack_words
from comity.errors import Malformed


@pytest.mark.parametrize("bits", WIDTHS)
def test_words_come_back_modulo_the_ring_in_as_many_bytes(bits: int) -> None:
    words = np.random.default_rng(bits).integers(0, 2**64, 1000, dtype=np.uint64)
    words[:2] = 0, 2**64 - 1
    packed = pack_words(words, bits)
    assert {name: part.dtype.str for name, part in packed.items()} == dict(packed_parts(bits))
    assert sum(part.nbytes for part in packed.values()) == 1000 * bits // 8
    np.testing.assert_array_equal(unpack_words(packed, 1000), words & np.uint64(2**bits - 1))


@pytest.mark.parametrize("bits", WIDTHS)
def test_parts_of_another_length_are_refused(bits: int) -> None:
    packed = pack_words(np.zeros(7, np.uint64), bits)
    with pytest.raises(Malformed):
        unpack_words(packed, 8)
    for name in packed:
        with pytest.raises(Malformed):
            unpack_words({**packed, name: packed[name][:-1]}, 7)


def test_other_widths_are_refused() -> None:
    with pytest.raises(Malformed):
        packed_parts(52)

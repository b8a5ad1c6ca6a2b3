from __future__ import annotations

import numpy as np
import pytest

from comity.crypto import prg
from comity.entropy import Stream, fresh_seed


@pytest.mark.parametrize("dtype", ["<u4", "<u8"])
@pytest.mark.parametrize("shape", [(0,), (1,), (5,), (3, 4), (1 << 17,), ((1 << 16) + 3,)])
def test_what_is_added_comes_off_again_and_is_the_stream_of_the_seed(dtype, shape):
    seed = fresh_seed()
    start = Stream.public("vector").words(int(np.prod(shape))).astype(dtype).reshape(shape)
    total = start.copy()
    prg.add(total, seed)
    size = int(np.prod(shape)) * total.itemsize
    expected = np.frombuffer(Stream(seed).bytes(size), dtype).reshape(shape)
    np.testing.assert_array_equal(total - start, expected)
    prg.subtract(total, seed)
    np.testing.assert_array_equal(total, start)


def test_only_vectors_of_words_are_masked():
    for wrong in (np.zeros(3), np.zeros(3, np.int64), np.zeros((4, 4), np.uint64)[:, ::2]):
        with pytest.raises(TypeError):
            prg.add(wrong, fresh_seed())

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.bench.kernels.product_stream import stream_apart, write
from experiments.bench.kernels.row_blocks import in_blocks


def test_a_stream_from_parquet_is_exact(tmp_path: Path) -> None:
    rows = 150_000
    streamed = stream_apart([write(tmp_path, name, rows, 3) for name in ("one", "two")], rows, 3)
    assert np.array_equal(streamed.product, streamed.exact) and streamed.exact.any()
    assert streamed.bytes == rows * 6 * 8


@pytest.mark.long
def test_ten_million_rows_from_parquet_stay_under_a_gigabyte(tmp_path: Path) -> None:
    rows = 10_000_000
    streamed = stream_apart([write(tmp_path, name, rows, 7) for name in ("one", "two")], rows, 7)
    assert np.array_equal(streamed.product, streamed.exact)
    assert streamed.peak_mb < 1000


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(1, 17))
@settings(max_examples=60)
def test_pieces_become_blocks_of_one_size(sizes: Any, rows: int) -> None:
    whole = np.arange(2.0 * sum(sizes)).reshape(-1, 2)
    pieces = np.split(whole, np.cumsum(sizes)[:-1]) if sizes else []
    blocks = list(in_blocks(pieces, rows))
    assert all(len(block) == rows for block in blocks[:-1])
    assert not blocks or 0 < len(blocks[-1]) <= rows
    assert np.array_equal(np.concatenate([whole[:0], *blocks]), whole)

"""Rows that arrive in pieces of any size, as blocks of one size: what the products take, in flat memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray


def in_blocks(pieces: Iterable[NDArray[np.float64]], rows: int) -> Iterator[NDArray[np.float64]]:
    """Blocks of `rows` rows, the last one shorter; no more than one piece and one block are held."""
    held: list[NDArray[np.float64]] = []
    count = 0
    for piece in pieces:
        start = 0
        while start < len(piece):
            part = piece[start : start + rows - count]
            start += len(part)
            count += len(part)
            held.append(part)
            if count == rows:
                yield held[0] if len(held) == 1 else np.concatenate(held)
                held, count = [], 0
    if held:
        yield np.concatenate(held)

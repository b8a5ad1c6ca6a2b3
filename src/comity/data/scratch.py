"""Memory that a thread uses again for each block of records: fresh memory for each takes longer than to compute it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 1 << 24
"""More is not kept from one block to the next."""

_threads = threading.local()


def scratch(name: str, shape: tuple[int, ...], dtype: type[np.generic] = np.float64) -> NDArray[Any]:
    """A contiguous array of this thread. The next call of the thread with this name overwrites it."""
    count = int(np.prod(shape))
    size = count * np.dtype(dtype).itemsize
    if size > MAX_BYTES:
        return np.empty(shape, dtype)
    kept: dict[str, NDArray[np.uint8]] = _threads.__dict__.setdefault("kept", {})
    if name not in kept or len(kept[name]) < size:
        kept[name] = np.empty(size, np.uint8)
    return kept[name][:size].view(dtype).reshape(shape)

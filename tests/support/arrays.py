"""Arrays inside of messages, for comparing what a participant reads with what it must not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from comity.federation.messages.codec import decode


def find_arrays(value: Any) -> Iterator[np.ndarray]:
    """Every array in a decoded message, at any depth; bytes that are an encoded message are searched too."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        yield from find_arrays(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from find_arrays(one)
    elif isinstance(value, bytes) and len(value) > 8:
        try:
            inside = decode(value)
        except Exception:
            return
        yield from find_arrays(inside)

"""Expansion of a seed into a mask over Z_2^64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream


def expand(seed: bytes, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """A mask indistinguishable from uniform to whoever lacks the seed (AES-128 in counter mode).

    A seed makes one mask ever: callers derive it from the run, the release and the index.
    """
    return Stream(seed).words(int(np.prod(shape))).reshape(shape)

"""Encoded records: what a protocol's step sees of its owner's data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.representation import short_repr


@dataclass(frozen=True, eq=False)
class Records:
    """Features (n, d), labels (n,) as class indices or bounded numbers, ids (n,) as strings; the last two
    where there are any. All of them are in memory: `blocks` is one block.
    """

    __repr__ = short_repr

    features: NDArray[np.float64]
    labels: NDArray[np.int64] | NDArray[np.float64] | None = None
    ids: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.features)

    def blocks(self) -> Iterator[Records]:
        yield self

"""The paper's first hash h1: random Fourier features as cosines with random phases (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray

from comity.data.row_products import Weights
from comity.entropy import Stream
from comity.errors import DataError

Floats = NDArray[np.float64]

# The number of entries computed at once. Results do not depend on it.
_BLOCK_ENTRIES = 1 << 16


@dataclass(frozen=True, eq=False)
class PhasedCosines:
    """h1(x) = √(2/d)·(cos(ω_1·x + b_1), …, cos(ω_d·x + b_d)); h1(x)·h1(y) is about exp(−γ·|x − y|²).

    `frequencies` is (columns, d) and `phases` is (d,). Entries are within ±√(2/d), and the length is about one, at most
    √2. A row that is not finite becomes zero. The hash of a row does not depend on other rows, to the last bit.
    """

    frequencies: Floats
    phases: Floats

    @classmethod
    def draw(cls, columns: int, dimensions: int, gamma: float, stream: Stream) -> PhasedCosines:
        """Frequencies from N(0, 2γI) and phases uniform on [0, 2π], independent of each other."""
        if columns < 1 or dimensions < 1:
            raise DataError(f"a hash needs at least one column and one dimension, found {columns} and {dimensions}")
        if not 0 < gamma < float("inf"):
            raise DataError(f"the kernel's gamma must be positive and finite, found {gamma}", key="summary.gamma")
        frequencies = stream.normal((columns, dimensions)) * sqrt(2 * gamma)
        return cls(frequencies, 2 * pi * stream.uniform(dimensions))

    @property
    def columns(self) -> int:
        return len(self.frequencies)

    @property
    def dimensions(self) -> int:
        return len(self.phases)

    def __call__(self, rows: Floats) -> Floats:
        """(n, columns) to (n, d), with angles to 26 bits and cosines in single precision, which is twice as fast."""
        rows = np.asarray(rows)
        if rows.ndim != 2 or rows.shape[1] != self.columns:
            raise DataError(f"the hash expects rows of {self.columns} columns, found shape {rows.shape}")
        hashes = np.empty((len(rows), self.dimensions))
        step = max(16, _BLOCK_ENTRIES // max(self.columns, self.dimensions))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            # Entries that are not finite become zero below.
            with np.errstate(invalid="ignore", over="ignore"):
                angles = (self._angles.of_rows(some) + self.phases).astype(np.float32)
                block = np.cos(angles) * np.float64(sqrt(2 / self.dimensions))
            block[~(np.isfinite(some).all(axis=1) & np.isfinite(block).all(axis=1))] = 0.0
            hashes[start : start + step] = block
        return hashes

    @cached_property
    def _angles(self) -> Weights:
        return Weights.on_one_grid(self.frequencies.T)


@lru_cache(maxsize=8)
def public_cosines(columns: int, dimensions: int, gamma: float) -> PhasedCosines:
    """The hash that every participant of a study draws alike, once for the whole protocol."""
    return PhasedCosines.draw(columns, dimensions, gamma, Stream.public("summary hash", columns, dimensions))

"""Some of a party's records, as a step sums over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.errors import Refused


@dataclass(frozen=True, eq=False)
class Rows:
    """Features (..., n, d) and classes or numbers (..., n) of one block; `filled` (..., n) tells records from the
    padding that stacks of simulated parties have. `every` is how many records the party has in all its blocks, where
    they are more than one."""

    features: NDArray[np.float64]
    given: NDArray[Any] | None
    filled: NDArray[np.bool_]
    every: int | None = None

    @property
    def count(self) -> NDArray[np.int64]:
        """How many records the party has, (..., 1): what a mean over all of them is divided by, in every block."""
        if self.every is None:
            return np.asarray(self.filled.sum(axis=-1, keepdims=True), np.int64)
        return np.array([self.every])

    @property
    def labels(self) -> NDArray[Any]:
        if self.given is None:
            raise Refused("a step asks for labels, and this party holds none", code="stopped")
        return self.given

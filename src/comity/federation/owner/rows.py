"""A block of an owner's records, as a step sums over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data.records import Records
from comity.errors import Refused

Floats = NDArray[np.float64]
Arrays = tuple[Floats | NDArray[np.float32], ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """One block of a party's records, as a step sums over them.

    Features (..., n, d) and classes or numbers (..., n). `filled` (..., n) tells records from the padding that stacks
    of simulated parties have. `every` is the number of records in all blocks of the party, where there are several.
    `prepared` are arrays (..., n, e) that a step's `Preparation` makes of the features.
    """

    features: NDArray[np.float64]
    given: NDArray[Any] | None
    filled: NDArray[np.bool_]
    every: int | None = None
    prepared: Arrays = ()

    @property
    def count(self) -> NDArray[np.int64]:
        """How many records the party has in all blocks, (..., 1): the divisor of a mean over all of them."""
        if self.every is None:
            return np.asarray(self.filled.sum(axis=-1, keepdims=True), np.int64)
        return np.array([self.every])

    @property
    def labels(self) -> NDArray[Any]:
        if self.given is None:
            raise Refused("a step asks for labels, and this party holds none", code="stopped")
        return self.given

    def some(self, which: slice) -> Rows:
        """Some of these rows, of every party of a stack."""
        return replace(
            self,
            features=self.features[..., which, :],
            given=None if self.given is None else self.given[..., which],
            filled=self.filled[..., which],
            prepared=tuple(one[..., which, :] for one in self.prepared),
        )


def split_block(block: Records, every: int, at_once: int | None) -> Iterator[Rows]:
    """A block in pieces of about one size, of at most `at_once` records: at least one piece."""
    pieces = 1 if at_once is None else max(1, -(-len(block) // at_once))
    step = max(1, -(-len(block) // pieces))
    filled = np.ones(min(step, len(block)), np.bool_)
    for start in range(0, max(1, len(block)), step):
        features = block.features[start : start + step]
        labels = None if block.labels is None else block.labels[start : start + step]
        yield Rows(features, labels, filled[: len(features)], every)

"""Which counts are taken: the cells of every column, the pairs of columns, how much of the budget each pair gets.

A record lies in one cell of each column, so it adds one to one cell of each pair that is counted. All of it is public:
the schema says the cells, and the weights follow from the roles of the columns alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Twice, four times as much for pairs with the label as for others and for single columns: integers, so that sums stay
# exact. As published for the mixture on Adult; kept as they were given, not tuned here.
SINGLE, PAIR, LABEL = 1, 2, 4


@dataclass(frozen=True)
class Block:
    """The counts of one column, or of two (`second` above `first`), and their integer weight."""

    first: int
    second: int | None
    weight: int
    start: int
    shape: tuple[int, ...]

    @property
    def cells(self) -> int:
        return int(np.prod(self.shape))

    @property
    def stop(self) -> int:
        return self.start + self.cells


@dataclass(frozen=True)
class Layout:
    """`sizes` cells per column; `target` is the label's place, if there is one. A column that `follows` another is
    counted with that one alone: it is drawn from it, and what its other pairs would have cost stays for the rest."""

    sizes: tuple[int, ...]
    target: int | None = None
    follows: Mapping[int, int] = field(default_factory=dict)
    sparse: bool = False
    """Whether only pairs with the label are counted: all that is left where the noise would cover the others."""

    @property
    def columns(self) -> int:
        return len(self.sizes)

    @cached_property
    def leading(self) -> tuple[int, ...]:
        """Columns that follow no other one: those that the model is about."""
        return tuple(k for k in range(self.columns) if k not in self.follows)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each column's cells begin in a row of all cells."""
        return tuple(int(start) for start in np.concatenate([[0], np.cumsum(self.sizes)[:-1]]))

    @property
    def width(self) -> int:
        return sum(self.sizes)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        start = 0
        for k in self.leading:
            # Where pairs with the label are all that there is, they say what each column is like as well.
            if not self.sparse or self.target is None:
                yield Block(k, None, SINGLE, start, (self.sizes[k],))
                start += self.sizes[k]
        for first, second in self.pairs:
            tied = first in self.follows or second in self.follows
            weight = LABEL if tied or self.target in (first, second) else PAIR
            shape = (self.sizes[first], self.sizes[second])
            yield Block(first, second, weight, start, shape)
            start += shape[0] * shape[1]

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        leading = self.leading
        both = [(i, j) for place, i in enumerate(leading) for j in leading[place + 1 :]]
        if self.sparse:
            both = [pair for pair in both if self.target in pair]
        tied = [(min(k, of), max(k, of)) for k, of in self.follows.items()]
        return (*both, *sorted(tied))

    @property
    def counts(self) -> int:
        """How many numbers are counted."""
        return self.blocks[-1].stop

    @cached_property
    def weights(self) -> Integers:
        """The weight of every count, in the order of the blocks."""
        return np.concatenate([np.full(block.cells, block.weight, np.int64) for block in self.blocks])

    @property
    def l2(self) -> float:
        """How far one record that is added moves the weighted counts: one cell of each block, by its weight. One that
        is replaced moves two cells of each block, √2 times as far."""
        return sqrt(sum(block.weight**2 for block in self.blocks))

    @property
    def l1(self) -> float:
        return float(sum(block.weight for block in self.blocks))

    def count(self, codes: Integers) -> Integers:
        """The weighted counts of records that are given as cells (n, columns), exact and in integers."""
        found = np.empty(self.counts, np.int64)
        for block in self.blocks:
            if block.second is None:
                one = np.bincount(codes[:, block.first], minlength=block.cells)
            else:
                joint = codes[:, block.first] * self.sizes[block.second] + codes[:, block.second]
                one = np.bincount(joint, minlength=block.cells)
            found[block.start : block.stop] = one * block.weight
        return found

    def tables(self, weighted: Floats) -> dict[tuple[int, ...], Floats]:
        """Unweighted counts by column, (k,), and by pair of columns, (i, j)."""
        return {
            (block.first,) if block.second is None else (block.first, block.second): weighted[
                block.start : block.stop
            ].reshape(block.shape)
            / block.weight
            for block in self.blocks
        }

    def deviations(self, deviation: float) -> dict[tuple[int, ...], float]:
        """Standard deviation of each table's cells, if that of a weighted count is `deviation`."""
        return {
            (block.first,) if block.second is None else (block.first, block.second): deviation / block.weight
            for block in self.blocks
        }

"""Which counts are taken: the cells of every column, the pairs of columns, how much of the budget each pair gets.

A record lies in one cell of each column, so it adds one to one cell of each pair that is counted. All of it is public:
the schema says the cells, and the weights follow from the roles of the columns alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError

Floats = NDArray[np.float64]


def as_cells(codes: NDArray[Any], sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """Records (n, columns) as whole numbers, each below its column's number of cells; refused where one is not."""
    found = codes.astype(np.int64)
    if found.shape[1] != len(sizes) or (found < 0).any() or (found >= np.array(sizes)).any():
        raise DataError(f"records must be given as cells of {len(sizes)} columns, below {sizes}")
    return found


class Weights(NamedTuple):
    """How strongly single columns, pairs of them, and pairs with the label are counted: integers, so that sums stay
    exact."""

    single: int
    pair: int
    label: int


# Settled on Adult, with noise on the L2 norm and on the L1 norm of what a record moves.
GAUSSIAN = Weights(1, 2, 4)
LAPLACE = Weights(1, 4, 6)


@dataclass(frozen=True)
class Block:
    """The counts of one column, or of two (`second` above `first`), and their integer weight."""

    first: int
    second: int | None
    weight: int
    start: int
    shape: tuple[int, ...]

    @property
    def key(self) -> tuple[int, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)

    @property
    def cells(self) -> int:
        return prod(self.shape)

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
    emphasis: Weights = GAUSSIAN

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
        start, paired = 0, {k for pair in self.pairs for k in pair}
        for k in self.leading:
            # Where pairs with the label are all that there is, they say what each column is like as well.
            if not self.sparse or k not in paired:
                yield Block(k, None, self.emphasis.single, start, (self.sizes[k],))
                start += self.sizes[k]
        for first, second in self.pairs:
            tied = first in self.follows or second in self.follows
            weight = self.emphasis.label if tied or self.target in (first, second) else self.emphasis.pair
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
    def keys(self) -> tuple[tuple[int, ...], ...]:
        """The columns of every block."""
        return tuple(block.key for block in self.blocks)

    @property
    def counts(self) -> int:
        """How many numbers are counted."""
        return self.blocks[-1].stop

    @property
    def weights(self) -> tuple[int, ...]:
        """The weight of every block: what one record adds to one of its cells (`Counts`)."""
        return tuple(block.weight for block in self.blocks)

    def count(self, codes: NDArray[Any], filled: NDArray[np.bool_] | None = None) -> Floats:
        """The weighted counts (..., counts) of records that are given as cells (..., n, columns): whole numbers.

        `filled` (..., n) tells records from padding. A record adds the block's weight to one cell of each block,
        whatever it says; cells that the layout does not have are refused, because they would be counted elsewhere.
        """
        return tally(self.blocks, self.sizes, self.counts, codes, filled)

    def tables(self, weighted: Floats) -> dict[tuple[int, ...], Floats]:
        """Unweighted counts by column, (k,), and by pair of columns, (i, j)."""
        return {
            block.key: weighted[block.start : block.stop].reshape(block.shape) / block.weight for block in self.blocks
        }

    def deviations(self, deviation: float) -> dict[tuple[int, ...], float]:
        """Standard deviation of each table's cells, if that of a weighted count is `deviation`."""
        return {block.key: deviation / block.weight for block in self.blocks}


def tally(
    blocks: tuple[Block, ...],
    sizes: tuple[int, ...],
    counts: int,
    codes: NDArray[Any],
    filled: NDArray[np.bool_] | None,
) -> Floats:
    """Weighted counts (..., counts) of these blocks, of records as cells of columns of these sizes; zero where no block
    lies."""
    lead = codes.shape[:-2]
    stack = codes.reshape(prod(lead), *codes.shape[-2:])
    here = np.ones(stack.shape[:2], np.bool_) if filled is None else filled.reshape(stack.shape[:2])
    owner, flat = np.nonzero(here)[0], as_cells(stack[here], sizes)
    found = np.zeros((len(stack), counts))
    for block in blocks:
        place = owner * block.cells + flat[:, block.first] * (block.shape[1] if block.second is not None else 1)
        if block.second is not None:
            place += flat[:, block.second]
        one = np.bincount(place, minlength=len(stack) * block.cells).reshape(len(stack), block.cells)
        found[:, block.start : block.stop] = one * block.weight
    return found.reshape(*lead, counts)

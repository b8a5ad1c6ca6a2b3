"""A second round of counts: which tables are counted again, at what loss, and what both rounds know together.

The first round counts every table with a part of the loss. The second spends the rest on pairs with the target and on
the pairs that stand out most in what the first opened. Which those are is a function of released counts, so it tells
nothing more about anybody, and how many there are and how heavy is public: the sensitivity is the same whatever is
chosen (proof.md, 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from functools import cached_property
from math import fsum, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.federation.declare.consortium import Consortium
from comity.methods.synthetic.layout import Block, Layout, tally
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Noise = Gaussian | Laplace

# Pairs without the target that are counted again, and the first round's part of the loss. Settled on Adult.
PAIRS = 25
FIRST = Decimal("0.4")
# Parts of a loss are rounded down, so that together they never exceed it.
_PARTS = Context(prec=50, rounding=ROUND_FLOOR)


def divided(who: Consortium) -> tuple[Noise, Noise]:
    """The noise of each round: parts of μ², which add up under Gaussian noise, or of a pure ε."""
    if isinstance(who.loss, Pure):
        first, second = _divided(who.loss.epsilon)
        return Laplace(Pure(first)), Laplace(Pure(second))
    first, second = _divided(gaussian_budget(who.loss).square)
    return Gaussian(GDP.squared(first)), Gaussian(GDP.squared(second))


def _divided(whole: Decimal) -> tuple[Decimal, Decimal]:
    first = _PARTS.multiply(whole, FIRST)
    return first, _PARTS.subtract(whole, first)


@dataclass(frozen=True)
class Recount:
    """What is counted again of the tables of `layout`: pairs with the target, and so many others. Pairs of a column
    that follows another stay as they are, because few cells of them are filled."""

    layout: Layout

    def __post_init__(self) -> None:
        if not self.candidates:
            raise StudyError(
                "synthetic.rounds = 2 counts the strongest pairs of columns again, and this schema has no pair beside "
                "those with the target; set rounds = 1, or bring more columns",
                key="synthetic.rounds",
            )

    @cached_property
    def _pairs(self) -> tuple[Block, ...]:
        leading = set(self.layout.leading)
        return tuple(block for block in self.layout.blocks if len(block.key) == 2 and leading.issuperset(block.key))

    @cached_property
    def labelled(self) -> tuple[Block, ...]:
        return tuple(block for block in self._pairs if self.layout.target in block.key)

    @cached_property
    def candidates(self) -> tuple[Block, ...]:
        """Those that the choice is among."""
        return tuple(block for block in self._pairs if self.layout.target not in block.key)

    @property
    def chosen(self) -> int:
        """How many of the candidates are counted again."""
        return min(PAIRS, len(self.candidates))

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """One for each table, whichever are chosen: all candidates weigh the same."""
        return tuple(block.weight for block in (*self.labelled, *self.candidates[: self.chosen]))

    @cached_property
    def counts(self) -> int:
        """As many numbers as the largest tables have, whichever are chosen: the rest is noise alone."""
        largest = sorted((block.cells for block in self.candidates), reverse=True)
        return sum(block.cells for block in self.labelled) + sum(largest[: self.chosen])

    def strongest(self, opened: Floats, deviation: float) -> Integers:
        """The places among the candidates, in their order, of those whose opened counts lie furthest from independent
        columns: by the squared distance from the product of the table's own margins, less what noise of this deviation
        adds to it. Margins are sums of whole numbers on a grid, hence exact, and squares are summed with one rounding:
        the order of a sum, in which machines differ, decides nothing, and every owner finds what the others find."""
        found = [
            _strength(opened[block.start : block.stop].reshape(block.shape), deviation) for block in self.candidates
        ]
        ranked = sorted(range(len(found)), key=lambda place: (-found[place], place))
        return np.array(sorted(ranked[: self.chosen]), np.int64)

    def blocks(self, pairs: Integers) -> tuple[Block, ...]:
        """The blocks of the first round that are counted again, in the order of the second."""
        return (*self.labelled, *(self.candidates[int(place)] for place in pairs))

    def count(self, pairs: Integers, codes: NDArray[Any], filled: NDArray[np.bool_] | None = None) -> Floats:
        """The weighted counts (..., counts) of records that are given as cells (..., n, columns)."""
        placed, start = [], 0
        for block in self.blocks(pairs):
            placed.append(Block(block.first, block.second, block.weight, start, block.shape))
            start += block.cells
        return tally(tuple(placed), self.layout.sizes, self.counts, codes, filled)

    def combined(self, first: Floats, second: Floats, pairs: Integers, deviations: tuple[float, float]) -> Combined:
        """Both rounds as one: a table that was counted twice is the mean of both, weighted by inverse variance."""
        precise = [1 / deviation**2 for deviation in deviations]
        share, factor = precise[1] / sum(precise), sqrt(precise[0] / sum(precise))
        values, narrowed, start = first.copy(), dict.fromkeys(self.layout.keys, 1.0), 0
        for block in self.blocks(pairs):
            here = slice(block.start, block.stop)
            values[here] += share * (second[start : start + block.cells] - first[here])
            narrowed[block.key] = factor
            start += block.cells
        return Combined(values, tuple(narrowed.values()))


@dataclass(frozen=True, eq=False)
class Combined:
    """Weighted counts of all tables, and by block how much narrower their noise is than that of the first round."""

    values: Floats
    narrowed: tuple[float, ...]


def _strength(table: Floats, deviation: float) -> float:
    rows, columns = table.sum(1), table.sum(0)
    expected = np.multiply.outer(rows, columns) / max(float(rows.sum()), 1.0)
    free = (table.shape[0] - 1) * (table.shape[1] - 1)
    return float(fsum(((table - expected) ** 2).ravel().tolist()) - free * deviation**2)

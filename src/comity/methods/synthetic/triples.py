"""Tables of three columns: which are counted, in which groups of cells, and what one record adds.

Pairs leave the mixture free in what three columns have to do with each other. Where noise allows it, another sum counts
triples of columns in few groups of cells. The groups follow from the opened counts of pairs: everyone computes the
same, and how many groups a column has is public. A record lies in one group of each column, whatever the groups are.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import combinations
from math import comb, fsum, prod, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.methods.synthetic.consistency import project_onto_simplex
from comity.methods.synthetic.counts import MAX_COUNTS, Layout, check_cells
from comity.methods.synthetic.edges import choose_edges
from comity.representation import short_repr

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Groups = dict[int, Integers]

# Groups of a column, and whether all triples are counted or those with the target: the first that stay below
# `MAX_COUNTS`. Four groups are as near as five on training records of Adult, credit defaults and bikes at epsilon 10,
# and nearer than three.
_FORMS = ((4, False), (3, False), (4, True), (3, True), (2, True))
# The part of the loss that counts them, and the part where their noise is then at most `_LITTLE_NOISE`: what triples
# still miss is then more than what noise hides of pairs. Of .3 and .5 on training records of Adult, credit defaults and
# bikes: at epsilon 10, .5 brings three columns of credit defaults nearer by 7 % and those of bikes by 1 %; at epsilon 3
# and 1.5, .3 is nearer by 2 % on bikes and by 3 to 5 % on Adult. No dataset was left out for the limit.
TRIPLE_SHARE, LARGER_SHARE, _LITTLE_NOISE = Decimal("0.3"), Decimal("0.5"), 0.015
# Above it, triples cost pairs more than they bring: the deviation of a triple's counts, over all of its groups, as a
# share of the records. Set by hand on training records: at .02, Adult loses 1 to 3 % of three-way distance; at .027,
# bikes gain 4 % and trees .07.
MAX_TRIPLE_NOISE = 0.025
# Records of the target's mean that a category is given before categories are ordered by it. Not tuned on data.
_PRIOR_RECORDS = 50.0
_MAX_COUNT = 2.0**40


@dataclass(frozen=True)
class TripleBlock:
    """The counts of three columns in groups. All triples weigh the same."""

    weight: ClassVar[int] = 1
    key: tuple[int, int, int]
    start: int
    shape: tuple[int, ...]

    @property
    def cells(self) -> int:
        return prod(self.shape)

    @property
    def stop(self) -> int:
        return self.start + self.cells


@dataclass(frozen=True)
class Triples:
    """Triples of the leading columns of `layout`, in at most `groups` groups each; if `labelled`, those with the target
    alone. The target is the first of its triples."""

    __repr__ = short_repr

    layout: Layout
    groups: int
    labelled: bool

    @property
    def columns(self) -> int:
        return self.layout.columns

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The leading columns, the target first."""
        return tuple(sorted(self.layout.leading, key=lambda column: (column != self.layout.target, column)))

    def size(self, column: int) -> int:
        """How many groups a column has, whatever is opened."""
        return min(self.groups, self.layout.sizes[column])

    @cached_property
    def blocks(self) -> tuple[TripleBlock, ...]:
        found, start = list[TripleBlock](), 0
        for key in combinations(self.order, 3):
            with_target = key[0] == self.layout.target
            if with_target or not self.labelled:
                shape = tuple(self.size(column) for column in key)
                found.append(TripleBlock(key, start, shape))
                start = found[-1].stop
        return tuple(found)

    @property
    def counts(self) -> int:
        """The number of counts."""
        return self.blocks[-1].stop

    @property
    def weights(self) -> tuple[int, ...]:
        """The weight of every triple, which one record adds to one of its counts (`Counts`)."""
        return tuple(block.weight for block in self.blocks)

    def choose_groups(self, opened: Floats) -> Groups:
        """The group of every cell, by the opened counts of pairs. Groups hold about equally many records; cells without
        an order are ordered by the target, or by their counts. Everyone finds the same: floats are added, multiplied,
        compared and divided in one order. Any numbers give groups, also those that no honest coordinator sends."""
        finite = np.clip(np.nan_to_num(np.asarray(opened, np.float64)), -_MAX_COUNT, _MAX_COUNT)
        tables = self.layout.tables(finite)
        return {column: self._group_column(column, tables) for column in self.order}

    def _group_column(self, column: int, tables: dict[tuple[int, ...], Floats]) -> Integers:
        size, target = self.layout.sizes[column], self.layout.target
        if size <= self.groups:
            return np.arange(size)
        counts = tables[column,]
        histogram = project_onto_simplex(counts, max(1.0, float(counts.sum())))
        ranks = histogram
        if target is not None and column != target:
            table = tables[min(column, target), max(column, target)]
            ranks = _mean_classes(np.maximum(table if column < target else table.T, 0.0))
        order = np.arange(size) if column in self.layout.ordered else np.argsort(ranks, kind="stable")
        inner = choose_edges(histogram[order], np.zeros(size - 1), self.groups)
        found = np.empty(size, np.int64)
        found[order] = np.searchsorted(np.array(inner) + 1, np.arange(size), side="right")
        return found

    def count(self, groups: Groups, codes: NDArray[Any], filled: NDArray[np.bool_] | None = None) -> Floats:
        """The counts (..., counts), whole numbers, of records given as cells (..., n, columns)."""
        lead = codes.shape[:-2]
        stack = codes.reshape(prod(lead), *codes.shape[-2:])
        here = np.ones(stack.shape[:2], np.bool_) if filled is None else filled.reshape(stack.shape[:2])
        owner, flat = np.nonzero(here)[0], check_cells(stack[here], self.layout.sizes)
        grouped = {column: groups[column][flat[:, column]] for column in self.order}
        found = np.zeros((len(stack), self.counts))
        before: tuple[int, int] | None = None
        for block in self.blocks:
            first, second, third = block.key
            if before != (first, second):
                before = (first, second)
                pair = (owner * block.shape[0] + grouped[first]) * block.shape[1] + grouped[second]
            place = pair * block.shape[2] + grouped[third]
            one = np.bincount(place, minlength=len(stack) * block.cells).reshape(len(stack), block.cells)
            found[:, block.start : block.stop] = one
        return found.reshape(*lead, self.counts)


def find_triples(layout: Layout) -> Triples | None:
    """The triples that are counted where noise allows it; None where there are none or too many."""
    if layout.sparse or layout.reach is not None or len(layout.leading) < 3:
        return None
    for groups, labelled in _FORMS:
        found = Triples(layout, groups, labelled)
        if (layout.target is not None or not labelled) and _bound_counts(found) <= MAX_COUNTS:
            return found
    return None


def _bound_counts(triples: Triples) -> int:
    """At least as many counts as there are, without a list of them."""
    columns = len(triples.order)
    chosen = comb(columns - 1, 2) if triples.labelled else comb(columns, 3)
    return triples.counts if chosen <= MAX_COUNTS // 8 else MAX_COUNTS + 1


def triple_noise(triples: Triples, deviation: float, rows: int) -> float:
    """Deviation of a triple's counts, over all groups, as a share of the records. `deviation` is that of a count."""
    cells = [block.cells for block in triples.blocks]
    return deviation * sqrt(sum(cells) / len(cells)) / rows


def choose_triple_share(triples: Triples, deviation: float, rows: int | None) -> Decimal:
    """The part of the loss that counts triples. `deviation` is that of a count if it is the larger part."""
    if rows is not None and triple_noise(triples, deviation, rows) <= _LITTLE_NOISE:
        return LARGER_SHARE
    return TRIPLE_SHARE


def _mean_classes(table: Floats) -> Floats:
    """The mean place of the target in each row, drawn to that of all rows where a row has few records."""
    records, placed = np.zeros(len(table)), np.zeros(len(table))
    for place in range(table.shape[1]):
        records += table[:, place]
        placed += place * table[:, place]
    mean = fsum(placed.tolist()) / max(1.0, fsum(records.tolist()))
    return np.asarray((placed + _PRIOR_RECORDS * mean) / (records + _PRIOR_RECORDS))


@dataclass(frozen=True, eq=False)
class OpenedTriples:
    """Opened counts of triples, the deviation of the noise in each, and the groups that were counted."""

    __repr__ = short_repr

    triples: Triples
    groups: Groups
    values: Floats
    deviation: float

    def table(self, block: TripleBlock) -> Floats:
        return np.asarray(self.values[block.start : block.stop].reshape(block.shape))

"""What public figures allow of opened tables: every record lies in one cell of each of them.

So without noise no count is negative, all tables have one total, and two tables that share a column agree on how many
records lie in each of its cells. Where the number of records is public the total is that number; where a study declares
a round figure, no table counts more than `FURTHEST` times as many.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.federation.declare.bounds import Range, Weights
from comity.methods.synthetic.layout import Block, Layout

Floats = NDArray[np.float64]

FURTHEST = 4
"""How far a declared number of rows may be from the truth: as much room as averaging gives declared sizes."""


def table_ranges(
    layout: Layout, counts: Floats, *, exactly: int | None = None, about: int | None = None
) -> tuple[Range, ...]:
    """Of the opened, weighted counts of a layout. `exactly` is the number of records where it is public, `about` the
    round figure that a study declares."""
    found = [*_of_totals(layout, counts, exactly, about), *_of_shared_columns(layout, counts)]
    if exactly is not None:
        weights = np.concatenate([np.full(block.cells, float(block.weight)) for block in layout.blocks])
        found.append(Range("every count", counts, 0.0, exactly * weights))
    return tuple(found)


def _of_totals(layout: Layout, counts: Floats, exactly: int | None, about: int | None) -> Iterator[Range]:
    blocks = layout.blocks
    totals = np.array([counts[block.start : block.stop].sum() / block.weight for block in blocks])
    cells, weight = (np.array(of, np.float64) for of in zip(*((block.cells, block.weight) for block in blocks)))
    l1, l2, largest = cells / weight, np.sqrt(cells) / weight, 1 / weight
    own = Weights(l1, l2, largest)
    if exactly is not None:
        yield Range("the number of records in every table", totals, float(exactly), float(exactly), own)
        # All tables together know it better than any of them: each by what its noise leaves of it.
        trust = l2**-2 / (l2**-2).sum()
        mean = Weights(float(trust @ l1), float(np.sqrt((trust**2) @ l2**2)), float((trust * largest).max()))
        what = "the mean number of records in the tables"
        yield Range(what, np.atleast_1d(trust @ totals), float(exactly), float(exactly), mean)
        return
    if about is not None:
        yield Range("the number of records in every table", totals, 0.0, float(FURTHEST * about), own)
    # Beside the table whose total is known best.
    best = int(np.argmin(l2))
    both = Weights(l1 + l1[best], np.hypot(l2, l2[best]), np.maximum(largest, largest[best]))
    yield Range("the number of records in a table, less that in another,", totals - totals[best], 0.0, 0.0, both)


def _of_shared_columns(layout: Layout, counts: Floats) -> Iterator[Range]:
    """The records in each cell of a column, by every table that has the column, beside the table that knows them best:
    each of them adds up fewer cells than the others."""
    for column in range(layout.columns):
        having = [block for block in layout.blocks if column in block.key]
        having.sort(key=lambda block: _of_cell(block, column)[1])
        for block in having[1:]:
            here, there = _of_cell(block, column), _of_cell(having[0], column)
            weights = Weights(here[0] + there[0], sqrt(here[1] ** 2 + there[1] ** 2), max(here[2], there[2]))
            gap = _margin(block, counts, column) - _margin(having[0], counts, column)
            yield Range("the number of records in a cell, less that by another table,", gap, 0.0, 0.0, weights)


def _of_cell(block: Block, column: int) -> tuple[float, float, float]:
    """Norms of the weights by which counts of a table add up to the records in one cell of a column."""
    added = block.cells // block.shape[block.key.index(column)]
    return added / block.weight, sqrt(added) / block.weight, 1 / block.weight


def _margin(block: Block, counts: Floats, column: int) -> Floats:
    table = counts[block.start : block.stop].reshape(block.shape)
    others = tuple(axis for axis, of in enumerate(block.key) if of != column)
    return np.asarray(table.sum(axis=others) / block.weight, np.float64)

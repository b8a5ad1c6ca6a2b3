"""Statistics of the noisy counts, each with the deviation that the noise gives it.

Tables are taken as they were opened, or averaged where several imply the same: unbiased, and possibly negative. The
deviation of a statistic is found by adding noise of the known width to the counts once more, many times, by public
chance: whatever the statistic is, this is post-processing and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.data import Categorical, Classes, Date, Numeric
from comity.entropy import Stream
from comity.errors import DataError
from comity.methods.synthetic.counts import NoisyCounts

Floats = NDArray[np.float64]

DRAWS = 100


class Tables(dict[tuple[int, ...], Floats]):
    """Tables of one set of counts; `singles` keeps what was found about columns, which is asked for again and again."""

    def __init__(self, tables: Mapping[tuple[int, ...], Floats]) -> None:
        super().__init__(tables)
        self.singles: dict[int, Floats] = {}


@dataclass(frozen=True)
class Measured:
    """Values and the deviations that the noise gives them."""

    values: Floats
    deviations: Floats


def measured(counts: NoisyCounts, statistic: Callable[[Tables], Floats]) -> Measured:
    """A statistic of the tables. It must be finite for tables that noise may have made negative."""
    layout = counts.counting.layout
    chance = Stream.public("error bars", counts.digest)
    tried = [statistic(Tables(layout.tables(counts.noised(chance)))) for _ in range(DRAWS)]
    return Measured(np.asarray(statistic(Tables(counts.tables))), np.asarray(np.std(tried, axis=0)))


def single(counts: NoisyCounts, tables: Tables, column: int) -> Floats:
    """Counts of a column: the mean of all tables that imply them, weighted by how well they know them."""
    if column in tables.singles:
        return tables.singles[column]
    weighted, weight = np.zeros(counts.counting.layout.sizes[column]), 0.0
    for key, table in tables.items():
        if column in key:
            other = 1 if len(key) == 1 else table.shape[1 - key.index(column)]
            margin = table if len(key) == 1 else table.sum(axis=1 - key.index(column))
            precision = 1 / (other * counts.deviations[key] ** 2)
            weighted, weight = weighted + precision * margin, weight + precision
    tables.singles[column] = np.asarray(weighted / weight)
    return tables.singles[column]


def pair(counts: NoisyCounts, tables: Tables, one: int, other: int) -> Floats:
    """Counts of a pair of columns, the first along rows; refused where they were not counted."""
    key = (min(one, other), max(one, other))
    if key not in tables:
        names = counts.counting.cells.names
        raise DataError(
            f"{names[one]!r} and {names[other]!r} were not counted together in this release; choose columns that were "
            "(with naive-bayes only pairs with the target are, and a column that follows another only with that one)",
            key=names[other],
        )
    return np.asarray(tables[key] if one < other else tables[key].T)


def middles(counts: NoisyCounts, column: int) -> Floats | None:
    """The value in the middle of each cell of a number, in its own units, days for dates, places for an order; NaN for
    missing values; None where cells have no order. Of two classes the second is 1."""
    cells = counts.counting.cells
    kind, size = cells.columns[column], cells.sizes[column]
    if isinstance(kind, Categorical | Classes):
        return np.arange(2.0) if size == 2 else None
    found = np.full(size, np.nan)
    ordered, edges = cells.ordered[column], cells.edges(column)
    if edges is None:
        found[:ordered] = np.arange(ordered)
    elif isinstance(kind, Numeric):
        low, high = kind.on_scale(edges[:-1]), kind.on_scale(np.minimum(edges[1:], kind.high))
        found[:ordered] = kind.off_scale((low + high) / 2) if kind.scale == "log" else (low + high) / 2
    else:
        found[:ordered] = (edges[:-1] + edges[1:] - isinstance(kind, Date)) / 2
    return found


def place_of(counts: NoisyCounts, name: str) -> int:
    names = counts.counting.cells.names
    if name not in names:
        raise DataError(f"{name!r} is no column of this dataset; choose one of {', '.join(names)}", key=name)
    return names.index(name)

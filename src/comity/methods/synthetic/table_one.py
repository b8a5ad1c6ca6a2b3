"""Table 1 of a study from its noisy counts: counts, shares, means and quantiles of every column, by group if asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.table import Table
from comity.methods.synthetic.counts import NoisyCounts
from comity.methods.synthetic.moments import Tables, measured, middles, pair, place_of, single

Floats = NDArray[np.float64]

QUANTILES = (0.25, 0.5, 0.75)
HEADS = ("group", "column", "figure", "value", "deviation")


def table_one(counts: NoisyCounts, by: str | None = None) -> Table:
    """A row for every figure with the deviation that the noise gives it. `by` names a column whose cells are groups;
    columns that were not counted with it are left out."""
    names = counts.counting.cells.names
    rows: list[tuple[str | float, ...]] = []
    if by is None:
        for column in range(len(names)):
            rows += _of_column(counts, "all", column, partial(_whole, counts, column))
    else:
        group = place_of(counts, by)
        together = {key for key in counts.tables if group in key and len(key) == 2}
        for cell, label in enumerate(counts.counting.cells.labels(group)):
            for column in range(len(names)):
                if column != group and (min(group, column), max(group, column)) in together:
                    named = f"{by} = {label}"
                    rows += _of_column(counts, named, column, partial(_within, counts, column, group, cell))
    of = f" by {by}" if by is not None else ""
    return Table(HEADS, tuple(rows), f"Counts, shares, means and quantiles{of}, with the deviation of their noise")


def _whole(counts: NoisyCounts, column: int, tables: Tables) -> Floats:
    return single(counts, tables, column)


def _within(counts: NoisyCounts, column: int, group: int, cell: int, tables: Tables) -> Floats:
    return np.asarray(pair(counts, tables, group, column)[cell])


def _of_column(
    counts: NoisyCounts, group: str, column: int, of: Callable[[Tables], Floats]
) -> list[tuple[str | float, ...]]:
    cells = counts.counting.cells
    name, middle = cells.names[column], middles(counts, column)
    ordered = cells.ordered.get(column)
    numeric = middle is not None and ordered is not None and cells.edges(column) is not None

    def statistic(tables: Tables) -> Floats:
        table = of(tables)
        total = max(float(table.sum()), 1.0)
        parts = [table, table / total]
        if numeric:
            assert middle is not None and ordered is not None
            parts.append(_described(table[:ordered], middle[:ordered], _edges(counts, column)))
        return np.concatenate(parts)

    found = measured(counts, statistic)
    figures = [(f"{name} = {label}", "count") for label in cells.labels(column)]
    figures += [(f"{name} = {label}", "share") for label in cells.labels(column)]
    if numeric:
        figures += [(name, "mean"), *((name, f"quantile {share:.0%}") for share in QUANTILES)]
    return [
        (group, about, figure, float(value), float(deviation))
        for (about, figure), value, deviation in zip(figures, found.values, found.deviations)
    ]


def _edges(counts: NoisyCounts, column: int) -> Floats:
    edges = counts.counting.cells.edges(column)
    assert edges is not None
    return edges


def _described(table: Floats, middle: Floats, edges: Floats) -> Floats:
    """Mean and quantiles of a number that is uniform inside its cells."""
    total = float(table.sum())
    if total < 1:
        return np.full(1 + len(QUANTILES), float(middle.mean()))
    share = np.maximum(table, 0)
    reached = np.concatenate([[0.0], np.cumsum(share) / share.sum()])
    # A table whose noise outweighs it may lead out of the bounds, which are public.
    mean = np.clip(float(table @ middle) / total, edges[0], edges[-1])
    return np.array([mean, *np.interp(QUANTILES, reached, edges)])

"""Statistics of noisy counts with error bars: Table 1, correlations, least squares.

A statistic reads the tables as they were opened, or their mean where several imply the same. It is unbiased and
possibly negative. Its deviation is measured by adding noise of the known width to the counts many times, with public
randomness. All of this is post-processing and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.table import Table
from comity.data import Categorical, Classes, Date, Numeric
from comity.entropy import Stream
from comity.errors import DataError
from comity.methods.synthetic.artefact import NoisyCounts
from comity.methods.synthetic.consistency import estimate_column

Floats = NDArray[np.float64]

NOISE_DRAWS = 100


class Tables:
    """The tables of one set of weighted counts: as opened, or with noise added once more."""

    def __init__(self, counts: NoisyCounts, values: Floats) -> None:
        self.counts = counts
        self.by_key = counts.counting.layout.tables(values)
        self._columns: dict[int, Floats] = {}

    def column(self, column: int) -> Floats:
        """Counts of a column, estimated from all tables that imply them."""
        if column not in self._columns:
            self._columns[column] = estimate_column(column, self.by_key, self.counts.deviations)
        return self._columns[column]

    def pair(self, one: int, other: int) -> Floats:
        """Counts of a pair of columns, the first along rows. Raises if they were not counted together."""
        key = (min(one, other), max(one, other))
        if key not in self.by_key:
            names = self.counts.counting.cells.names
            raise DataError(
                f"{names[one]!r} and {names[other]!r} were not counted together in this release; choose columns that "
                "were (with naive-bayes only pairs with the target are, of very many columns also some others, and a "
                "column that follows another only with that one)",
                key=names[other],
            )
        return np.asarray(self.by_key[key] if one < other else self.by_key[key].T)

    @property
    def records(self) -> float:
        """The number of records, by the last leading column."""
        return max(1.0, float(self.column(self.counts.counting.layout.leading[-1]).sum()))

    def shares(self, term: Term) -> Floats:
        """The share of records in each cell of the term's column, without missing values."""
        known = np.where(np.isnan(term.of_cells), 0.0, np.maximum(self.column(term.column), 0.0))
        return np.asarray(known / max(1.0, float(known.sum())))

    def mean(self, term: Term) -> float:
        return float(self.shares(term) @ np.nan_to_num(term.of_cells))

    def deviation(self, term: Term) -> float:
        centred = np.nan_to_num(term.of_cells) - self.mean(term)
        # One record alone would make a column vary by this much.
        least = float(np.ptp(np.nan_to_num(term.of_cells))) / max(1.0, self.records)
        return max(float(np.sqrt(self.shares(term) @ centred**2)), least, 1e-12)

    def standardise(self, term: Term) -> Floats:
        """Cell values with mean 0 and deviation 1, which keeps the noise of a pair smallest. Missing values count as
        the mean."""
        return np.asarray(np.nan_to_num((term.of_cells - self.mean(term)) / self.deviation(term)))

    def correlations(self, terms: Sequence[Term]) -> Floats:
        matrix = np.eye(len(terms))
        centred = [self.standardise(term) for term in terms]
        for i, one in enumerate(terms):
            for j, other in enumerate(terms[:i]):
                if one.column == other.column:
                    value = self.shares(one) @ (centred[i] * centred[j])
                else:
                    value = centred[i] @ self.pair(one.column, other.column) @ centred[j] / self.records
                matrix[i, j] = matrix[j, i] = value
        return matrix


@dataclass(frozen=True)
class Term:
    """One term of a regression: a column's value in its units, or the indicator of one of its cells."""

    name: str
    column: int
    of_cells: Floats


@dataclass(frozen=True)
class Measured:
    """Values and their deviations by noise."""

    values: Floats
    deviations: Floats


def measure(counts: NoisyCounts, statistic: Callable[[Tables], Floats]) -> Measured:
    """A statistic of the tables and its deviation. It must be finite for tables that noise makes negative."""
    stream = Stream.public("error bars", counts.digest)
    draws = [statistic(Tables(counts, counts.add_noise(stream))) for _ in range(NOISE_DRAWS)]
    return Measured(np.asarray(statistic(Tables(counts, counts.values))), np.asarray(np.std(draws, axis=0)))


def cell_middles(counts: NoisyCounts, column: int) -> Floats | None:
    """The middle of each cell: in units of a number, days of a date, ranks of an order; NaN for missing values. None
    where cells have no order. Of two classes the second is 1. Where edges were measured, the mean of the cell's values
    by the narrow counts takes the place of its middle."""
    cells = counts.counting.cells
    kind, size = cells.columns[column], cells.sizes[column]
    if isinstance(kind, Categorical | Classes):
        return np.arange(2.0) if size == 2 else None
    found = np.full(size, np.nan)
    ordered, edges = cells.ordered[column], cells.edges(column)
    means = counts.means_of_cells(column)
    if edges is None:
        found[:ordered] = np.arange(ordered)
    elif means is not None:
        found[:ordered] = means[:ordered]
    elif isinstance(kind, Numeric):
        low, high = kind.on_scale(edges[:-1]), kind.on_scale(np.minimum(edges[1:], kind.high))
        found[:ordered] = kind.off_scale((low + high) / 2) if kind.scale == "log" else (low + high) / 2
    else:
        found[:ordered] = (edges[:-1] + edges[1:] - isinstance(kind, Date)) / 2
    return found


def find_column(counts: NoisyCounts, name: str) -> int:
    names = counts.counting.cells.names
    if name not in names:
        raise DataError(f"{name!r} is no column of this dataset; choose one of {', '.join(names)}", key=name)
    return names.index(name)


# Table 1: counts, shares, means and quantiles of every column, by group if asked.

QUANTILES = (0.25, 0.5, 0.75)
HEADS = ("group", "column", "figure", "value", "deviation")


def table_one(counts: NoisyCounts, by: str | None = None) -> Table:
    """A row for every figure with its deviation by noise. `by` names a column whose cells are groups; columns that were
    not counted with it are left out."""
    names = counts.counting.cells.names
    rows: list[tuple[str | float, ...]] = []
    if by is None:
        for column in range(len(names)):
            rows += _describe_column(counts, "all", column, partial(Tables.column, column=column))
    else:
        group = find_column(counts, by)
        together = {key for key in counts.tables if group in key and len(key) == 2}
        for cell, label in enumerate(counts.counting.cells.labels(group)):
            for column in range(len(names)):
                if column != group and (min(group, column), max(group, column)) in together:
                    named = f"{by} = {label}"
                    rows += _describe_column(counts, named, column, partial(_count_group, column, group, cell))
    of = f" by {by}" if by is not None else ""
    return Table(HEADS, tuple(rows), f"Counts, shares, means and quantiles{of}, with the deviation of their noise")


def _count_group(column: int, group: int, cell: int, tables: Tables) -> Floats:
    return np.asarray(tables.pair(group, column)[cell])


def _describe_column(
    counts: NoisyCounts, group: str, column: int, of: Callable[[Tables], Floats]
) -> list[tuple[str | float, ...]]:
    cells = counts.counting.cells
    name, middle = cells.names[column], cell_middles(counts, column)
    ordered = cells.ordered.get(column)
    edges = cells.edges(column)

    def statistic(tables: Tables) -> Floats:
        table = of(tables)
        total = max(float(table.sum()), 1.0)
        parts = [table, table / total]
        if middle is not None and ordered is not None and edges is not None:
            parts.append(_describe_number(table[:ordered], middle[:ordered], edges))
        return np.concatenate(parts)

    found = measure(counts, statistic)
    figures = [(f"{name} = {label}", "count") for label in cells.labels(column)]
    figures += [(f"{name} = {label}", "share") for label in cells.labels(column)]
    if middle is not None and ordered is not None and edges is not None:
        figures += [(name, "mean"), *((name, f"quantile {share:.0%}") for share in QUANTILES)]
    return [
        (group, about, figure, float(value), float(deviation))
        for (about, figure), value, deviation in zip(figures, found.values, found.deviations)
    ]


def _describe_number(table: Floats, middle: Floats, edges: Floats) -> Floats:
    """Mean and quantiles, taking the number as uniform inside its cells."""
    total = float(table.sum())
    if total < 1:
        return np.full(1 + len(QUANTILES), float(middle.mean()))
    share = np.maximum(table, 0)
    reached = np.concatenate([[0.0], np.cumsum(share) / share.sum()])
    # Strong noise may lead out of the public bounds.
    mean = np.clip(float(table @ middle) / total, edges[0], edges[-1])
    return np.array([mean, *np.interp(QUANTILES, reached, edges)])


# Correlations and least squares.

# 95 % of a standard normal variable lie within.
_NORMAL_95 = 1.959964
# The least eigenvalue of the explaining terms' correlations must be this many times what noise moves it by, measured by
# this many draws. Not tuned on data.
_MIN_EIGENVALUE, _EIGENVALUE_DRAWS = 2.0, 20


def tabulate_correlations(counts: NoisyCounts) -> Table:
    """Correlations of all columns whose cells have an order and that were counted together, with deviations by
    noise."""
    names = counts.counting.cells.names
    used = {k: Term(names[k], k, middle) for k in range(len(names)) if (middle := cell_middles(counts, k)) is not None}
    keys = [key for key in counts.tables if len(key) == 2 and key[0] in used and key[1] in used]
    if not keys:
        raise DataError("no two columns with an order were counted together in this release")

    def statistic(tables: Tables) -> Floats:
        centred = {k: tables.standardise(term) for k, term in used.items()}
        return np.array(
            [np.clip(tables.by_key[i, j] @ centred[j] @ centred[i] / tables.records, -1, 1) for i, j in keys]
        )

    found = measure(counts, statistic)
    rows = tuple(
        (names[i], names[j], float(value), float(deviation))
        for (i, j), value, deviation in zip(keys, found.values, found.deviations)
    )
    about = "Correlations with the deviation of their noise"
    return Table(("column", "other", "correlation", "deviation"), rows, about)


def tabulate_regression(counts: NoisyCounts, target: str, on: Sequence[str] | None = None) -> Table:
    """Least squares of an ordered column on all others, or on the columns `on`, from the counts alone.

    Numbers enter by the middle of their cells, categories as one term for each value but the first. In about 95 of 100
    releases an interval holds the coefficient that the records would give in those cells. `sampling` is the deviation
    that another sample of records would add. Where noise covers the differences between columns, no such interval
    exists and the regression is refused.
    """
    of, layout, names = find_column(counts, target), counts.counting.layout, counts.counting.cells.names
    middles = cell_middles(counts, of)
    if middles is None or np.isnan(middles).any():
        raise DataError(
            f"least squares can't explain {target!r}, which has no order or has missing values; choose a number",
            key=target,
        )
    columns = [find_column(counts, name) for name in on] if on else [k for k in layout.leading if k != of]
    if of in columns:
        raise DataError(f"{target!r} can't explain itself; leave it out", key=target)
    explained, opened = Term(target, of, middles), Tables(counts, counts.values)
    terms = [one for k in columns for one in _list_terms(counts, k)]
    for k, one in enumerate(columns):
        for other in (*columns[:k], of):
            opened.pair(one, other)

    def correlate(tables: Tables) -> Floats:
        return tables.correlations([*terms, explained])

    matrix = correlate(opened)
    stream = Stream.public("conditioning", counts.digest)
    moved = [
        np.linalg.norm(correlate(Tables(counts, counts.add_noise(stream)))[:-1, :-1] - matrix[:-1, :-1], 2)
        for _ in range(_EIGENVALUE_DRAWS)
    ]
    if np.linalg.eigvalsh(matrix[:-1, :-1])[0] < _MIN_EIGENVALUE * float(np.mean(moved)):
        raise DataError(
            f"noise covers the differences between the {len(terms)} terms, and no interval would hold; name fewer "
            f"columns, those that vary most, among {', '.join(names[k] for k in columns)}",
            key=target,
        )

    def solve(tables: Tables) -> Floats:
        correlated = correlate(tables)
        slopes = np.linalg.solve(correlated[:-1, :-1], correlated[:-1, -1])
        widths = np.array([tables.deviation(one) for one in terms])
        slopes = slopes / widths * tables.deviation(explained)
        means = np.array([tables.mean(one) for one in terms])
        return np.concatenate([[tables.mean(explained) - means @ slopes], slopes])

    found = measure(counts, solve)
    inverse = np.linalg.inv(matrix[:-1, :-1])
    left = max(0.0, 1 - float(matrix[:-1, -1] @ inverse @ matrix[:-1, -1]))
    widths = np.array([opened.deviation(one) for one in terms])
    sampled = np.sqrt(np.diag(inverse) * left / counts.records) / widths * opened.deviation(explained)
    rows: list[tuple[str | float | None, ...]] = []
    for name, value, noise, sampling in zip(
        ("(intercept)", *(one.name for one in terms)), found.values, found.deviations, (None, *sampled.tolist())
    ):
        low, high = float(value - _NORMAL_95 * noise), float(value + _NORMAL_95 * noise)
        rows.append((name, float(value), float(noise), low, high, sampling))
    heads = ("term", "coefficient", "deviation", "low", "high", "sampling")
    return Table(heads, tuple(rows), f"Least squares of {target}, 95 % intervals for the noise")


def _list_terms(counts: NoisyCounts, column: int) -> list[Term]:
    cells, middle = counts.counting.cells, cell_middles(counts, column)
    name, size = cells.names[column], cells.sizes[column]
    if column in cells.ordered and middle is not None:
        missing = np.isnan(middle)
        found = [Term(name, column, np.where(missing, 0.0, middle))]
        return found + ([Term(f"{name} = (missing)", column, missing.astype(float))] if missing.any() else [])
    labels = cells.labels(column)
    return [Term(f"{name} = {labels[cell]}", column, np.eye(size)[cell]) for cell in range(1, size)]

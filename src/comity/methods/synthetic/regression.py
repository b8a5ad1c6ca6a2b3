"""Correlations and least squares from noisy two-way counts, with error bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.table import Table
from comity.entropy import Stream
from comity.errors import DataError
from comity.methods.synthetic.counts import NoisyCounts
from comity.methods.synthetic.moments import Tables, measured, middles, pair, place_of, single

Floats = NDArray[np.float64]

# Of a normal variable: 95 of 100 lie within.
_WITHIN = 1.959964
# The least eigenvalue of what explains must be so many times what noise moves it by. Not tuned on data.
_CLEAR, _TRIED = 2.0, 20


def correlation_table(counts: NoisyCounts) -> Table:
    """Between all columns whose cells have an order and that were counted together, with the deviation of the noise."""
    names = counts.counting.cells.names
    used = {k: Entry(names[k], k, middle) for k in range(len(names)) if (middle := middles(counts, k)) is not None}
    keys = [key for key in counts.tables if len(key) == 2 and key[0] in used and key[1] in used]
    if not keys:
        raise DataError("no two columns with an order were counted together in this release")

    def statistic(tables: Tables) -> Floats:
        centred = {k: _centred(counts, tables, entry) for k, entry in used.items()}
        return np.array(
            [np.clip(tables[i, j] @ centred[j] @ centred[i] / _size(counts, tables), -1, 1) for i, j in keys]
        )

    found = measured(counts, statistic)
    rows = tuple(
        (names[i], names[j], float(value), float(deviation))
        for (i, j), value, deviation in zip(keys, found.values, found.deviations)
    )
    about = "Correlations with the deviation of their noise"
    return Table(("column", "other", "correlation", "deviation"), rows, about)


@dataclass(frozen=True)
class Entry:
    """One entry of a row: a column's value in its own units, or that it lies in one of its cells."""

    name: str
    column: int
    of_cells: Floats


def regression_table(counts: NoisyCounts, target: str, on: Sequence[str] | None = None) -> Table:
    """Least squares of an ordered column on others, or on those that are named, from the counts alone.

    Numbers enter by the middle of their cells, categories as one entry for each but the first. An interval holds the
    coefficient that the records themselves would give in those cells, in about 95 of 100 releases; `sampling` is the
    deviation that another sample of records would add. Where noise covers what tells columns apart there is no such
    interval, and the regression is refused.
    """
    of, layout, names = place_of(counts, target), counts.counting.layout, counts.counting.cells.names
    told = middles(counts, of)
    if told is None or np.isnan(told).any():
        raise DataError(
            f"{target!r} has no order, or missing values, so that least squares can't explain it; choose a number",
            key=target,
        )
    columns = [place_of(counts, name) for name in on] if on else [k for k in layout.leading if k != of]
    if of in columns:
        raise DataError(f"{target!r} is explained by itself; leave it out", key=target)
    explained, opened = Entry(target, of, told), Tables(counts.tables)
    entries = [one for k in columns for one in _entries(counts, k)]
    for k, one in enumerate(columns):
        for other in (*columns[:k], of):
            pair(counts, opened, one, other)

    def correlated(tables: Tables) -> Floats:
        return _correlations(counts, tables, [*entries, explained])

    matrix = correlated(opened)
    chance = Stream.public("conditioning", counts.digest)
    moved = [
        np.linalg.norm(correlated(Tables(layout.tables(counts.noised(chance))))[:-1, :-1] - matrix[:-1, :-1], 2)
        for _ in range(_TRIED)
    ]
    if np.linalg.eigvalsh(matrix[:-1, :-1])[0] < _CLEAR * float(np.mean(moved)):
        raise DataError(
            f"noise covers what tells the {len(entries)} terms apart, so that no interval for them would hold; name "
            f"fewer columns, of those that vary most, among {', '.join(names[k] for k in columns)}",
            key=target,
        )

    def solved(tables: Tables) -> Floats:
        found = correlated(tables)
        slopes = np.linalg.solve(found[:-1, :-1], found[:-1, -1])
        widths = np.array([_deviation(counts, tables, one) for one in entries])
        slopes = slopes / widths * _deviation(counts, tables, explained)
        means = np.array([_mean(counts, tables, one) for one in entries])
        return np.concatenate([[_mean(counts, tables, explained) - means @ slopes], slopes])

    found = measured(counts, solved)
    inverse = np.linalg.inv(matrix[:-1, :-1])
    left = max(0.0, 1 - float(matrix[:-1, -1] @ inverse @ matrix[:-1, -1]))
    width = np.array([_deviation(counts, opened, one) for one in entries])
    drawn = np.sqrt(np.diag(inverse) * left / counts.records) / width * _deviation(counts, opened, explained)
    rows: list[tuple[str | float | None, ...]] = []
    for name, value, noise, sampling in zip(
        ("(intercept)", *(one.name for one in entries)), found.values, found.deviations, (None, *drawn.tolist())
    ):
        low, high = float(value - _WITHIN * noise), float(value + _WITHIN * noise)
        rows.append((name, float(value), float(noise), low, high, sampling))
    heads = ("term", "coefficient", "deviation", "low", "high", "sampling")
    return Table(heads, tuple(rows), f"Least squares of {target}, 95 % intervals for the noise")


def _entries(counts: NoisyCounts, column: int) -> list[Entry]:
    cells, middle = counts.counting.cells, middles(counts, column)
    name, size = cells.names[column], cells.sizes[column]
    if column in cells.ordered and middle is not None:
        missing = np.isnan(middle)
        found = [Entry(name, column, np.where(missing, 0.0, middle))]
        return found + ([Entry(f"{name} = (missing)", column, missing.astype(float))] if missing.any() else [])
    labels = cells.labels(column)
    return [Entry(f"{name} = {labels[cell]}", column, np.eye(size)[cell]) for cell in range(1, size)]


def _size(counts: NoisyCounts, tables: Tables) -> float:
    """Of all records, by the column that is known best."""
    return max(1.0, float(single(counts, tables, counts.counting.layout.leading[-1]).sum()))


def _shares(counts: NoisyCounts, tables: Tables, entry: Entry) -> Floats:
    known = np.where(np.isnan(entry.of_cells), 0.0, np.maximum(single(counts, tables, entry.column), 0.0))
    return np.asarray(known / max(1.0, float(known.sum())))


def _mean(counts: NoisyCounts, tables: Tables, entry: Entry) -> float:
    return float(_shares(counts, tables, entry) @ np.nan_to_num(entry.of_cells))


def _deviation(counts: NoisyCounts, tables: Tables, entry: Entry) -> float:
    apart = np.nan_to_num(entry.of_cells) - _mean(counts, tables, entry)
    # No column varies by less than one record would make it.
    least = float(np.ptp(np.nan_to_num(entry.of_cells))) / max(1.0, _size(counts, tables))
    return max(float(np.sqrt(_shares(counts, tables, entry) @ apart**2)), least, 1e-12)


def _centred(counts: NoisyCounts, tables: Tables, entry: Entry) -> Floats:
    """Values of the cells on the column's own scale: noise in a pair then weighs as little as it can. Missing values
    count as the mean."""
    scaled = (entry.of_cells - _mean(counts, tables, entry)) / _deviation(counts, tables, entry)
    return np.asarray(np.nan_to_num(scaled))


def _correlations(counts: NoisyCounts, tables: Tables, entries: Sequence[Entry]) -> Floats:
    size, found = _size(counts, tables), np.eye(len(entries))
    centred = [_centred(counts, tables, one) for one in entries]
    for i, one in enumerate(entries):
        for j, other in enumerate(entries[:i]):
            if one.column == other.column:
                value = _shares(counts, tables, one) @ (centred[i] * centred[j])
            else:
                value = centred[i] @ pair(counts, tables, one.column, other.column) @ centred[j] / size
            found[i, j] = found[j, i] = value
    return found

"""From noisy counts to tables that agree: the number of records, each column's counts, each pair's interaction.

Everything here reads released counts alone: it costs nothing, and anyone may repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from comity.methods.synthetic.counts import Layout

Floats = NDArray[np.float64]
Tables = Mapping[tuple[int, ...], Floats]


@dataclass(frozen=True)
class ConsistentTables:
    """Counts that agree: `singles` and `pairs` are non-negative and add up to `total` records. `noisy` are the counts
    as opened, `deviation` is that of each table's cells."""

    total: float
    singles: Mapping[int, Floats]
    pairs: Mapping[tuple[int, int], Floats]
    noisy: Tables
    deviation: Mapping[tuple[int, ...], float]

    @property
    def narrowest(self) -> float:
        """The smallest deviation of a pair."""
        pairs = [sigma for pair, sigma in self.deviation.items() if len(pair) == 2]
        return min(pairs or self.deviation.values())


def make_consistent(
    layout: Layout, noisy: Tables, deviation: Mapping[tuple[int, ...], float], total: float | None = None
) -> ConsistentTables:
    """Estimate each number by the mean of all tables that imply it, weighted by inverse variance.

    `total` is the number of records where it is public; otherwise it is estimated too.
    """
    known = total if total is not None else _estimate_total(noisy, deviation)
    known = max(known, 1.0)
    singles = {k: project_onto_simplex(estimate_column(k, noisy, deviation), known) for k in range(layout.columns)}
    pairs = {}
    for pair, table in noisy.items():
        if len(pair) == 2:
            i, j = pair
            pairs[i, j] = add_interaction(np.outer(singles[i], singles[j]) / known, table, deviation[pair])
    return ConsistentTables(known, singles, pairs, noisy, dict(deviation))


def _estimate_total(noisy: Tables, deviation: Mapping[tuple[int, ...], float]) -> float:
    precise = {key: 1 / (table.size * deviation[key] ** 2) for key, table in noisy.items()}
    return float(sum(precise[key] * table.sum() for key, table in noisy.items()) / sum(precise.values()))


def estimate_column(column: int, noisy: Tables, deviation: Mapping[tuple[int, ...], float]) -> Floats:
    """Counts of a column: the mean of all tables that imply them, weighted by inverse variance. Summing a pair over the
    other column multiplies the variance by that column's number of cells."""
    weighted, weight = np.zeros(1), 0.0
    for key, table in noisy.items():
        if column in key:
            axis = 1 - key.index(column) if len(key) == 2 else None
            margin = table if axis is None else table.sum(axis=axis)
            precision = 1 / ((1 if axis is None else table.shape[axis]) * deviation[key] ** 2)
            weighted, weight = weighted + precision * margin, weight + precision
    return np.asarray(weighted / weight)


def add_interaction(expected: Floats, table: Floats, deviation: float) -> Floats:
    """The expected table plus the part of the noisy table's interaction that stands out of the noise."""
    return project_onto_simplex(
        expected + shrink_singular_values(double_centre(table - expected), deviation), float(expected.sum())
    )


def double_centre(table: Floats) -> Floats:
    """The table without its row and column effects."""
    return np.asarray(table - table.mean(0, keepdims=True) - table.mean(1, keepdims=True) + table.mean())


def shrink_singular_values(table: Floats, deviation: float) -> Floats:
    """Shrink singular values optimally in the Frobenius norm for white noise of a known deviation (Gavish and Donoho
    2017). A centred table has one row and one column less of noise."""
    rows, columns = (max(1, size - 1) for size in sorted(table.shape))
    u, s, v = np.linalg.svd(table, full_matrices=False)
    unit = deviation * sqrt(columns)
    beta = rows / columns
    y = s / unit
    inside = np.maximum((y**2 - beta - 1) ** 2 - 4 * beta, 0)
    kept = np.where(y > 1 + sqrt(beta), unit * np.sqrt(inside) / np.maximum(y, 1e-300), 0)
    return np.asarray((u * kept) @ v)


def denoise_determined(table: Floats, deviation: float) -> Floats:
    """Denoise a table whose columns follow from its rows, so few cells are filled. Each row keeps the cells above the
    largest value expected from this many cells of pure noise, or else its largest cell.

    A column that no row keeps is too rare to stand out. It belongs to the row where it is largest, and takes a part of
    what that row has beyond the cells that it keeps, a sum that noise moves less than its parts.
    """
    kept = np.where(table > deviation * sqrt(2 * log(max(2, table.size))), table, 0.0)
    rare = np.nonzero(~kept.any(0))[0]
    owners, found = table[:, rare].argmax(0), np.maximum(table[:, rare].max(0), 0.0)
    for row in np.unique(owners):
        mine = owners == row
        beyond = float(table[row][kept[row] == 0].sum())
        share = min(1.0, max(0.0, beyond) / max(float(found[mine].sum()), 1e-300))
        kept[row, rare[mine]] = found[mine] * share
    largest = table == table.max(1, keepdims=True)
    return np.where(kept.any(1, keepdims=True), kept, largest.astype(np.float64))


def project_onto_simplex(table: Floats, total: float) -> Floats:
    """The nearest non-negative table that adds up to the total."""
    flat = table.ravel()
    ordered = np.sort(flat)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(flat) + 1)
    place = np.nonzero(ordered > excess)[0][-1]
    return np.asarray(np.maximum(flat - excess[place], 0)).reshape(table.shape)

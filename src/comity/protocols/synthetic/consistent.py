"""From noisy counts to what they agree on: the number of records, every column's counts, every pair's interaction.

Everything here reads released counts alone, so that it costs nothing and may be done again by anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.protocols.synthetic.layout import Layout

Floats = NDArray[np.float64]
Tables = Mapping[tuple[int, ...], Floats]


@dataclass(frozen=True)
class Consistent:
    """`total` records; `singles` and `pairs` are non-negative and add up to it. `deviation` is that of a raw count."""

    total: float
    singles: Mapping[int, Floats]
    pairs: Mapping[tuple[int, int], Floats]
    deviation: Mapping[tuple[int, ...], float]

    @property
    def narrowest(self) -> float:
        """Deviation of the pair that is known best."""
        pairs = [sigma for pair, sigma in self.deviation.items() if len(pair) == 2]
        return min(pairs or self.deviation.values())


def agree(
    layout: Layout, noisy: Tables, deviation: Mapping[tuple[int, ...], float], total: float | None = None
) -> Consistent:
    """Each number as the mean of all the tables that imply it, weighted by how well they know it.

    `total` is the number of records where it is public; else it is estimated with the rest.
    """
    known = total if total is not None else _total(noisy, deviation)
    known = max(known, 1.0)
    singles = {k: _single(k, noisy, deviation, known) for k in range(layout.columns)}
    pairs = {}
    for pair, table in noisy.items():
        if len(pair) == 2:
            i, j = pair
            expected = np.outer(singles[i], singles[j]) / known
            shrunk = shrink(centred(table - expected), deviation[pair])
            pairs[i, j] = onto_simplex(expected + shrunk, known)
    return Consistent(known, singles, pairs, dict(deviation))


def _total(noisy: Tables, deviation: Mapping[tuple[int, ...], float]) -> float:
    precise = {key: 1 / (table.size * deviation[key] ** 2) for key, table in noisy.items()}
    return float(sum(precise[key] * table.sum() for key, table in noisy.items()) / sum(precise.values()))


def _single(column: int, noisy: Tables, deviation: Mapping[tuple[int, ...], float], total: float) -> Floats:
    """Summing a pair over the other column adds that column's number of cells in variance."""
    weighted, weight = np.zeros(1), 0.0
    for key, table in noisy.items():
        if column in key:
            axis = 1 - key.index(column) if len(key) == 2 else None
            margin = table if axis is None else table.sum(axis=axis)
            precision = 1 / ((1 if axis is None else table.shape[axis]) * deviation[key] ** 2)
            weighted, weight = weighted + precision * margin, weight + precision
    return onto_simplex(np.asarray(weighted / weight), total)


def centred(table: Floats) -> Floats:
    """What is left of a table without its row and column effects."""
    return np.asarray(table - table.mean(0, keepdims=True) - table.mean(1, keepdims=True) + table.mean())


def shrink(table: Floats, deviation: float) -> Floats:
    """Singular values shrunk as is best in the Frobenius norm for white noise of a known deviation (Gavish and Donoho
    2017). A centred table has one row and one column less of it."""
    rows, columns = (max(1, size - 1) for size in sorted(table.shape))
    u, s, v = np.linalg.svd(table, full_matrices=False)
    unit = deviation * sqrt(columns)
    beta = rows / columns
    y = s / unit
    inside = np.maximum((y**2 - beta - 1) ** 2 - 4 * beta, 0)
    kept = np.where(y > 1 + sqrt(beta), unit * np.sqrt(inside) / np.maximum(y, 1e-300), 0)
    return np.asarray((u * kept) @ v)


def onto_simplex(table: Floats, total: float) -> Floats:
    """The nearest table without negative counts that adds up to the total."""
    flat = table.ravel()
    ordered = np.sort(flat)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(flat) + 1)
    place = np.nonzero(ordered > excess)[0][-1]
    return np.asarray(np.maximum(flat - excess[place], 0)).reshape(table.shape)

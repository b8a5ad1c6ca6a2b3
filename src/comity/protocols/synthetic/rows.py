"""Rows from a mixture, by systematic rounding: no count is further than one from its share within a component."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.protocols.synthetic.mixture import Mixture

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def sample(mixture: Mixture, rows: int, chance: np.random.Generator) -> Integers:
    """Cells (rows, columns). Independent draws would add the noise of a survey to counts that were paid for."""
    components, layout = len(mixture.probabilities), mixture.layout
    sizes = np.bincount(systematic(np.full(components, 1 / components), rows, chance), minlength=components)
    found = np.empty((rows, layout.columns), np.int64)
    for k in range(layout.columns):
        shares, start = mixture.column(k), 0
        for component, size in enumerate(sizes):
            drawn = systematic(shares[component], int(size), chance)
            chance.shuffle(drawn)
            found[start : start + size, k] = drawn
            start += size
    return found[chance.permutation(rows)]


def systematic(shares: Floats, count: int, chance: np.random.Generator) -> Integers:
    """`count` cells in order, each as often as its share says, rounded up or down by one common coin."""
    if count == 0:
        return np.empty(0, np.int64)
    edges = np.cumsum(shares / shares.sum())
    places = (np.arange(count) + chance.random()) / count
    return np.minimum(np.searchsorted(edges, places, side="right"), len(shares) - 1).astype(np.int64)


def follow(codes: Integers, pairs: Floats) -> Integers:
    """A column's cells, given those of the column that determines it: to each of its values belongs one cell, the one
    that the released counts of the pair speak for most."""
    return np.asarray(pairs.argmax(1)[codes], np.int64)

"""Rows from a mixture, by systematic rounding: within a component no cell is further than one from its share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.methods.synthetic.balance import balance
from comity.methods.synthetic.mixture import Mixture

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def sample(mixture: Mixture, rows: int, chance: Stream) -> Integers:
    """Cells (rows, columns). Independent draws would add the noise of a survey to counts that were paid for."""
    components, layout = len(mixture.probabilities), mixture.layout
    groups = systematic(np.full((1, components), 1.0), np.zeros(rows, np.int64), chance)
    found = np.empty((rows, layout.columns), np.int64)
    for k in range(layout.columns):
        found[:, k] = systematic(mixture.column(k), groups, chance)
    balance(mixture, found, groups, chance)
    return found


def systematic(shares: Floats, groups: Integers, chance: Stream) -> Integers:
    """A cell for every row; in each group each cell comes as often as that group's shares say, rounded up or down by
    one coin for the group, in an order that tells nothing."""
    rows = len(groups)
    if rows == 0:
        return np.empty(0, np.int64)
    count = np.bincount(groups, minlength=len(shares))
    order = np.lexsort((chance.words(rows), groups))
    first = np.repeat(np.cumsum(count) - count, count)
    coins = np.repeat(chance.uniform(len(shares)), count)
    # A group's places and its edges both lie between its number and the next, so that one search serves all groups.
    sorted_groups = groups[order]
    places = sorted_groups + (np.arange(rows) - first + coins) / np.repeat(count, count)
    shares = np.maximum(shares, 0) + 1e-12
    edges = np.cumsum(shares, axis=1) / shares.sum(1, keepdims=True)
    edges[:, -1] = 1.0
    flat = (edges + np.arange(len(shares))[:, None]).ravel()
    found = np.empty(rows, np.int64)
    found[order] = np.searchsorted(flat, places, side="right") - sorted_groups * shares.shape[1]
    return np.clip(found, 0, shares.shape[1] - 1)


def follow(codes: Integers, pairs: Floats, chance: Stream) -> Integers:
    """A column's cells, given those of the column that determines it, as the released counts of the pair say."""
    return systematic(np.where(pairs.sum(1, keepdims=True) > 0, pairs, pairs.sum(0)), codes, chance)

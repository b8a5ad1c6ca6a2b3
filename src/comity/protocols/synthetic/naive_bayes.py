"""Rows whose columns are independent given the label: what a very small budget can carry."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.protocols.synthetic.consistent import Consistent
from comity.protocols.synthetic.layout import Layout
from comity.protocols.synthetic.rows import follow, systematic

Integers = NDArray[np.int64]


def sample(layout: Layout, agreed: Consistent, rows: int, chance: Stream) -> Integers:
    """Labels by their counts, and within each label every column by its own; without a label every column alone."""
    found = np.zeros((rows, layout.columns), np.int64)
    together = np.zeros(rows, np.int64)
    target = layout.target
    if target is not None:
        found[:, target] = systematic(agreed.singles[target][None], together, chance)
    for k in layout.leading:
        if target is None:
            found[:, k] = systematic(agreed.singles[k][None], together, chance)
        elif k != target:
            table = agreed.pairs[min(k, target), max(k, target)]
            found[:, k] = follow(found[:, target], table if target < k else table.T, chance)
    return found

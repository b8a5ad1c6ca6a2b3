"""Training rows of a table, split inside: what constants are chosen on. Test rows of the comparison are in neither."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from comity.entropy import Stream
from experiments.accuracy.tables import Table, table
from experiments.choose.several import TABLES

# Of four training rows three are learned from, and the fourth is looked at.
_PARTS, _LEARNED = 4, 3


@lru_cache(maxsize=8)
def inside(name: str, most: int | None = None) -> Table:
    """The table whose test rows are a quarter of its training rows, drawn publicly; of at most so many rows in all."""
    whole = TABLES[name]() if name in TABLES else table(name)
    order = Stream.public("choose", name).permutation(len(whole.train))[:most]
    edge = len(order) * _LEARNED // _PARTS
    train, test = (whole.train.iloc[np.sort(rows)].reset_index(drop=True) for rows in (order[:edge], order[edge:]))
    return Table(name, whole.schema, train, test)

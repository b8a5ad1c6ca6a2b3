"""Training rows of a table, split again: constants are chosen on these, and not on test rows of the comparison."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from comity.entropy import Stream
from experiments.accuracy.several import TABLES
from experiments.accuracy.tables import Table, table

# Models learn from three of four training rows, and are measured on the fourth.
_PARTS, _LEARNED = 4, 3


@lru_cache(maxsize=8)
def split_training_rows(name: str, most: int | None = None) -> Table:
    """A table whose test rows are a quarter of the training rows, by public randomness; at most `most` rows."""
    whole = TABLES[name]() if name in TABLES else table(name)
    order = Stream.public("choose", name).permutation(len(whole.train))[:most]
    edge = len(order) * _LEARNED // _PARTS
    train, test = (whole.train.iloc[np.sort(rows)].reset_index(drop=True) for rows in (order[:edge], order[edge:]))
    return Table(name, whole.schema, train, test)

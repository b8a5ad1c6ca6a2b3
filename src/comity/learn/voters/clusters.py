"""Clusters of public rows: k-means with spread starts, the same for everyone who has the rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.errors import DataError

Floats = NDArray[np.float64]

# Limits of work, not tuned on data.
_STARTS = 10
_ROUNDS = 100


def clusters(rows: Floats, k: int, stream: Stream) -> Floats:
    """Centres (k, D) of the best of ten runs of Lloyd's algorithm, each begun as by Arthur and Vassilvitskii (2007)."""
    if rows.ndim != 2 or not 1 <= k <= len(rows):
        raise DataError(f"{k} clusters need at least as many public rows, found shape {rows.shape}; supply more rows")
    found = [_settled(rows, _spread(rows, k, stream)) for _ in range(_STARTS)]
    return min(found, key=lambda centres: float(_distances(rows, centres).min(axis=-1).sum()))


def nearest(rows: Floats, centres: Floats) -> NDArray[np.int64]:
    """Index (...,) of the centre next to each row (..., D), the first of equally near ones."""
    return np.asarray(_distances(rows, centres).argmin(axis=-1), np.int64)


def _distances(rows: Floats, centres: Floats) -> Floats:
    """Squared distances (..., k)."""
    squares = (rows**2).sum(axis=-1)[..., None] + (centres**2).sum(axis=-1)
    return np.asarray(np.maximum(squares - 2 * rows @ centres.T, 0.0), np.float64)


def _spread(rows: Floats, k: int, stream: Stream) -> Floats:
    centres = [rows[int(stream.integers(len(rows)))]]
    while len(centres) < k:
        far = _distances(rows, np.stack(centres)).min(axis=-1)
        chance = far if far.sum() > 0 else np.ones(len(rows))
        centres.append(rows[int(stream.choice(chance))])
    return np.stack(centres)


def _settled(rows: Floats, centres: Floats) -> Floats:
    member = nearest(rows, centres)
    for _ in range(_ROUNDS):
        sizes = np.bincount(member, minlength=len(centres))
        sums = np.stack([np.bincount(member, column, len(centres)) for column in rows.T], axis=1)
        # A centre that lost all its rows stays where it was.
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
        moved = nearest(rows, centres)
        if np.array_equal(moved, member):
            break
        member = moved
    return centres

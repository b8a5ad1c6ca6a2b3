"""Bids and ranks.

With q records chosen whose features sum to S, and a target mean t, a record x brings MMD² down by 2/(q + 1) times
t·φ(x) − S·φ(x)/(q + 1), up to what no x changes (`herding`). Everybody bids along one public direction, which stands
for t − S/(q + 1) as far as the noisy releases tell it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from comity.data.row_products import clipped, rough_unit_products

Floats = NDArray[np.float64]

LIMIT = 1024.0
"""No bid is larger. It decides how wide an integer is and nothing else: ranks are all that a bid is for."""
GRID = 2.0**-40
SILENT = -LIMIT
"""The bid of an owner that has no record in a round."""


def best(features: Floats, direction: Floats) -> tuple[int, float]:
    """The place of the record with the largest bid, the first where several have it, and the bid, within its limit.

    A record's bid does not depend on other records, to the last bit, whatever direction a curator sends.
    """
    if not len(features):
        return -1, SILENT
    found = rough_unit_products(features, clipped(direction)[None])[:, 0]
    place = int(np.argmax(found))
    return place, float(np.clip(found[place], -LIMIT, LIMIT))


def ranks(bids: Mapping[str, float], owners: Sequence[str]) -> NDArray[np.int64]:
    """(owners,): 1 for the largest bid. Ties go to the owner that stands first, and who made no bid comes last.

    A bid that changes moves every other owner's rank by one at most: how many bids stand before it changes by one.
    """
    order = sorted(range(len(owners)), key=lambda place: (-bids.get(owners[place], -np.inf), place))
    out = np.empty(len(owners), np.int64)
    out[order] = np.arange(1, len(owners) + 1)
    return out

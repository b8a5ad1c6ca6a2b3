"""In which round a record may bid: one public round, drawn from its place in its owner's file and from nothing else.

A record that is replaced leaves its place, and hence its round, to the other one: neighbouring files differ in the bids
of one round, given what was broadcast. Rounds are as even as they can be, so that no owner with enough records is
silent in one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream


def rounds_of(records: int, rounds: int, stream: Stream) -> NDArray[np.int64]:
    """(records,): the round of each place, from public chance that is each owner's own."""
    out = np.empty(records, np.int64)
    out[stream.permutation(records)] = np.arange(records) % rounds
    return out

"""The squared maximum mean discrepancy between two sets of records, under a Gaussian kernel.

MMD² = |mean of φ over one − mean of φ over the other|² in the kernel's own space: the mean over all pairs inside each
set, less twice the mean over pairs across. A record is a pair with itself too (the plain plug-in value), so that it is
never negative and a set has none with itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.methods.summary.features import Real, squared_distances

Floats = NDArray[np.float64]

# Pairs at a time: a limit of memory.
_ROWS = 512


def kernel(first: NDArray[Real], second: NDArray[Real], gamma: float) -> NDArray[Real]:
    """exp(−γ·|x − y|²) of all pairs of rows, (n, m), in the precision that they have."""
    found = squared_distances(first, second)
    found *= -gamma
    np.exp(found, out=found)
    return found


def likeness(rows: Floats, others: Floats, gamma: float, weights: Floats | None = None) -> Floats:
    """(n,): the mean kernel between each of `rows` and `others`, weighted where there are `weights`, which sum to one.

    Single precision inside a block of pairs, double across: these are for choosing and measuring, not for a release.
    """
    one, two = np.asarray(rows, np.float32), np.asarray(others, np.float32)
    share = np.full(len(two), 1 / max(len(two), 1), np.float32) if weights is None else np.asarray(weights, np.float32)
    return np.concatenate(
        [kernel(one[start : start + _ROWS], two, gamma) @ share for start in range(0, max(len(one), 1), _ROWS)]
    ).astype(np.float64)


def mmd2(first: Floats, second: Floats, gamma: float, weights: Floats | None = None) -> float:
    """MMD² between two sets of rows; `weights`, which sum to one, are those of `first`."""
    share = np.full(len(first), 1 / len(first)) if weights is None else np.asarray(weights, np.float64)
    inside = share @ likeness(first, first, gamma, share)
    across = share @ likeness(first, second, gamma)
    return max(0.0, float(inside - 2 * across + likeness(second, second, gamma).mean()))

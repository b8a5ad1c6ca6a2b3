"""Greedy choice of records whose mean features come close to a target: kernel herding (Chen, Welling, Smola 2010).

With q records chosen, whose features sum to S, record x brings the summary to (S + φ(x))/(q + 1). Its squared distance
from a target mean t is, up to what no x changes and with |φ| = 1, −2/(q + 1)·(t·φ(x) − S·φ(x)/(q + 1)): so the next
record is the one with the largest t·φ(x) − S·φ(x)/(q + 1). Only inner products are needed, of exact kernel or features.

What was chosen first was chosen for a smaller summary than it ends in. So afterwards each record in turn may be
exchanged for the one that is best beside all the others, by the same formula with q − 1 records present.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError
from comity.methods.summary.mmd import kernel, likeness

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

PASSES = 2
"""Of exchanges after herding. On splits of credit defaults, CPS and MNIST that no figure is reported of, two take off
most of what five do; a limit of time."""
OF_CLASSES = 0.3
"""How much of a likeness is lost where classes differ. Chosen among 0, 0.3, 0.5 and 0.8 on credit defaults, motion and
splits of Adult that no figure is reported of: a linear classifier gains two to four points in a hundred, MMD² of rows
loses a tenth at most; more of it takes more from the rows. Neither MNIST nor CPS was looked at for it."""


def herd(attraction: Floats, alike: Callable[[int], NDArray[np.floating[Any]]], count: int) -> Places:
    """`count` different places, in the order of choice.

    `attraction` (n,) holds t·φ(x) of every candidate, `alike(i)` (n,) its inner product with candidate i. Ties go to
    the first.
    """
    candidates = len(attraction)
    if not 0 <= count <= candidates:
        raise DataError(f"as many records are chosen as there are at most: {count} asked of {candidates}")
    crowding = np.zeros(candidates)
    left = np.array(attraction, np.float64)
    chosen = np.empty(count, np.int64)
    for place in range(count):
        best = int(np.argmax(left - crowding / (place + 1)))
        chosen[place] = best
        left[best] = -np.inf
        crowding += alike(best)
    return chosen


def exchanged(
    attraction: Floats, alike: Callable[[int], NDArray[np.floating[Any]]], chosen: Places, passes: int
) -> Places:
    """The chosen places, each left or exchanged for a better one in its turn, in so many passes or until none moves.

    No exchange brings the summary further from its target, and places stay different.
    """
    found, left = np.array(chosen, np.int64), np.array(attraction, np.float64)
    crowding = np.zeros(len(left))
    for place in found:
        crowding += alike(int(place))
    left[found] = -np.inf
    for _ in range(passes):
        moved = False
        for turn, place in enumerate(found):
            left[place] = attraction[place]
            crowding -= alike(int(place))
            best = int(np.argmax(left - crowding / len(found)))
            moved = moved or best != place
            found[turn], left[best] = best, -np.inf
            crowding += alike(best)
        if not moved:
            break
    return found


def herd_rows(rows: Floats, attraction: Floats, count: int, gamma: float) -> Places:
    """By the exact kernel, towards whatever `attraction` (n,) is the likeness to."""
    single = np.asarray(rows, np.float32)
    return herd(attraction, lambda best: kernel(single, single[best : best + 1], gamma)[:, 0], count)


def herd_weighted(
    rows: Floats, weights: Floats, count: int, gamma: float, labels: NDArray[np.int64] | None = None
) -> Places:
    """By the exact kernel, towards the rows' own distribution under `weights`, which sum to one, with exchanges.

    With `labels`, classes, towards the distribution of rows and classes together: rows of different classes are less
    alike by `OF_CLASSES`, which is a kernel too, the product of two. A summary of a hundred rows then has each class
    where it belongs, and not by chance.
    """
    single, attraction = np.asarray(rows, np.float32), likeness(rows, rows, gamma, weights)
    if labels is not None:
        attraction *= 1 - OF_CLASSES
        for one in np.unique(labels):
            own = np.flatnonzero(labels == one)
            attraction[own] += OF_CLASSES * likeness(rows[own], rows[own], gamma, weights[own])

    def alike(best: int) -> NDArray[np.float32]:
        found = kernel(single, single[best : best + 1], gamma)[:, 0]
        if labels is not None:
            found[labels != labels[best]] *= 1 - OF_CLASSES
        return found

    return exchanged(attraction, alike, herd(attraction, alike, count), PASSES)


def herd_towards(rows: Floats, target: Floats, count: int, gamma: float) -> Places:
    """By the exact kernel, towards the rows of `target`: the greedy choice that knows everything."""
    return herd_rows(rows, likeness(rows, target, gamma), count, gamma)


def herd_features(features: Floats, mean: Floats, count: int) -> Places:
    """By features (n, D), towards a mean of features (D,)."""
    return herd(features @ mean, lambda best: features @ features[best], count)

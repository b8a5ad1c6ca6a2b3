"""How an owner chooses the records that it hands over: kernel, MMD², herding, and the choice at the site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.errors import DataError
from comity.methods.summary.features import FourierFeatures, Real, squared_distances
from comity.methods.summary.ratio import Spectrum

# The squared maximum mean discrepancy between two sets of records under a Gaussian kernel.
#
# MMD² = |mean of φ over one − mean of φ over the other|² in the kernel's feature space: the mean over all pairs inside
# each set, less twice the mean over pairs across. A record also pairs with itself (the plug-in value), so MMD² is never
# negative and is zero between a set and itself.

Floats = NDArray[np.float64]

# Pairs at a time: a limit of memory.
_KERNEL_ROWS = 512


def kernel(first: NDArray[Real], second: NDArray[Real], gamma: float) -> NDArray[Real]:
    """exp(−γ·|x − y|²) of all pairs of rows, (n, m), in the precision that they have."""
    found = squared_distances(first, second)
    found *= -gamma
    np.exp(found, out=found)
    return found


def mean_kernel(rows: Floats, others: Floats, gamma: float, weights: Floats | None = None) -> Floats:
    """(n,): the mean kernel between each of `rows` and `others`, weighted where there are `weights`, which sum to one.

    Single precision inside a block of pairs, double across: these are for choosing and measuring, not for a release.
    """
    one, two = np.asarray(rows, np.float32), np.asarray(others, np.float32)
    share = np.full(len(two), 1 / max(len(two), 1), np.float32) if weights is None else np.asarray(weights, np.float32)
    return np.concatenate(
        [
            kernel(one[start : start + _KERNEL_ROWS], two, gamma) @ share
            for start in range(0, max(len(one), 1), _KERNEL_ROWS)
        ]
    ).astype(np.float64)


def mmd2(first: Floats, second: Floats, gamma: float, weights: Floats | None = None) -> float:
    """MMD² between two sets of rows; `weights`, which sum to one, are those of `first`."""
    share = np.full(len(first), 1 / len(first)) if weights is None else np.asarray(weights, np.float64)
    inside = share @ mean_kernel(first, first, gamma, share)
    across = share @ mean_kernel(first, second, gamma)
    return max(0.0, float(inside - 2 * across + mean_kernel(second, second, gamma).mean()))


# Kernel herding (Chen, Welling, Smola 2010): a greedy choice of records whose mean features come close to a target.
#
# With q records chosen, whose features sum to S, record x brings the summary to (S + φ(x))/(q + 1). Up to terms that do
# not depend on x and with |φ| = 1, its squared distance from a target mean t is −2/(q + 1)·(t·φ(x) − S·φ(x)/(q + 1)).
# The next record is therefore the one with the largest t·φ(x) − S·φ(x)/(q + 1). Only inner products are needed, of the
# exact kernel or of features.
#
# The first records were chosen for a smaller summary. So each record in turn may afterwards be exchanged for the one
# that is best beside all the others, by the same formula with q − 1 records present.

Places = NDArray[np.int64]

EXCHANGE_PASSES = 2
"""Of exchanges after herding. On splits of credit defaults, CPS and MNIST that no figure is reported of, two take off
most of what five do; a limit of time."""
CLASS_WEIGHT = 0.3
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


def exchange(
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
    single, attraction = np.asarray(rows, np.float32), mean_kernel(rows, rows, gamma, weights)
    if labels is not None:
        attraction *= 1 - CLASS_WEIGHT
        for one in np.unique(labels):
            own = np.flatnonzero(labels == one)
            attraction[own] += CLASS_WEIGHT * mean_kernel(rows[own], rows[own], gamma, weights[own])

    def alike(best: int) -> NDArray[np.float32]:
        found = kernel(single, single[best : best + 1], gamma)[:, 0]
        if labels is not None:
            found[labels != labels[best]] *= 1 - CLASS_WEIGHT
        return found

    return exchange(attraction, alike, herd(attraction, alike, count), EXCHANGE_PASSES)


def herd_towards(rows: Floats, target: Floats, count: int, gamma: float) -> Places:
    """By the exact kernel, towards the rows of `target`: the greedy choice that knows everything."""
    return herd_rows(rows, mean_kernel(rows, target, gamma), count, gamma)


def herd_features(features: Floats, mean: Floats, count: int) -> Places:
    """By features (n, D), towards a mean of features (D,)."""
    return herd(features @ mean, lambda best: features @ features[best], count)


# The choice at the site: smooth the ratio over the owner's records, then herd towards them and their classes.
#
# Only the chosen records leave, exactly as many as the quota says.

MAX_CANDIDATES = 10_000
"""So many records are looked at: a limit of time, since all pairs of them are."""
NEIGHBOURS = 12
"""A record's ratio is averaged over so many nearest ones, itself included. Settled on MNIST."""
# Settled on MNIST.
_POWERS = (0.8, 3.0)
_NEIGHBOUR_ROWS = 256


def choose_records(
    rows: Floats,
    ratio: Floats,
    count: int,
    *,
    features: FourierFeatures,
    spectrum: Spectrum,
    gamma: float,
    stream: Stream,
    classes: NDArray[np.int64] | None = None,
) -> Places:
    """Exactly `count` places among an owner's rows, whose ratios these are.

    Candidates are those with a ratio above 0, at most `CANDIDATES` of them or as many as the quota, drawn by the
    owner's own chance. Where they are fewer than the quota, others fill it: how many there are is not said. `classes`
    of the rows, where they have some, are chosen like the rows: as often as the ratio counts them.
    """
    candidates = np.flatnonzero(ratio > 0)
    order = stream.permutation(len(candidates))
    candidates = np.sort(candidates[order[: max(MAX_CANDIDATES, count)]])
    if count == 0 or len(candidates) <= count:
        rest = np.setdiff1d(np.arange(len(rows)), candidates)
        more = rest[stream.permutation(len(rest))[: max(0, count - len(candidates))]]
        return np.concatenate([candidates, more])[:count].astype(np.int64)
    own, raw = rows[candidates], ratio[candidates]
    turned = features(own) @ spectrum.axes
    weights = sharpen_weights(smooth_ratio(own, raw), raw, turned)
    known = None if classes is None else classes[candidates]
    return candidates[herd_weighted(own, weights, count, gamma, known)]


def smooth_ratio(rows: Floats, ratio: Floats) -> Floats:
    """The mean ratio of each row's nearest ones, itself included: a direction that the noise made up disagrees with its
    neighbours, one that is there agrees."""
    count = min(NEIGHBOURS, len(rows))
    if count == len(rows):
        return np.full(len(rows), ratio.mean())
    single = np.asarray(rows, np.float32)
    found = np.empty(len(rows))
    for start in range(0, len(rows), _NEIGHBOUR_ROWS):
        apart = squared_distances(single[start : start + _NEIGHBOUR_ROWS], single)
        near = np.argpartition(apart, count - 1, axis=1)[:, :count]
        found[start : start + _NEIGHBOUR_ROWS] = ratio[near].mean(axis=1)
    return found


def sharpen_weights(smooth: Floats, ratio: Floats, turned: Floats) -> Floats:
    """Weights that sum to one: `smooth` to the power that keeps the weighted mean of `turned` (n, k) where `ratio` has
    it, since averaging over neighbours draws it towards the middle."""
    smooth = np.maximum(smooth, 1e-12) / smooth.max()
    wanted = ratio @ turned / ratio.sum()

    def weights(power: float) -> Floats:
        raised = smooth**power
        return np.asarray(raised / raised.sum(), np.float64)

    def missed(power: float) -> float:
        return float(((weights(power) @ turned - wanted) ** 2).sum())

    steps = np.linspace(*_POWERS, 23)
    return weights(float(min(steps, key=missed)))

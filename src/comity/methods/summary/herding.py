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
# MMD² is the squared distance of the two means of φ in the kernel's feature space: the mean kernel over all pairs
# inside each set, less twice the mean over pairs across. A record also pairs with itself (the plug-in value), so MMD²
# is never negative and is zero between a set and itself.

Floats = NDArray[np.float64]

# The most rows whose pairs are in memory at once: a limit of size.
_KERNEL_ROWS = 512


def kernel(first: NDArray[Real], second: NDArray[Real], gamma: float) -> NDArray[Real]:
    """exp(−γ·|x − y|²) of all pairs of rows, (n, m), in their precision."""
    values = squared_distances(first, second)
    values *= -gamma
    np.exp(values, out=values)
    return values


def mean_kernel(rows: Floats, others: Floats, gamma: float, weights: Floats | None = None) -> Floats:
    """(n,): the mean kernel of each of `rows` with `others`, weighted by `weights` if given, which sum to one.

    It has single precision inside a block of pairs, which suffices: it chooses and measures, and is never released.
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
    """MMD² between two sets of rows. `weights` are those of `first` and sum to one."""
    share = np.full(len(first), 1 / len(first)) if weights is None else np.asarray(weights, np.float64)
    inside = share @ mean_kernel(first, first, gamma, share)
    across = share @ mean_kernel(first, second, gamma)
    return max(0.0, float(inside - 2 * across + mean_kernel(second, second, gamma).mean()))


# Kernel herding (Chen, Welling, Smola 2010): a greedy choice of records whose mean features come close to a target.
#
# With q records chosen, whose features sum to S, record x brings the summary to (S + φ(x))/(q + 1). Up to terms that do
# not depend on x and with |φ| = 1, its squared distance from a target mean t is −2/(q + 1)·(t·φ(x) − S·φ(x)/(q + 1)).
# Therefore the next record is the one with the largest t·φ(x) − S·φ(x)/(q + 1). This needs only inner products, of the
# exact kernel or of features.
#
# The first records were chosen for a smaller summary. So afterwards each record in turn may be exchanged for the one
# that is best beside all the others, by the same formula with q − 1 records present.

Places = NDArray[np.int64]

EXCHANGE_PASSES = 2
"""The number of passes of exchanges after herding: a limit of time. On splits of credit defaults, CPS and MNIST on
which no figure is reported, two passes gain most of what five gain."""
CLASS_WEIGHT = 0.3
"""The share by which the kernel of two records of different classes is reduced. Chosen among 0, 0.3, 0.5 and 0.8 on
credit defaults, motion and splits of Adult on which no figure is reported: the accuracy of a linear classifier gains
two to four points in a hundred, and MMD² of rows loses at most a tenth; larger values lose more. Neither MNIST nor CPS
was used for the choice."""


def herd(attraction: Floats, similarity: Callable[[int], NDArray[np.floating[Any]]], count: int) -> Places:
    """Indices of `count` different candidates, in the order of choice.

    `attraction` (n,) holds t·φ(x) of every candidate, `similarity(i)` (n,) its inner product with candidate i. The
    first of equals is chosen.
    """
    candidates = len(attraction)
    if not 0 <= count <= candidates:
        raise DataError(f"the number of records to choose must lie between 0 and {candidates}, found {count}")
    crowding = np.zeros(candidates)
    left = np.array(attraction, np.float64)
    chosen = np.empty(count, np.int64)
    for place in range(count):
        best = int(np.argmax(left - crowding / (place + 1)))
        chosen[place] = best
        left[best] = -np.inf
        crowding += similarity(best)
    return chosen


def exchange(
    attraction: Floats, similarity: Callable[[int], NDArray[np.floating[Any]]], chosen: Places, passes: int
) -> Places:
    """The chosen indices after each in turn was kept or exchanged for a better one, in `passes` passes or until none
    changes.

    No exchange brings the summary further from its target, and indices stay different.
    """
    places, left = np.array(chosen, np.int64), np.array(attraction, np.float64)
    crowding = np.zeros(len(left))
    for place in places:
        crowding += similarity(int(place))
    left[places] = -np.inf
    for _ in range(passes):
        changed = False
        for turn, place in enumerate(places):
            left[place] = attraction[place]
            crowding -= similarity(int(place))
            best = int(np.argmax(left - crowding / len(places)))
            changed = changed or best != place
            places[turn], left[best] = best, -np.inf
            crowding += similarity(best)
        if not changed:
            break
    return places


def herd_rows(rows: Floats, attraction: Floats, count: int, gamma: float) -> Places:
    """Herd by the exact kernel; `attraction` (n,) is each row's mean kernel with the target."""
    single = np.asarray(rows, np.float32)
    return herd(attraction, lambda best: kernel(single, single[best : best + 1], gamma)[:, 0], count)


def herd_weighted(
    rows: Floats, weights: Floats, count: int, gamma: float, labels: NDArray[np.int64] | None = None
) -> Places:
    """Herd by the exact kernel towards the rows' own distribution under `weights`, which sum to one, with exchanges.

    With `labels`, which are classes, herd towards the distribution of rows and classes together: `CLASS_WEIGHT` reduces
    the kernel of rows of different classes, and the product is a kernel too. A summary of a hundred rows then has each
    class where it belongs, and not by chance.
    """
    single, attraction = np.asarray(rows, np.float32), mean_kernel(rows, rows, gamma, weights)
    if labels is not None:
        attraction *= 1 - CLASS_WEIGHT
        for one in np.unique(labels):
            own = np.flatnonzero(labels == one)
            attraction[own] += CLASS_WEIGHT * mean_kernel(rows[own], rows[own], gamma, weights[own])

    def similarity(best: int) -> NDArray[np.float32]:
        values = kernel(single, single[best : best + 1], gamma)[:, 0]
        if labels is not None:
            values[labels != labels[best]] *= 1 - CLASS_WEIGHT
        return values

    return exchange(attraction, similarity, herd(attraction, similarity, count), EXCHANGE_PASSES)


def herd_towards(rows: Floats, target: Floats, count: int, gamma: float) -> Places:
    """Herd by the exact kernel towards the rows of `target`: the greedy choice that sees everything."""
    return herd_rows(rows, mean_kernel(rows, target, gamma), count, gamma)


def herd_features(features: Floats, mean: Floats, count: int) -> Places:
    """Herd by features (n, D) towards a mean of features (D,)."""
    return herd(features @ mean, lambda best: features @ features[best], count)


# The choice at the site: smooth the ratio over the owner's records, then herd towards them and their classes. Exactly
# as many records leave as the quota says.

MAX_CANDIDATES = 10_000
"""The most records that compete for the quota: a limit of time, since all their pairs are computed."""
NEIGHBOURS = 12
"""The number of nearest records, itself included, over which a record's ratio is averaged. Settled on MNIST."""
# The powers that smoothed ratios are raised to. Settled on MNIST.
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
    """Indices of exactly `count` of an owner's rows, by the `ratio` of each.

    Candidates are the rows with a ratio above 0; of more than `MAX_CANDIDATES`, or than the quota if that is larger, so
    many are drawn at random. If they are fewer than the quota, random other rows fill it, so nobody learns how many
    there are. With `classes`, the choice has each class as often as the ratio weighs it.
    """
    candidates = np.flatnonzero(ratio > 0)
    order = stream.permutation(len(candidates))
    candidates = np.sort(candidates[order[: max(MAX_CANDIDATES, count)]])
    if count == 0 or len(candidates) <= count:
        rest = np.setdiff1d(np.arange(len(rows)), candidates)
        more = rest[stream.permutation(len(rest))[: max(0, count - len(candidates))]]
        return np.concatenate([candidates, more])[:count].astype(np.int64)
    own, raw = rows[candidates], ratio[candidates]
    along_axes = features(own) @ spectrum.axes
    weights = sharpen_weights(smooth_ratio(own, raw), raw, along_axes)
    labels = None if classes is None else classes[candidates]
    return candidates[herd_weighted(own, weights, count, gamma, labels)]


def smooth_ratio(rows: Floats, ratio: Floats) -> Floats:
    """The mean ratio of each row's nearest rows, itself included. Ratios that differ from those of their neighbours are
    mostly due to noise."""
    count = min(NEIGHBOURS, len(rows))
    if count == len(rows):
        return np.full(len(rows), ratio.mean())
    single = np.asarray(rows, np.float32)
    means = np.empty(len(rows))
    for start in range(0, len(rows), _NEIGHBOUR_ROWS):
        distances = squared_distances(single[start : start + _NEIGHBOUR_ROWS], single)
        near = np.argpartition(distances, count - 1, axis=1)[:, :count]
        means[start : start + _NEIGHBOUR_ROWS] = ratio[near].mean(axis=1)
    return means


def sharpen_weights(smooth: Floats, ratio: Floats, coordinates: Floats) -> Floats:
    """Weights that sum to one: `smooth` to the power that best keeps the mean of `coordinates` (n, k) weighted by
    `ratio`. Averaging over neighbours alone would draw that mean towards the middle."""
    smooth = np.maximum(smooth, 1e-12) / smooth.max()
    wanted = ratio @ coordinates / ratio.sum()

    def weights(power: float) -> Floats:
        raised = smooth**power
        return np.asarray(raised / raised.sum(), np.float64)

    def error(power: float) -> float:
        return float(((weights(power) @ coordinates - wanted) ** 2).sum())

    return weights(float(min(np.linspace(*_POWERS, 23), key=error)))

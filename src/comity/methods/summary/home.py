"""What an owner does with its quota, at home: the ratio made smooth over its own records, and herding towards them
and their classes, with exchanges.

Nothing of it leaves but the records themselves, exactly as many as the quota says.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.methods.summary.features import FourierFeatures, squared_distances
from comity.methods.summary.herding import herd_weighted
from comity.methods.summary.spectrum import Spectrum

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

CANDIDATES = 10_000
"""So many records are looked at: a limit of time, since all pairs of them are."""
NEAREST = 12
"""A record's ratio is averaged over so many nearest ones, itself included. Settled on MNIST."""
# Settled on MNIST.
_POWERS = (0.8, 3.0)
_ROWS = 256


def chosen(
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
    candidates = np.sort(candidates[order[: max(CANDIDATES, count)]])
    if count == 0 or len(candidates) <= count:
        rest = np.setdiff1d(np.arange(len(rows)), candidates)
        more = rest[stream.permutation(len(rest))[: max(0, count - len(candidates))]]
        return np.concatenate([candidates, more])[:count].astype(np.int64)
    own, raw = rows[candidates], ratio[candidates]
    turned = features(own) @ spectrum.axes
    weights = sharpened(smoothed(own, raw), raw, turned)
    known = None if classes is None else classes[candidates]
    return candidates[herd_weighted(own, weights, count, gamma, known)]


def smoothed(rows: Floats, ratio: Floats) -> Floats:
    """The mean ratio of each row's nearest ones, itself included: a direction that the noise made up disagrees with its
    neighbours, one that is there agrees."""
    count = min(NEAREST, len(rows))
    if count == len(rows):
        return np.full(len(rows), ratio.mean())
    single = np.asarray(rows, np.float32)
    found = np.empty(len(rows))
    for start in range(0, len(rows), _ROWS):
        apart = squared_distances(single[start : start + _ROWS], single)
        near = np.argpartition(apart, count - 1, axis=1)[:, :count]
        found[start : start + _ROWS] = ratio[near].mean(axis=1)
    return found


def sharpened(smooth: Floats, ratio: Floats, turned: Floats) -> Floats:
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

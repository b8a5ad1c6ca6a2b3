"""Posterior means of the class sums of two classes, from an opened mean whose clip and noise are known.

The unknown is p, the share of the second class, and R², the share of the labels' variance that public directions tell.
With v = 2p(1 − p), a party's sum in the contrast's coordinates is about

    f + √(v/n)·u    in the constant's column, f = (1 − 2p)/√2, u standard normal, |f + √(v/n)·u| at most 1/√2
    T + D           the square of its d directions, T = R²·v by Bessel, D by sampling n records, as public rows have it

and is shortened to the clip c: ρ(p, T) is the mean share of its length that is left, and what is opened of f is f·ρ, by
quadrature over u and D. The directions' moments are normal with variances ρ²·T·s_j, s_j the part that direction j is
expected to have, more where public rows differ more. Noise of a known deviation is added to all of them. The squares
that the opened moments then have, rather than T itself, are what a party is shortened by: without noise they are known.
Parties are taken to be alike: where they are not, shares are somewhat less accurate.

p is uniform beforehand. R² has the mean `EXPLAINED`, as the clip takes it, with the density (1 − R²)^(1/mean − 2),
times Jeffreys' 1/(variance of a moment with its noise) for a variance under known noise: where noise is large, slopes
vanish continuously and not at a threshold. Everything here is post-processing of one opened mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.learn.fits import contrasts
from comity.special import ndtr

Floats = NDArray[np.float64]

# Precision of the integrals, not tuned on data: points of p and of R, how often the grid is laid anew around what the
# coarser one found, and its half width in deviations.
_SHARES, _PARTS = 80, 40
_PASSES = 3
_DEVIATIONS = 5.0
_NODES = 7
# Parties that are drawn from public rows, how many rows of a party at most, and what their squares are summed up by.
_SAMPLES, _MOST_DRAWN, _QUANTILES = 320, 256, 8
# Exact sums have a posterior of no width.
_LEAST_DEVIATION = 1e-6
_LARGEST = 1 / sqrt(2)


@dataclass(frozen=True)
class LikelySums:
    """Posterior means: the `shares` (2,) of the classes, the moments (1, d) of the directions as they are before
    parties are shortened to the clip, and the `deviation` of the noise on that scale."""

    shares: Floats
    directions: Floats
    deviation: float


@dataclass(frozen=True)
class Expected:
    """What a party's contribution looks like: the clip, its declared records, the part of what directions tell that
    each is expected to have (d,), equally likely squares of its directions by sampling alone, and the mean of R²
    beforehand."""

    clip: float
    records: int
    parts: Floats
    sampled: Floats
    explained: float


def sample_squares(rows: Floats, records: int) -> Floats:
    """Equally likely squares (q,) of half the mean of so many public rows (N, d), which are centred: of a party whose
    labels do not depend on its records, in the contrast's coordinates."""
    drawn = min(records, _MOST_DRAWN)
    places = Stream.public("softlabel squares", drawn).integers(len(rows), (_SAMPLES, drawn))
    means = np.stack([rows[own].mean(axis=0) for own in places])
    squares = np.sort((means**2).sum(axis=1)) / 2 * drawn / records
    return np.asarray(squares.reshape(_QUANTILES, -1).mean(axis=1), np.float64)


def likely_sums(mean: Floats, deviation: float, expected: Expected) -> LikelySums:
    """From an opened mean (1, d + 1), the constant's column last, with this deviation of noise in every number."""
    unit = max(deviation, _LEAST_DEVIATION)
    opened = _towards_first(mean[0, -1])
    shares, parts = (0.0, 1.0), (0.0, 1.0)
    for _ in range(_PASSES):
        p, root = _midpoints(*shares, _SHARES)[:, None], _midpoints(*parts, _PARTS)[None, :]
        told = root**2 * 2 * p * (1 - p)
        variance = _shorten(p, told, expected)[0] ** 2 * told
        likelihood, squares = _read_moments(mean[0, :-1], variance, unit, expected.parts)
        left, seen = _shorten(p, squares * told / variance, expected)
        weight = _normalise(
            _log_prior(root, variance, unit, expected) - 0.5 * ((opened - seen) / unit) ** 2 + likelihood
        )
        shares, parts = _around(p, weight, *shares), _around(root, weight, *parts)
    share = float((weight * p).sum())
    before = weight / left
    kept = [float((before * variance / (variance + unit**2 / one)).sum()) for one in expected.parts]
    return LikelySums(np.array([1 - share, share]), mean[:, :-1] * kept, unit * float(before.sum()))


def likely_shares(mean: Floats, deviation: float, records: int) -> Floats:
    """Shares (2,) of the classes from an opened mean (1, 1) of what parties of so many records name: a party names
    the second class with the probability that most of its records are of it."""
    unit = max(deviation, _LEAST_DEVIATION)
    opened, shares = _towards_first(mean[0, -1]), (0.0, 1.0)
    for _ in range(_PASSES):
        p = _midpoints(*shares, _SHARES)
        named = ndtr((p - 0.5) * np.sqrt(records / (p * (1 - p))))
        weight = _normalise(-0.5 * ((opened - (1 - 2 * named) * _LARGEST) / unit) ** 2)
        shares = _around(p, weight, *shares)
    share = float(weight @ p)
    return np.array([1 - share, share])


def _towards_first(moment: float) -> float:
    """The contrast, positive where the first class is more frequent."""
    return float(moment) * float(np.sign(contrasts(2)[0, 0]))


def _shorten(p: Floats, told: Floats, expected: Expected) -> tuple[Floats, Floats]:
    """The mean share of a party's length that the clip leaves, and the contrast that is opened, where directions tell
    this square."""
    node, weight = np.polynomial.hermite_e.hermegauss(_NODES)
    spread = 2 * p * (1 - p)
    own = (1 - 2 * p)[..., None] * _LARGEST + np.sqrt(spread / expected.records)[..., None] * node
    own = np.clip(own, -_LARGEST, _LARGEST)
    square = own**2 + told[..., None]
    lengths = np.sqrt(square[..., None] + expected.sampled)
    left = np.minimum(1.0, expected.clip / lengths).mean(axis=-1)
    weight = weight / weight.sum()
    return np.asarray(left @ weight, np.float64), np.asarray((own * left) @ weight, np.float64)


def _log_prior(root: Floats, variance: Floats, unit: float, expected: Expected) -> Floats:
    """Of R = √R² given p: the density of R², that of its root, and Jeffreys' factor for the mean moment's variance."""
    found = (1 / expected.explained - 2) * np.log1p(-(root**2)) + np.log(root)
    found = found - np.log(variance / len(expected.parts) + unit**2)
    top = found.max(axis=1, keepdims=True)
    return np.asarray(found - top - np.log(np.exp(found - top).sum(axis=1, keepdims=True)), np.float64)


def _read_moments(moments: Floats, variance: Floats, unit: float, shares: Floats) -> tuple[Floats, Floats]:
    """The log likelihood of the directions' opened moments, normal around zero, and the expected sum of their squares
    without noise. One direction at a time: there may be hundreds."""
    found, squares = np.zeros(variance.shape), np.zeros(variance.shape)
    for moment, share in zip(moments, shares):
        total = variance * share + unit**2
        found -= 0.5 * (np.log(total) + moment**2 / total)
        kept = variance * share / total
        squares += (kept * moment) ** 2 + kept * unit**2
    return found, squares


def _midpoints(low: float, high: float, count: int) -> Floats:
    return low + (high - low) * (np.arange(count) + 0.5) / count


def _normalise(log: Floats) -> Floats:
    weight = np.exp(log - log.max())
    return np.asarray(weight / weight.sum(), np.float64)


def _around(values: Floats, weight: Floats, low: float, high: float) -> tuple[float, float]:
    """Where the next grid lies: so many deviations around the mean, and two steps of this grid, within this one."""
    step = (high - low) / max(values.shape)
    middle = float((weight * values).sum())
    half = _DEVIATIONS * sqrt(float((weight * (values - middle) ** 2).sum())) + 2 * step
    return max(low, middle - half), min(high, middle + half)

"""Instruments: what responses are multiplied with in a round. Each party whitens its own features and cuts their norm.

A party knows all of its own columns of a row, so that it can cut *their* norm, though nobody can cut a whole row's.
With d_k features of its own, d of all parties and a share c of the squared norm for the constant, party k's are
u_k = W_k(x_k − m_k)/√D, cut to norm √((1 − c)·d_k/d), and the constant is √c: the squared norm of a whole row of
instruments is at most 1, whatever W_k and m_k a coordinator sends and whatever the records are. W_k comes from the
noisy moments and makes directions alike, so that noise of one size treats them alike, but for two of which more is
asked than of others: the constant, which says how frequent the classes are, and each party's part of the score, which
says how large scores should be.

Integers all the way, so that a row has the same instruments in every step of a run and on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, sqrt

import numpy as np
from numpy.typing import NDArray

from comity.methods.vertical.layout import PLACES

Floats = NDArray[np.float64]

_MATRIX_PLACES = 14
_LARGEST_ENTRY = 1 << 10
# Between the product and the cut norm: finer than what comes out, and squares add up exactly.
_FINE = 16
_LARGEST_VALUE = 8.0

CONSTANT_SHARE = 0.05
"""Of the squared norm of a row of instruments, for the constant; no less than it would have as one of many alike. By
training rows of Adult, credit defaults, KDD-99 and HAR at ε = 1, six draws: of 0, 0.02, 0.05 and 0.1 the log losses are
lowest at the last two (KDD-99 0.106, 0.049, 0.033 and 0.024; Adult 0.341, 0.333, 0.331 and 0.330; credit defaults level
from 0.02 on; HAR level), accuracies are level but for chance. Whichever is left out, 0.1 is ahead of 0.05 by less than
0.002; the smaller one costs other instruments less."""

SCORES_BY_NOISE, _MOST_FOR_SCORES = 0.5, 0.25
"""A party's part of its squared norm for its part of the score, per noise of another instrument over the rows, and the
most. By training rows of the same at ε = 1, six draws, of 0, 0.5 and 1: HAR has 0.057 below the pooled fit with 0.5,
0.112 without, 0.075 with 1; the others are level but for chance, so that HAR alone
decides. The most was not tried."""


@dataclass(frozen=True, eq=False)
class Whitening:
    """A party's matrix and, as a last row, what is subtracted from the product."""

    matrix: Floats

    @classmethod
    def of(cls, whitened: Floats, mean: Floats, instruments: int) -> Whitening:
        scaled = whitened.T / sqrt(instruments)
        return cls(np.vstack([scaled, mean @ scaled]))

    def applied(self, units: Floats, limit: float) -> Floats:
        """Instruments of rows of features in units of 2^−PLACES, in the same units, of norm `limit` at most."""
        fine = self._fine(units)
        norm = np.sqrt((fine**2).sum(axis=1))
        cut = np.minimum(1.0, limit * 2.0**_FINE / np.maximum(norm, 1.0))
        # Towards zero: rounding never makes a norm longer.
        return np.asarray(np.trunc(np.ldexp(fine * cut[:, None], PLACES - _FINE)), np.float64)

    def norms(self, units: Floats) -> Floats:
        """Of the rows' instruments, before any is cut."""
        return np.asarray(np.ldexp(np.linalg.norm(self._fine(units), axis=1), -_FINE), np.float64)

    def _fine(self, units: Floats) -> Floats:
        entries = np.nan_to_num(np.clip(self.matrix, -_LARGEST_ENTRY, _LARGEST_ENTRY))
        whole = np.rint(np.ldexp(entries, _MATRIX_PLACES))
        # Products of integers whose sums stay below 2^53: exact in whatever order they are added.
        value = np.ldexp(units @ whole[:-1], -PLACES - _MATRIX_PLACES) - np.ldexp(whole[-1], -_MATRIX_PLACES)
        return np.asarray(np.rint(np.ldexp(np.clip(value, -_LARGEST_VALUE, _LARGEST_VALUE), _FINE)), np.float64)


def leaning(whitened: Floats, weights: Floats, noise: float) -> Floats:
    """A party's whitening, with more of the norm for the direction of its part of the score, at these weights.

    `noise` is the deviation of a round's opened sum of one of many instruments alike, over the number of rows: where
    many instruments share the norm of few rows, none of them says how large scores should be, and one that has a part
    of the norm for itself does. The squared norm is the same on average as without, where directions are alike.
    """
    count = len(whitened)
    along = np.linalg.solve(whitened.T, weights) if count > 1 else np.zeros(count)
    length = float(np.linalg.norm(along))
    if not length > 0:
        return whitened
    share = max(1 / count, min(_MOST_FOR_SCORES, SCORES_BY_NOISE * noise))
    rest = sqrt((1 - share) * count / (count - 1))
    along /= length
    return np.asarray(rest * whitened + (sqrt(share * count) - rest) * np.outer(along, along @ whitened), np.float64)


def limit_of(features: int, instruments: int, constant: bool) -> float:
    """The norm that a party with so many features cuts its instruments to, where all have so many instruments, of which
    the constant may be one."""
    left, others = (1 - _share(instruments), instruments - 1) if constant else (1.0, instruments)
    return sqrt(left * features / others) if features else 0.0


def constant_units(instruments: int) -> int:
    """The constant's instrument, in units of 2^−PLACES, rounded down."""
    return floor(float(1 << PLACES) * sqrt(_share(instruments)))


def _share(instruments: int) -> float:
    return max(CONSTANT_SHARE, 1 / instruments)

"""Instruments: what responses are multiplied with in a round. Each party whitens its own features and cuts their norm.

A party knows all of its own columns of a row, so that it can cut *their* norm, though nobody can cut a whole row's.
With d_k features of its own and D instruments in all (the constant is one), party k's are u_k = W_k(x_k − m_k)/√D, cut
to norm √(d_k/D), and the constant is 1/√D: the squared norm of a whole row of instruments is at most 1, whatever W_k
and m_k a coordinator sends and whatever the records are. W_k comes from the noisy moments and makes directions alike,
so that noise of one size treats them alike.

Integers all the way, so that a row has the same instruments in every step of a run and on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, sqrt

import numpy as np
from numpy.typing import NDArray

from comity.protocols.vertical.layout import PLACES

Floats = NDArray[np.float64]

_MATRIX_PLACES = 14
_LARGEST_ENTRY = 1 << 10
# Between the product and the cut norm: finer than what comes out, and squares add up exactly.
_FINE = 16
_LARGEST_VALUE = 8.0


@dataclass(frozen=True, eq=False)
class Whitening:
    """A party's matrix and, as a last row, what is subtracted from the product."""

    matrix: Floats

    @classmethod
    def of(cls, whitened: Floats, mean: Floats, instruments: int) -> Whitening:
        scaled = whitened / sqrt(instruments)
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


def limit_of(features: int, instruments: int) -> float:
    """The norm that a party with so many features cuts its instruments to."""
    return sqrt(features / instruments)


def constant_units(instruments: int) -> int:
    """The constant's instrument, in units of 2^−PLACES, rounded down."""
    return floor(float(1 << PLACES) / sqrt(instruments))

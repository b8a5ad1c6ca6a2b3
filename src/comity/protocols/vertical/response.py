"""The response to a score: a cubic in place of the logistic curve, on an interval that scores can't leave.

    σ(z) − ½  ≈  (7/32) · s(z),    s(z) = z − z³/32,    |z| <= 4,

off by 0.0446 at most, at the ends of the interval, where it falls by 0.039 from its maximum at 3.27. s is a polynomial
with integer coefficients in a score on a grid of powers of two: shares go into it without any truncation.

A score is a sum of the parties' partial scores. Each party clips its own to a public part of the interval, so that the
whole stays inside whatever the weights are and whoever chose them, and no comparison on shares is needed.
"""

from __future__ import annotations

from math import floor, sqrt

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.protocols.vertical.columns import LABEL, PLACES, Columns
from comity.protocols.vertical.sensitivity import squared_bound

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

REACH = 4
"""Scores lie in [−4, 4]: the logistic curve is within 0.02 of its ends there. Chosen on Adult."""

SLOPE = 7 / 32
BEND = 5
"""s(z) = z − z³/2^BEND."""

LARGEST = 2 / 3 * sqrt(2**BEND / 3)
"""sup |s| over the interval, at z = ±√(32/3), which lies inside it."""

ERROR = 0.0446
"""sup |σ(z) − ½ − SLOPE · s(z)| over the interval, rounded up."""

# Finer scores would leave noise of small budgets no room below the 2^50 units that it may be wide.
_FINEST, _COARSEST = 7, 4


def score_places(rows: int, parties: int) -> int:
    """Binary places of a score: as many as leave room for the sum over `rows` rows in 64 bits, with a sign, a bit for
    the noise, and the parties' count that a declared sum is checked with."""
    for places in range(_FINEST, _COARSEST - 1, -1):
        if parties * rows * LARGEST * 2.0 ** (response_places(places) + PLACES) < 2.0**61:
            return places
    raise StudyError(
        f"gradients over {rows} rows of {parties} parties do not fit into 64 bits; lower vertical.rows_at_most, or set "
        'vertical.solver = "quadratic"',
        key="vertical.rows_at_most",
    )


def response_places(places: int) -> int:
    """Binary places of s, for scores of so many."""
    return 3 * places + BEND


def limits(columns: Columns, places: int) -> dict[str, int]:
    """Each party's part of the interval, in units of 2^−places: by its share of the features' squared norm."""
    squares = dict.fromkeys(columns.parties, 0.0)
    for piece in columns.pieces:
        if piece.kind != LABEL:
            squares[piece.party] += piece.squared
    squares[columns.label_at] += columns.constant**2
    total = sum(squares.values())
    return {party: floor((REACH << places) * square / total) for party, square in squares.items()}


def partial_scores(own: Floats, weights: Floats, constant: float, limit: int, places: int) -> Integers:
    """A party's features times its weights, plus its constant; rounded, and clipped to its part of the interval."""
    with np.errstate(over="ignore", invalid="ignore"):
        units = np.ldexp(own @ weights + constant, places)
    # Of a number and NaN, which weights without measure can make, these two take the number.
    return np.rint(np.fmin(np.fmax(units, -float(limit)), float(limit))).astype(np.int64)


def responses(scores: Integers, places: int) -> Integers:
    """s of whole scores, in units of 2^−`response_places`."""
    return scores * (1 << (2 * places + BEND)) - scores**3


def gradient_sensitivity(columns: Columns) -> float:
    """How far one replaced record moves Σ x s(z) in L2: 2·B·sup|s|, B the bound of a record without its label; for
    every choice of weights, and approached for large ones (proof.md, 9)."""
    return 2 * sqrt(squared_bound(columns) - columns.label.squared) * LARGEST * (1 + 1e-12)

"""The response to a score: the logistic curve, made periodic so that no score can leave it.

    σ(z) − ½  ≈  s(z) = Σ_k b_k sin(2πk z/64),    k = 1, 3, … 15,    b_k = (4π/64)/sinh(2π²k/64):

the first terms of the series whose sum is the logistic curve going up around 0 and down again around ±32. Within
|z| <= `REACH` it is off by `ERROR` at most. A score is a sum of the parties' partial scores modulo the period, and s is
bounded by `LARGEST` on the whole circle: the sensitivity of a round needs nobody to clip anything, and holds for every
weight, whoever chose it.

Scores that come round would mislead, so that each party cuts its part to an interval around its noisy mean, as wide as
its noisy deviation asks for (`landscape.intervals`). The intervals add up to the reach, about ten times the deviation
of a typical score: cutting is rare, and it is about accuracy alone.
"""

from __future__ import annotations

from math import pi, sinh

import numpy as np
from numpy.typing import NDArray

from comity.crypto.dealer_waves import PLACES as WAVE_PLACES
from comity.crypto.dealer_waves import STEPS, Curve
from comity.data.row_products import clipped, products
from comity.errors import StudyError
from comity.methods.vertical.layout import PLACES

Floats = NDArray[np.float64]
Angles = NDArray[np.uint16]

PERIOD = 64
"""Scores of eight and more are certain to three digits, and a period has room for those of 27. Not tuned on data."""

_TERMS = 8
CURVE = Curve(
    harmonics=tuple(range(1, 2 * _TERMS, 2)),
    amplitudes=tuple(4 * pi / PERIOD / sinh(2 * pi**2 * k / PERIOD) for k in range(1, 2 * _TERMS, 2)),
)

REACH = 27.0
"""Five before the middle of its way down again. Not tuned on data."""

ERROR = 0.008
"""sup |σ(z) − ½ − s(z)| over |z| <= REACH, rounded up."""

LARGEST = CURVE.largest
"""sup |s| over the circle, as shares add up to it."""

LARGEST_RESIDUAL = 0.5 + LARGEST
"""sup |s − y + ½|."""

RESPONSE_PLACES = 2 * WAVE_PLACES
"""Binary places of a response."""


def has_room(rows: int, parties: int) -> bool:
    """Whether the sum over `rows` rows fits into 64 bits, with a sign, a bit for the noise, and the parties' count that
    a declared sum is checked with."""
    return parties * rows * LARGEST_RESIDUAL * 2.0 ** (RESPONSE_PLACES + PLACES) < 2.0**61


def check_room(rows: int, parties: int) -> None:
    """Refuse what has no room."""
    if not has_room(rows, parties):
        raise StudyError(
            f"gradients over {rows} rows of {parties} parties do not fit into 64 bits; lower vertical.rows_at_most, or "
            'set vertical.solver = "quadratic"',
            key="vertical.rows_at_most",
        )


def partial_scores(own: Floats, weights: Floats, constant: float, centre: float, half_width: float) -> Floats:
    """A party's features times its weights, plus its constant, cut to an interval around `centre`. A row has the same
    score whatever rows stand beside it."""
    with np.errstate(over="ignore", invalid="ignore"):
        away = products(own, clipped(weights)[None])[:, 0] + (constant - centre)
        # Of a number and NaN, which weights without measure can make, these two take the number.
        return np.asarray(centre + np.fmin(np.fmax(away, -half_width), half_width), np.float64)


def angles(scores: Floats) -> Angles:
    """Scores on the circle: any number, sense or not, has a place there."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.fmod(np.rint(scores * (STEPS / PERIOD)), STEPS)
    return np.asarray(np.nan_to_num(steps).astype(np.int64) % STEPS, np.uint16)


def responses(places: Angles) -> Floats:
    """s at these places of the circle."""
    return np.asarray(CURVE.values[places.astype(np.int64) % STEPS], np.float64)


def gradient_sensitivity() -> float:
    """How far one replaced record moves Σ u (s(z) − y + ½) in L2: 2·sup|s − y + ½|, since |u| <= 1; for every choice of
    weights, intervals and whitening, and approached for some (proof.md, 9)."""
    return 2 * LARGEST_RESIDUAL * (1 + 1e-12)

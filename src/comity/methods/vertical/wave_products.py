"""A round of gradients as an inner product of two parties: what each multiplies, and how far rounding may move it.

A score is z = a + b, a known to one party and b to another. The curve is a sum of sines, and sin k(a + b) =
sin ka·cos kb + cos ka·sin kb, so that with the first party's instruments u

    Σ_i u_i (s(z_i) − y_i + ½)  =  Σ_i Σ_w (u_i · left_w(a_i)) · right_w(b_i),

left_w the sines and cosines of all harmonics and 1, right_w the cosines and sines times their amplitudes and ½ − y:
one long inner product of `LINES` entries for each row, and no elementwise product of what is shared. Entries are
rounded to 2^−PLACES.

Rounding: an entry on the left is off by h = 2^−(PLACES + 1) at most, one on the right as well,
but for the label's line, which is on the grid. Of one row, over D instruments of norm 1 together, the sum is off by at
most Σ_w |left_w|·h + √D·h·Σ_w (|right_w| + h), where |sin| + |cos| <= √2 for each harmonic.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.crypto.dealer_waves import STEPS
from comity.methods.vertical.layout import PLACES
from comity.methods.vertical.response import CURVE

Floats = NDArray[np.float64]
Angles = NDArray[np.uint16]
Integers = NDArray[np.int32]

LINES = 2 * len(CURVE.harmonics) + 1
"""Entries of a row: sine and cosine of every harmonic, and the label's."""


def left(place: Angles) -> Floats:
    """One line for each entry: what instruments are multiplied with."""
    angle = _angles(place)
    return np.vstack([np.sin(angle), np.cos(angle), np.ones(len(place))])


def right(place: Angles, half_labels: Floats | None) -> Integers:
    """All lines one after the other, in units of 2^−PLACES; ½ − y from the party that has it, nothing from another."""
    angle, amplitude = _angles(place), np.array(CURVE.amplitudes)[:, None]
    label = np.zeros(len(place)) if half_labels is None else -half_labels
    lines = np.vstack([amplitude * np.cos(angle), amplitude * np.sin(angle), label])
    return np.asarray(np.rint(np.ldexp(lines, PLACES)), np.int32).reshape(1, -1)


def multiplied(instruments: Floats, lines: Floats, part: slice) -> Integers:
    """Instruments, one line for each in units of 2^−PLACES, times `left`: a part of all its lines in a row."""
    rows = instruments.shape[1]
    which = np.arange(part.start, part.stop)
    found = instruments[:, which % rows] * lines.reshape(-1)[part]
    return np.ascontiguousarray(np.rint(found).astype(np.int32))


def rounded_residual(instruments: int) -> float:
    """sup |Σ_w (u left_w) right_w| over all rows of so many instruments of norm 1 at most, with what rounding adds."""
    unit, harmonics = 2.0 ** -(PLACES + 1), len(CURVE.harmonics)
    exact = 0.5 + float(np.abs(CURVE.values).max())
    on_the_right = sqrt(2) * float(sum(CURVE.amplitudes)) + 2 * harmonics * unit
    return exact + unit * (sqrt(2) * harmonics + sqrt(instruments) * on_the_right)


def _angles(place: Angles) -> Floats:
    return np.asarray(2 * np.pi / STEPS * np.outer(CURVE.harmonics, place.astype(np.float64)), np.float64)

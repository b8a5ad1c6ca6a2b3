"""What the moments of errors tell: moments that some rows have, and how many answers can be right.

A row has a target t and a prediction g, both on the scale of the target, and e = t − g. Of two classes t is −1 or 1,
and an answer is right where g has the sign of t. The evaluation opens means of e, t, e², et and t² alone. Which shares
of right answers these moments allow is a linear programme over all distributions of (t, g); without noise and with
predictions of any size its lower end is Cantelli's inequality (proof.md, 10).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import ndtr

from comity.federation.evaluation.consistency import nearest
from comity.federation.evaluation.figures import UNIT, Figure

Floats = NDArray[np.float64]

_PREDICTIONS = 65
_TARGETS = 33
_SIGN = 1e-9
"""A prediction that is as good as zero and yet has a sign."""


@dataclass(frozen=True)
class Moments:
    """Means of e, t, e², et, t²."""

    e: float
    t: float
    ee: float
    et: float
    tt: float

    @classmethod
    def of(cls, values: Floats) -> Moments:
        return cls(*(float(value) for value in values))


@lru_cache(maxsize=16)
def rows_of(most: float, two_classes: bool) -> tuple[Floats, NDArray[np.bool_]]:
    """Moments (5, k) of single rows whose prediction is `most` at most, and which of them are right."""
    side = np.linspace(-1.0, 1.0, 2 if two_classes else _TARGETS)
    beside = [-_SIGN, _SIGN, *side[np.abs(side) <= most]]
    guesses = np.unique(np.concatenate([np.linspace(-most, most, _PREDICTIONS), beside]))
    t, g = (one.reshape(-1) for one in np.meshgrid(side, guesses))
    e = t - g
    return np.stack([e, t, e * e, e * t, t * t]), (g > 0) == (t > 0)


def consistent_moments(found: Floats, units: Floats, *, most: float, two_classes: bool) -> Moments:
    """The moments nearest to noisy ones that rows can have, each counted in units of its noise."""
    rows, _ = rows_of(most, two_classes)
    ones = np.ones((1, rows.shape[1]))
    return Moments.of(nearest(rows / units[:, None], np.asarray(found, np.float64) / units, ones, np.ones(1)) * units)


def accuracy_of(found: Floats, spread: Floats, center: Moments, *, most: float) -> Figure:
    """The share of right answers that moments within `spread` of the found ones allow, whatever the rows are.

    The estimate takes margins as normal, as far as the consistent moments `center` allow it: they are those of the
    figures beside it.
    """
    low, high = _allowed(found, np.asarray(spread, np.float64), most)
    margin = 1 - center.et
    deviation = sqrt(max(1e-12, 1 - 2 * center.et + center.ee - margin * margin))
    least, largest = _allowed(np.array([center.e, center.t, center.ee, center.et]), np.zeros(4), most)
    value = min(largest, max(least, float(ndtr(margin / deviation))))
    return Figure(value, min(low, value), max(high, value), UNIT)


def _allowed(found: Floats, spread: Floats, most: float) -> tuple[float, float]:
    """Between what the share of right answers lies, for rows whose moments lie within `spread` of the found ones."""
    rows, right = rows_of(most, True)
    reach = np.maximum(spread[:4], 1e-6)
    # Noise may have left what any rows have: then the nearest that they have.
    for _ in range(60):
        ends = [_extreme(rows[:4], right, found[:4], reach, sign) for sign in (1.0, -1.0)]
        if all(end is not None for end in ends):
            low, high = (min(1.0, max(0.0, end)) for end in ends if end is not None)
            return low, high
        reach = 2 * reach
    return UNIT


def _extreme(rows: Floats, right: NDArray[np.bool_], found: Floats, reach: Floats, sign: float) -> float | None:
    """The least (sign 1) or the largest (−1) share of right answers; None where no rows have such moments."""
    solved = linprog(
        sign * right.astype(np.float64),
        A_ub=np.vstack([rows, -rows]),
        b_ub=np.concatenate([found + reach, reach - found]),
        A_eq=np.ones((1, rows.shape[1])),
        b_eq=[1.0],
        bounds=(0, None),
        method="highs",
    )
    return sign * float(solved.fun) if solved.status == 0 else None

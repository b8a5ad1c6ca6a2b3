"""The direction of bids, from noisy releases alone: whoever has these can compute it, and no record decides more."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def direction(target: Floats, spread: float, running: Floats, deviation: float, chosen: int) -> Floats:
    """t − a·S/(q + 1) for the noisy target mean t and the noisy sum S of `chosen` = q records' features.

    `spread` and `deviation` are those of the noise on each coordinate of t and S. In the first rounds the noise of S is
    larger than S can be: a = v/(v + deviation²) is what of it to believe, v being the mean square of a coordinate of
    the sum of q unit vectors whose mean is as long as the target seems to be.
    """
    width = len(target)
    length = max(0.0, float(target @ target) - width * spread**2)
    expected = (chosen + chosen**2 * min(1.0, length)) / width
    believed = expected / (expected + deviation**2) if chosen else 0.0
    return np.asarray(target - believed * running / (chosen + 1), np.float64)

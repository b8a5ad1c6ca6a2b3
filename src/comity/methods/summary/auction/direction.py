"""The direction of bids, from noisy releases alone: whoever has these can compute it, and no record decides more."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def direction(target: Floats, running: Floats, chosen: int) -> Floats:
    """t − S/(q + 1) for the noisy target mean t and the noisy sum S of `chosen` = q records' features.

    The noise of S stays in it, in the first rounds more noise than sum: it sends every round after other records. With
    S shrunk to what can be believed of it all rounds choose what is nearest to the target's mean, and the summary is
    about five times as far from the target (settled on two splits of handwritten digits, ε = 1).
    """
    return np.asarray(target - running / (chosen + 1), np.float64)

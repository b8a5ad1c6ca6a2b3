"""Along what owners bid in the published auction, as printed or with the sign and the ratio that its objective has."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bid = Literal["printed", "corrected"]


def direction(bid: Bid, target: Floats, mean: Floats, number: int, held: int) -> Floats:
    """Of round `number` = l = 1, 2, …, the summary having `held` = q records, seeds included.

    Printed: max g_l·h − l/(l + 1)·g·h for the target g, which prefers records that are *unlike* the target, and like
    what is there already. The marginal gain of the objective is, up to a factor, g·h − q/(q + 1)·g_l·h (proof.md, 1).
    """
    if bid == "printed":
        return np.asarray(mean - number / (number + 1) * target, np.float64)
    return np.asarray(target - held / (held + 1) * mean, np.float64)

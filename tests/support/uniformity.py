"""Whether words look uniform."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import chisquare


def uniform_bytes_pvalue(words: Any) -> float:
    """The p-value of all bytes of these words being uniform."""
    return float(chisquare(np.bincount(np.ascontiguousarray(words).reshape(-1).view(np.uint8), minlength=256)).pvalue)

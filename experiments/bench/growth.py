"""How a cost grows with a size: the exponent of the power law nearest to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of a straight line through the logarithms, by least squares: 1 where twice the size costs twice."""
    x, y = np.log(np.asarray(sizes, np.float64)), np.log(np.asarray(costs, np.float64))
    x -= x.mean()
    return float(x @ (y - y.mean()) / (x @ x))


def growth_row(what: str, sizes: Sequence[float], costs: Sequence[float], note: str) -> dict[str, Any]:
    """A row `growth with WHAT`, of CPU seconds at each size."""
    found = exponent(sizes, costs)
    steps = ", ".join(f"{size:,}: {cost:.3g} s" for size, cost in zip(sizes, costs, strict=True))
    return {
        "case": f"growth with {what}",
        "ours": found,
        "anchor": 1.0,
        "ratio": found,
        "unit": "exponent",
        "repeats": 1,
        "spread": 0.0,
        "better": "lower",
        "note": f"{note}: CPU seconds at {steps}; anchor: in proportion",
    }

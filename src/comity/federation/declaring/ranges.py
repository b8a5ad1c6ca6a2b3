"""Figures of an opened sum, and the range in which public figures put each of them when there is no noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Weights:
    """Norms of the weights with which coordinates add up to a figure: 1 for a coordinate by itself."""

    l1: Floats | float = 1.0
    l2: Floats | float = 1.0
    largest: Floats | float = 1.0


@dataclass(frozen=True, eq=False)
class Range:
    """`what` names the figures, `found` has them, as they were opened; without noise each lies from `low` to `high`.

    Noise moves a figure of the "sum" kind, a weighted sum of coordinates, as the `weights` say. A figure of the "norm"
    kind moves by no more than the L2 norm of the noise in `size` coordinates, times `weights.l2`.
    """

    what: str
    found: Floats
    low: Floats | float
    high: Floats | float
    weights: Weights = Weights()
    moves: Literal["sum", "norm"] = "sum"
    size: int = 1


def entries_within(value: Floats, low: float, high: float) -> Range:
    """Every coordinate by itself."""
    return Range("every entry", value, low, high)


def norm_within(value: Floats, radius: float) -> Range:
    """The length of the whole vector."""
    length = np.atleast_1d(np.sqrt((value**2).sum()))
    return Range("the length of the vector", length, 0.0, radius, moves="norm", size=value.size)

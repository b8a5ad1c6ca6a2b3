"""Columns as anyone without a method would enter them into a regression.

Baselines of a simulation are fitted on these. Otherwise a column whose bounds are wide would be tiny beside a penalty,
and a baseline would be worse than what an owner can do alone: joining would look better than it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONSTANT = 10.0
"""Value of the constant column: the penalty on its weight is a hundredth of the others'."""
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Standardised:
    """Numbers of mean 0 and deviation 1, entries of two values as 0 and 1, as the rows have them that it was made of.
    Entries of one value are 0."""

    centre: Floats
    spread: Floats

    @classmethod
    def of(cls, rows: Floats) -> Self:
        low, high = rows.min(axis=0), rows.max(axis=0)
        two_valued = ((rows == low) | (rows == high)).all(axis=0)
        centre = np.where(two_valued, low, rows.mean(axis=0))
        spread = np.where(two_valued, high - low, rows.std(axis=0))
        # A rounding error of a constant column is no spread.
        largest = np.maximum(np.abs(low), np.abs(high))
        return cls(centre, np.where(spread > _ROUNDING * largest, spread, np.inf))

    def columns(self, rows: Floats) -> Floats:
        return np.asarray((rows - self.centre) / self.spread, np.float64)

    def with_constant(self, rows: Floats) -> Floats:
        return np.column_stack([self.columns(rows), np.full(len(rows), CONSTANT)])


def default_penalty(records: int) -> float:
    """λ beside a mean of losses that is scikit-learn's default beside their sum: half of the squared weights."""
    return 1.0 / max(1, records)

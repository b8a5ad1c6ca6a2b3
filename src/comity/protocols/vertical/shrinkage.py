"""What noisy looks at linear combinations of weights tell about them, when weights of one column are of one size.

A look is `slopes` · w + noise. Before it is seen, the weights of a column are taken for normal around a multiple of
known ones, with a variance of the column's own; multiple and variances are those that the look itself suggests
(empirical Bayes). So columns that tell nothing stay where they were known to be, and those that do are left alone.
All of it is post-processing of releases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_TURNS = 3
"""From one variance for all columns to one for each. Not tuned on data."""

_LIKE_OTHERS = 1.0
"""How many weights of the size of all others a column counts beside its own. Not tuned on data."""

_LARGEST_MULTIPLE = 10.0
"""A tangent's slope is a tenth of the curve's in no table seen. Not tuned on data."""

_TRIED = np.exp(np.linspace(-8.0, 8.0, 65))


@dataclass(frozen=True, eq=False)
class Shrinkage:
    """`columns` says of each weight, by number, which column it belongs to; `variances` has one for each column."""

    columns: NDArray[np.int64]
    variances: Floats

    @classmethod
    def fitted(
        cls, columns: NDArray[np.int64], slopes: Floats, look: Floats, known: Floats, noise: float
    ) -> tuple[Shrinkage, Floats]:
        """The variances that explain the look, whose noise has this variance, and the mean of the weights given it."""
        seen = slopes @ known
        found = cls(columns, np.full(int(columns.max()) + 1, likeliest(slopes, look, seen, noise)))
        for _ in range(_TURNS):
            pulled, told, _ = found._explained(slopes, look, seen, noise)
            own = found.variances[columns]
            squares, freedom = found._summed(own**2 * pulled**2), found._summed(own * told)
            typical = float(squares.sum() / max(float(freedom.sum()), 1e-300))
            variances = (squares + _LIKE_OTHERS * typical) / (freedom + _LIKE_OTHERS)
            found = cls(columns, np.clip(variances, _TRIED[0], _TRIED[-1]))
        pulled, _, multiple = found._explained(slopes, look, seen, noise)
        return found, np.asarray(multiple * known + found.variances[columns] * pulled, np.float64)

    def _explained(self, slopes: Floats, look: Floats, seen: Floats, noise: float) -> tuple[Floats, Floats, float]:
        """Of the rest of the look that the best multiple of `seen` leaves: how it pulls each weight, how much it can
        tell of each, and the multiple."""
        spread = (slopes * self.variances[self.columns]) @ slopes.T
        spread[np.diag_indices_from(spread)] += noise
        inverse = np.linalg.inv(spread)
        weighed = inverse @ seen
        multiple = float(np.clip(weighed @ look / max(float(weighed @ seen), 1e-300), 0.0, _LARGEST_MULTIPLE))
        pulled = slopes.T @ (inverse @ (look - multiple * seen))
        told = np.einsum("ij,ij->j", slopes, inverse @ slopes)
        return np.asarray(pulled, np.float64), np.maximum(told, 0.0), multiple

    def _summed(self, values: Floats) -> Floats:
        return np.asarray(np.bincount(self.columns, weights=values, minlength=len(self.variances)), np.float64)


def likeliest(slopes: Floats, look: Floats, seen: Floats, noise: float) -> float:
    """The one variance of all weights that explains the look best, each with the multiple of `seen` that fits it."""
    values, axes = np.linalg.eigh(slopes @ slopes.T)
    look, seen = axes.T @ look, axes.T @ seen
    spread = np.maximum(np.maximum(values, 0.0) * _TRIED[:, None] + noise, 1e-300)
    size = (seen**2 / spread).sum(axis=1)
    multiple = np.clip((look * seen / spread).sum(axis=1) / np.maximum(size, 1e-300), 0.0, _LARGEST_MULTIPLE)
    rest = look - multiple[:, None] * seen
    return float(_TRIED[int((np.log(spread) + rest**2 / spread).sum(axis=1).argmin())])

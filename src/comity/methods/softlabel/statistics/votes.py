"""Votes on the auxiliary rows, whitened: the private statistic of soft-label learning, (1/N) Σ α_i z_iᵀ.

Soft-label risk sees the votes through this product alone. Over the whitened rows the product is a contraction, so that
its sensitivity is that of a single vote whatever N, the dimension and the regularisation are (proof.md, 1).

Public rows that repeat count for less, copy by copy: noise hides a group of rows the more, the smaller its share of all
public rows is, and a row that fills half of them is told from noise long before the others are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import sqrt
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError
from comity.federation.declare.bounds import Ball
from comity.learn.feature_map import FeatureMap, after, whitened
from comity.learn.fits import contrasts
from comity.methods.softlabel.self_training import softmax_from_moments
from comity.methods.softlabel.statistics.shrinking import likely_squares, shrunk
from comity.methods.softlabel.statistics.statistic import Filled, Labels, Statistic, any_filled, in_simplex

Floats = NDArray[np.float64]

# The penalty for exact moments, and how it grows with the noise on them. Chosen on training rows of KDD-99, after its
# test rows had been looked at.
_LEAST_L2 = 1e-4
_L2_PER_DEVIATION = 4.0
# The model's risk is averaged over about this many of the public rows: more of them change it by less than the noise.
# A limit of work, not tuned on data.
_ENOUGH_ROWS = 10_000
# A row found c times in public counts c^0.8 in all. Chosen on training rows of KDD-99 that no party and no auxiliary
# table held: c^0.9 to c^0.7 raise the mean accuracy of 5,000 parties at ε = 0.01, c^0.8 the most and at every smaller
# noise tried too; with c^0.6 the most frequent row is lost in some draws. Tables without repeats are not touched.
_REPEATS = 0.2


@dataclass(frozen=True, eq=False, kw_only=True)
class Votes(Statistic):
    """Contributes K (V − 1/C)ᵀ U Z / N for votes V (N, C), public rows Z (N, D), public weights U of mean one on the
    diagonal, Zᵀ U Z/N = 1.

    Sensitivity  √2: each of N rows of votes moves by at most √2, √U of it by √(2N) in all, and √(U/N) Z has norm one.
                 Two classes: one row, half the difference of the two columns, which moves by at most 1 in each row of
                 votes: 1.
    """

    name: ClassVar[str] = "votes"
    needs: ClassVar[Literal["votes", "records"]] = "votes"
    pure: ClassVar[bool] = True

    rows: Floats = field(repr=False)
    weight: Floats | None = field(default=None, repr=False)

    @classmethod
    def on(
        cls, auxiliary: Floats, classes: int, dimensions: int | None = None, first: FeatureMap | None = None
    ) -> Votes:
        """Over the `dimensions` directions of largest public variance, or over all; `first` maps the rows before."""
        weight = less_for_repeats(auxiliary)
        found = whitened_after(first, auxiliary, dimensions, weight)
        return cls(classes=classes, map=found, rows=shortened(found(auxiliary), weight), weight=weight)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.classes - 1, self.map.dimensions

    @property
    def bound(self) -> Ball:
        if self.classes == 2:
            return Ball(0.5)
        # The enforced set is the image of the simplex, which is smaller than the ball that it lies in.
        return Ball(sqrt(1 - 1 / self.classes), diameter=sqrt(2))

    @property
    def signal(self) -> float:
        return self.bound.radius

    def contribution(self, features: Floats, labels: Labels, filled: Filled, votes: Floats | None = None) -> Floats:
        if votes is None or votes.shape[-2:] != (len(self.rows), self.classes):
            found = None if votes is None else votes.shape
            raise DataError(f"votes must have the shape (..., {len(self.rows)}, {self.classes}), found {found}")
        turned = in_simplex(votes) @ coordinates(self.classes).T
        if self.weight is not None:
            turned = turned * self.weight[:, None]
        return np.asarray(np.where(any_filled(filled), moments(turned, self.rows), 0.0), np.float64)

    def model(self, mean: Floats, deviation: float) -> Floats:
        """Moments shrunk to what they are likely to be, then the softmax model of least risk under them."""
        likely = shrunk(mean, self.prior, deviation)
        if self.classes == 2:
            likely, deviation = -sqrt(2) * likely, sqrt(2) * deviation
        some = slice(None, None, max(1, len(self.rows) // _ENOUGH_ROWS))
        weight = None if self.weight is None else self.weight[some]
        return softmax_from_moments(self.rows[some], likely, _LEAST_L2 + _L2_PER_DEVIATION * deviation, weight=weight)

    @property
    def prior(self) -> Floats:
        return likely_squares(self.map, self.map.dimensions - 1, self.signal, self.classes)


def less_for_repeats(auxiliary: Floats) -> Floats | None:
    """Weights of mean one (N,) by how often each public row is found in the table; none where no row repeats."""
    keys = [row.tobytes() for row in np.asarray(auxiliary, np.float64) + 0.0]
    found = Counter(keys)
    if len(found) == len(keys):
        return None
    weight = np.array([found[key] for key in keys], np.float64) ** -_REPEATS
    return np.asarray(weight / weight.mean(), np.float64)


def whitened_after(
    first: FeatureMap | None, auxiliary: Floats, dimensions: int | None, weight: Floats | None = None
) -> FeatureMap:
    if first is None:
        return whitened(auxiliary, dimensions, weight)
    return after(first, whitened(first(auxiliary), dimensions, weight))


def coordinates(classes: int) -> Floats:
    """Rows that sum to zero: an orthonormal basis, or for two classes half their difference."""
    return np.array([[-0.5, 0.5]]) if classes == 2 else contrasts(classes)


def moments(turned: Floats, rows: Floats) -> Floats:
    """(..., k, D) from (..., N, k) and (N, D), without ever holding a product per row."""
    return np.asarray(turned.swapaxes(-1, -2) @ rows / len(rows), np.float64)


def shortened(rows: Floats, weight: Floats | None = None) -> Floats:
    """Rows with Zᵀ U Z/N <= 1 exactly: rounding in the whitening may have left it a little above."""
    weighted = rows if weight is None else rows * weight[:, None]
    largest = float(np.linalg.eigvalsh(weighted.T @ rows / len(rows))[-1])
    return np.asarray(rows / sqrt(max(1.0, largest)) * (1 - 1e-12), np.float64)

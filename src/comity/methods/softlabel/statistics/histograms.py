"""All vote histograms: noisy soft labels for the auxiliary rows, from which anything may be trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax as normalise

from comity.errors import DataError
from comity.federation.declare.bounds import Simplex
from comity.learn.feature_map import FeatureMap
from comity.methods.softlabel.statistics.statistic import Filled, Labels, Statistic, any_filled, in_simplex
from comity.methods.softlabel.statistics.votes import Votes, coordinates, moments, shortened, whitened_after

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Histograms(Statistic):
    """Contributes the votes themselves, (N, C).

    Sensitivity  √(2N): each of N rows moves by at most √2. A whitened mean over N rows takes the noise down by √N
                 again, so that a linear model sees as much noise as from `Votes`; a single label has √N times more.
    """

    name: ClassVar[str] = "histograms"
    needs: ClassVar[Literal["votes", "records"]] = "votes"
    # Spherical noise in N·C dimensions would be longer than any histogram.
    pure: ClassVar[bool] = False

    rows: Floats = field(repr=False)

    @classmethod
    def on(
        cls, auxiliary: Floats, classes: int, dimensions: int | None = None, first: FeatureMap | None = None
    ) -> Histograms:
        found = whitened_after(first, auxiliary, dimensions)
        return cls(classes=classes, map=found, rows=shortened(found(auxiliary)))

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), self.classes

    @property
    def bound(self) -> Simplex:
        return Simplex(len(self.rows), self.classes)

    @property
    def signal(self) -> float:
        return sqrt(len(self.rows) * (1 - 1 / self.classes))

    def noise_to_signal(self, deviation: float) -> float:
        """Of the whitened product that a linear model is learnt from, where it is comparable with `Votes`."""
        size = (self.classes - 1) * self.map.dimensions
        return deviation / sqrt(len(self.rows)) * sqrt(size) / sqrt(1 - 1 / self.classes)

    def contribution(self, features: Floats, labels: Labels, filled: Filled, votes: Floats | None = None) -> Floats:
        if votes is None or votes.shape[-2:] != self.shape:
            found = None if votes is None else votes.shape
            raise DataError(f"votes must have the shape (..., {len(self.rows)}, {self.classes}), found {found}")
        return np.asarray(np.where(any_filled(filled), in_simplex(votes), 1.0 / self.classes), np.float64)

    def model(self, mean: Floats, deviation: float) -> Floats:
        votes = Votes(classes=self.classes, map=self.map, rows=self.rows)
        basis = coordinates(self.classes)
        # Independent noise on N rows, averaged over them with weights of mean square one.
        less = float(np.linalg.norm(basis[0])) / sqrt(len(self.rows))
        return votes.model(moments(mean @ basis.T, self.rows), deviation * less)

    def soft_labels(self, mean: Floats, deviation: float) -> Floats:
        """Rows in the simplex (N, C) to train any model on.

        The nearest distribution to each noisy row; where noise exceeds the shares themselves single rows say nothing,
        and the posteriors of the linear model, which averages over rows, take their place.
        """
        if deviation * self.classes <= 1:
            return nearest_distribution(mean)
        return np.asarray(normalise(self.rows @ self.model(mean, deviation).T, axis=1), np.float64)


def nearest_distribution(rows: Floats) -> Floats:
    """The Euclidean projection of each row on the simplex (Held, Wolfe and Crowder 1974)."""
    descending = -np.sort(-rows, axis=-1)
    excess = (np.cumsum(descending, axis=-1) - 1) / np.arange(1, rows.shape[-1] + 1)
    support = (descending > excess).sum(axis=-1, keepdims=True)
    level = np.take_along_axis(excess, support - 1, axis=-1)
    return np.asarray(np.maximum(rows - level, 0.0), np.float64)

"""Class sums: where the records of each class lie, in the public map's coordinates. No local classifier at all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.federation.bounds import Ball
from comity.federation.rows import Rows
from comity.learn.feature_map import self_training_map
from comity.learn.self_training import self_trained
from comity.learn.softmax import contrasts
from comity.learn.voting import one_hot
from comity.protocols.softlabel.statistics.statistic import RecordTotal

Floats = NDArray[np.float64]

# Self-training takes this many rounds where noise is this share of the signal or more, and one where there is none.
# Settled while looking at HAR and MNIST.
_ROUNDS = 4
_NOISY = 0.2


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassSums(RecordTotal):
    """Contributes S = (1/n) Σ (e_y − 1/C) zᵀ over its records, in C − 1 coordinates, z the top `dimensions` of the map.

    Sensitivity  2c: the site projects S on |S| <= c. With n declared records, whitened z and classes at random,
                 E|S|² = (1 − 1/C)(d/n + (1 − 1/n)·r), r <= 1 the signal: c is its root at r = 1, so that little is cut.
    """

    name: ClassVar[str] = "class-sums"
    pure: ClassVar[bool] = True

    rows: Floats = field(repr=False)
    dimensions: int
    records_per_party: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.dimensions < self.map.dimensions or self.records_per_party < 1:
            raise StudyError(
                f"class sums need 1 to {self.map.dimensions - 1} dimensions and records_per_party of 1 or more, "
                f"found {self.dimensions} and {self.records_per_party}"
            )

    @classmethod
    def on(cls, auxiliary: Floats, classes: int, *, records_per_party: int, dimensions: int | None = None) -> ClassSums:
        found = replace(self_training_map(auxiliary), constant=True)
        most = found.dimensions - 1
        return cls(
            classes=classes,
            map=found,
            rows=found(auxiliary)[:, :-1],
            dimensions=most if dimensions is None else min(dimensions, most),
            records_per_party=records_per_party,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.classes - 1, self.dimensions

    @property
    def bound(self) -> Ball:
        n = self.records_per_party
        return Ball(sqrt((1 - 1 / self.classes) * (self.dimensions / n + 1 - 1 / n)))

    @property
    def signal(self) -> float:
        return sqrt(1 - 1 / self.classes)

    def part(self, rows: Rows) -> Floats:
        """Each record divided by the number of all, so that blocks add up to the mean."""
        present = rows.present
        placed = self.map(rows.features)[..., : self.dimensions]
        shown = np.where(present, 1.0 / np.maximum(1, rows.count), 0.0)
        # The class of padding is never looked at: its weight is zero.
        sides = contrasts(self.classes).T[np.where(present, rows.labels, 0)] * shown[..., None]
        return np.asarray(sides.swapaxes(-1, -2) @ np.where(present[..., None], placed, 0.0), np.float64)

    def model(self, mean: Floats, deviation: float) -> Floats:
        """Labels of the auxiliary rows by the largest score, then self-training: longer, the noisier the sums are."""
        scores = self.rows[:, : self.dimensions] @ mean.T @ contrasts(self.classes)
        ratio = deviation * sqrt(self.dimensions)
        rounds = max(1, round(_ROUNDS * min(1.0, ratio / _NOISY)))
        return self_trained(self.rows, one_hot(scores.argmax(axis=1), self.classes), rounds)

"""Averages of unit-norm local models: one linear classifier per party, in the public map's coordinates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from comity.federation.declare.bounds import Ball
from comity.learn.feature_map import self_training_map
from comity.learn.fits import contrasts, softmax
from comity.methods.softlabel.statistics.statistic import Filled, Labels, Statistic, any_filled

Floats = NDArray[np.float64]

_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False, kw_only=True)
class Models(Statistic):
    """Contributes the weights of its own softmax classifier, (C − 1) x D coordinates, scaled to length one.

    Sensitivity  2: two points of the unit ball. The length of a party's weights says how sure it is, not which way, so
                 that giving it up costs little and takes the regularisation out of the noise. A zero model stays zero:
                 the centre of the ball. The projection bounds the intercept with the rest.
    """

    name: ClassVar[str] = "models"
    needs: ClassVar[Literal["votes", "records"]] = "records"
    pure: ClassVar[bool] = True

    l2: float = 1e-1

    @classmethod
    def on(cls, auxiliary: Floats, classes: int, dimensions: int = 20) -> Models:
        """In the `dimensions` directions of largest variance of the self-training map: few, as each carries noise."""
        found = self_training_map(auxiliary)
        assert found.whitening is not None
        return cls(classes=classes, map=replace(found, whitening=found.whitening[:, :dimensions], constant=True))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.classes - 1, self.map.dimensions

    @property
    def bound(self) -> Ball:
        return Ball(1.0)

    @property
    def signal(self) -> float:
        return 1.0

    def contribution(self, features: Floats, labels: Labels, filled: Filled, votes: Floats | None = None) -> Floats:
        fit = softmax(
            self.map(features),
            np.where(filled, labels, 0),
            self.l2,
            classes=self.classes,
            mask=filled,
            tol=_TOLERANCE,
        )
        weights = contrasts(self.classes) @ fit.weights
        length = np.sqrt((weights**2).sum(axis=(-2, -1), keepdims=True))
        usable = fit.converged[..., None, None] & any_filled(filled)
        return np.asarray(np.where(usable, weights / np.where(length > 0, length, 1.0), 0.0), np.float64)

    def model(self, mean: Floats, deviation: float) -> Floats:
        return np.asarray(contrasts(self.classes).T @ mean, np.float64)

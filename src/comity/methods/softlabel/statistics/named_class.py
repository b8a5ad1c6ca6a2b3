"""The most frequent class of each party, where noise leaves nothing else to say and there are several classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.federation.declare.bounds import Simplex
from comity.learn.fits import contrasts
from comity.methods.softlabel.statistics.class_sums import ClassSums

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedClass(ClassSums):
    """Class sums without directions, as a count for each class, (1, C): a one at the party's most frequent class, ties
    in equal parts, 1/C everywhere without records.

    Sensitivity  2 in L1, √2 in L2: two points of the simplex. Laplace noise moves each count by 2√2/ε whatever the
                 number of classes, spherical noise over their C − 1 contrasts each of these by √(2C)/ε.
    """

    dimensions: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return 1, self.classes

    @property
    def bound(self) -> Simplex:
        return Simplex(1, self.classes)

    def of_total(self, total: Floats) -> Floats:
        return self.named(total)[..., None, :]

    def model(self, mean: Floats, deviation: float) -> Floats:
        """As of class sums: contrasts are orthonormal, so that noise on them deviates by as much as on counts."""
        return super().model(contrasts(self.classes) @ mean.T, deviation)

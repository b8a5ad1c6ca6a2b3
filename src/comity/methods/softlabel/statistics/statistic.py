"""What a party contributes to the secure sum, and how the opened sum becomes a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod, sqrt
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.federation.declare.bounds import Bound
from comity.federation.owner.rows import Rows
from comity.learn.feature_map import FeatureMap

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Filled = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, kw_only=True)
class Statistic(ABC):
    """One private quantity of each party, of which only the noisy sum is opened. Frozen, made of public values alone.

    `map` is fitted on the public auxiliary rows and appends a constant; models are linear in what it gives. `needs`
    says whether a contribution reads the party's votes on the auxiliary rows, or its records. `pure` says whether it is
    meant for noise of pure ε as well. `bound.l2` is the sensitivity of the sum: it holds for everything that
    `contribution` returns once `bound` has been enforced, whatever the records and votes are.
    """

    name: ClassVar[str]
    needs: ClassVar[Literal["votes", "records"]]
    pure: ClassVar[bool]

    classes: int
    map: FeatureMap

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise StudyError(f"soft labels need at least two classes, found {self.classes}; declare them in the schema")
        if not self.map.constant:
            raise StudyError("the feature map of a statistic must append a constant")

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of one contribution, and of the sum."""

    @property
    @abstractmethod
    def bound(self) -> Bound:
        """Where a contribution lies."""

    @property
    @abstractmethod
    def signal(self) -> float:
        """How long the mean contribution can be at most where all is well: what the noise is to be compared with."""

    @abstractmethod
    def contribution(self, features: Floats, labels: Labels, filled: Filled, votes: Floats | None = None) -> Floats:
        """A party's part of the sum, or those of a stack of parties: (..., *shape).

        `features` (..., n, d) are encoded rows before the map, `labels` (..., n) class indices, `filled` (..., n)
        tells records from padding, `votes` (..., N, C) are rows of shares for the auxiliary rows. A party without
        records contributes the bound's neutral value.
        """

    @abstractmethod
    def model(self, mean: Floats, deviation: float) -> Floats:
        """Weights (C, map.dimensions) from the opened mean, `deviation` being its noise's on one coordinate.

        Post-processing: it reads the release and public values, and costs nothing.
        """

    def noise_to_signal(self, deviation: float) -> float:
        """Length of the noise on the mean beside the largest signal; above one the release is mostly noise."""
        return deviation * sqrt(prod(self.shape)) / self.signal

    def expectation(self, deviation: float) -> str:
        """One line for the plan, from public quantities."""
        ratio = self.noise_to_signal(deviation)
        if ratio > 1:
            advice = "mostly noise: expect little more than a constant; raise epsilon or the number of parties"
        elif ratio > 0.2:
            advice = "expect some loss of accuracy; it falls as 1/(epsilon x parties)"
        else:
            advice = "expect next to no loss of accuracy from the noise"
        return f"{self.name}: noise to signal {ratio:.2g} over {prod(self.shape)} numbers ({advice})"


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordTotal(Statistic):
    """A statistic that is a function of one sum over records, which may therefore come in blocks."""

    needs: ClassVar[Literal["votes", "records"]] = "records"

    @abstractmethod
    def part(self, rows: Rows) -> Floats:
        """What a block of records adds to a party's sum: (..., *shape)."""

    def of_total(self, total: Floats) -> Floats:
        """The contribution, from the sum over all blocks."""
        return total

    def contribution(self, features: Floats, labels: Labels, filled: Filled, votes: Floats | None = None) -> Floats:
        return self.of_total(self.part(Rows(features, labels, filled)))


def any_filled(filled: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which parties have a record at all, shaped to multiply a contribution of two axes."""
    return np.asarray(filled.any(axis=-1), np.bool_)[..., None, None]


def in_simplex(votes: Floats) -> Floats:
    """Every row that is a distribution up to rounding, rescaled; every other one replaced by 1/C.

    What is summed lies in the simplex always: a row that summed to less would be further from the others than √2, or
    move a direction that carries no noise.
    """
    votes = np.asarray(votes, np.float64)
    # Written so that NaN fails.
    total = votes.sum(axis=-1, keepdims=True)
    proper = (votes >= 0).all(axis=-1, keepdims=True) & (np.abs(total - 1) <= 1e-6)
    if proper.all():
        return np.asarray(votes / total, np.float64)
    return np.where(proper, votes / np.where(proper, total, 1.0), 1.0 / votes.shape[-1])

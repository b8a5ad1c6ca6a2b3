"""Statistics of soft-label learning: what a party adds to the secure sum, and the model that the opened sum gives.

`votes` has the statistics of local classifiers, `record_sums` those of the records themselves.
"""

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

Filled = NDArray[np.bool_]
Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Statistic(ABC):
    """One private quantity of each party; only the noisy sum over parties is opened. Its fields are public.

    `map` is fitted on the public auxiliary rows and appends a constant; models are linear in its coordinates. `needs`
    says whether a contribution reads the party's votes on the auxiliary rows, or its records. `pure` says whether noise
    of pure ε is allowed. `bound.l2` is the sensitivity of the sum: once `bound` is enforced, it holds for any records
    and votes.
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
        """Shape of a contribution, and of the sum."""

    @property
    @abstractmethod
    def bound(self) -> Bound:
        """The set that every contribution is projected on."""

    @property
    @abstractmethod
    def signal(self) -> float:
        """The largest norm of the mean contribution: what the noise is compared with."""

    @abstractmethod
    def contribution(self, features: Floats, labels: Labels, filled: Filled, votes: Floats | None = None) -> Floats:
        """A party's part of the sum, or those of a stack of parties: (..., *shape).

        `features` (..., n, d) are encoded rows before the map, `labels` (..., n) class indices, `filled` (..., n)
        tells records from padding, `votes` (..., N, C) are rows of shares for the auxiliary rows. A party without
        records contributes the bound's neutral value.
        """

    @abstractmethod
    def model(self, mean: Floats, deviation: float) -> Floats:
        """Weights (C, map.dimensions) from the opened mean, whose noise has this `deviation` per coordinate.

        Post-processing: it reads the release and public values only.
        """

    def noise_to_signal(self, deviation: float) -> float:
        """Norm of the noise on the mean over the largest signal; above one the release is mostly noise."""
        return deviation * sqrt(prod(self.shape)) / self.signal


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordTotal(Statistic):
    """A statistic that is a function of one sum over records: they may come in blocks."""

    needs: ClassVar[Literal["votes", "records"]] = "records"

    @abstractmethod
    def part(self, rows: Rows) -> Floats:
        """A block's part of the party's sum: (..., *shape)."""

    def of_total(self, total: Floats) -> Floats:
        """The contribution, from the sum over all blocks."""
        return total

    def contribution(self, features: Floats, labels: Labels, filled: Filled, votes: Floats | None = None) -> Floats:
        return self.of_total(self.part(Rows(features, labels, filled)))


def has_records(filled: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which parties have a record, shaped to multiply a contribution of two axes."""
    return np.asarray(filled.any(axis=-1), np.bool_)[..., None, None]


def enforce_simplex(votes: Floats) -> Floats:
    """Rescale every row that is a distribution up to rounding, and replace every other row by 1/C.

    Everything that is summed lies in the simplex: a row of another sum could be further than √2 from the others, or
    move a direction that carries no noise.
    """
    votes = np.asarray(votes, np.float64)
    # Both comparisons are false for NaN.
    total = votes.sum(axis=-1, keepdims=True)
    proper = (votes >= 0).all(axis=-1, keepdims=True) & (np.abs(total - 1) <= 1e-6)
    if proper.all():
        return np.asarray(votes / total, np.float64)
    return np.where(proper, votes / np.where(proper, total, 1.0), 1.0 / votes.shape[-1])


def prior_squares(found: FeatureMap, kept: int, signal: float, classes: int) -> Floats:
    """A public prior (kept + 1) of the square of each moment: the largest signal times each direction's share of the
    variance of the first `kept` directions; the constant last.

    Labels mostly depend on directions in which public rows differ much; in other directions a large moment is noise.
    The constant's moment says how frequent the classes are, and may be as large as any, so it is shrunk last: a model
    of little but noise falls back on the class that the noisy frequencies name.
    """
    variances = kept_variances(found, kept)
    shares = np.append(variances / variances.sum(), 1.0)
    return np.asarray(signal**2 / (classes - 1) * shares, np.float64)


def kept_variances(found: FeatureMap, kept: int) -> Floats:
    """Of public rows along the first `kept` directions of the map (kept,), before it whitens them."""
    last = found.matrix if found.whitening is None else found.whitening
    return np.asarray(1 / (last[:, :kept] ** 2).sum(axis=0), np.float64)


def shrink(moments: Floats, likely: Floats, deviation: float) -> Floats:
    """Posterior means of moments under independent normal priors with these squares, and noise of this deviation."""
    return np.asarray(moments * likely / (likely + deviation**2), np.float64)


def shrink_towards_frequencies(moments: Floats, deviation: float) -> Floats:
    """Shrink the directions, all columns but the constant's, by James and Stein's rule.

    k numbers of noise alone have a squared norm of k·deviation² on average. The directions keep the share that exceeds
    it: nothing where they are as short as noise, and only the class frequencies are left. Unequal classes that public
    directions say little about need it: there a slope made of noise is worse than no slope.
    """
    directions = moments[:, :-1]
    square = float((directions**2).sum())
    kept = max(0.0, 1 - directions.size * deviation**2 / square) if square > 0 else 0.0
    return np.concatenate([kept * directions, moments[:, -1:]], axis=1)

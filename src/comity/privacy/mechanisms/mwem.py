"""Multiplicative weights and private choices: a histogram for many queries (after Hardt, Ligett and McSherry 2012)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError, StudyError
from comity.privacy.loss import Pure
from comity.privacy.mechanisms.computation import checked_values, pure_share
from comity.privacy.mechanisms.scale import ROUND_UP
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource

UNIT = 1 << 16
"""Queries are whole multiples of its inverse, so that answers to counts are integers, and exact."""

_MOST = 1 << 33
_PASSES = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class MWEM:
    """Chooses in each round the query that the histogram so far answers worst, measures it with noise, and reweighs.

    Promise      ε-DP against whoever sees the histogram, and every choice and measurement on the way.
    Why          each of T rounds chooses by noisy max at ε/2T and measures with discrete Laplace noise at ε/2T; what
                 else happens is computed from choices and measurements alone. 2T losses add up to ε.
    Sensitivity  1: a query has a value in [0, 1] for each cell, so adding, removing or moving one record moves its
                 answer by at most 1, and so its distance from what the histogram says. Answers are sums of integers:
                 nothing is rounded. `records`, the total that weights are scaled to, is public.
    """

    loss: Pure
    queries: NDArray[np.float64]
    records: int
    rounds: int
    name: ClassVar[str] = "multiplicative weights"
    norm: ClassVar[str] = "l1"
    sensitivity: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        table = np.asarray(self.queries, np.float64)
        # A NaN is not within the bounds either.
        if table.ndim != 2 or table.size == 0 or not ((table >= 0) & (table <= 1)).all():
            raise StudyError(
                f"queries are rows of values in [0, 1], one per cell, found shape {table.shape}", key="queries"
            )
        if not 1 <= self.rounds <= len(table):
            raise StudyError(f"rounds: between 1 and the {len(table)} queries, found {self.rounds}", key="rounds")
        if not 1 <= self.records <= _MOST:
            raise StudyError(f"records: between 1 and 2^33, found {self.records}", key="records")
        pure_share(self.loss, self.name, 2 * self.rounds)
        table = table.copy()
        table.setflags(write=False)
        object.__setattr__(self, "queries", table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MWEM) and self._figures == other._figures

    def __hash__(self) -> int:
        return hash(self._figures)

    @property
    def _figures(self) -> tuple[object, ...]:
        return self.loss, self.records, self.rounds, self.queries.shape, self.queries.tobytes()

    @property
    def charged(self) -> Pure:
        return self.loss

    @property
    def share(self) -> float:
        """The ε of one choice, or of one measurement."""
        return pure_share(self.loss, self.name, 2 * self.rounds)

    def check(self, values: NDArray[Any]) -> None:
        found = checked_values(values, self.name, 1, _MOST)
        cells = self.queries.shape[1]
        if found.shape != (cells,) or not np.issubdtype(found.dtype, np.integer) or found.min() < 0:
            raise DataError(f"{self.name} needs {cells} counts, found {found.dtype} of shape {found.shape}")
        if int(found.astype(object).sum()) > _MOST:
            raise DataError(f"{self.name} needs at most 2^33 records")

    def run(self, source: NoiseSource, values: NDArray[Any], *, permit: Permit) -> NDArray[np.float64]:
        """Weights of the cells, which add up to `records`."""
        self.check(values)
        table = np.rint(self.queries * UNIT).astype(np.int64)
        truth = table @ np.asarray(values, np.int64)
        width = UNIT / self.share * ROUND_UP
        weights = np.full(table.shape[1], self.records / table.shape[1])
        left, measured = np.arange(len(table)), dict[int, float]()
        with permit.several(2 * self.rounds) as within:
            for _ in range(self.rounds):
                said = np.rint(table[left] @ weights).astype(np.int64)
                (best,) = source.noisy_max(np.abs(truth[left] - said)[None], 2 * width, permit=within)
                query, left = int(left[best]), np.delete(left, best)
                (noise,) = source.discrete_laplace(width, (1,), permit=within)
                measured[query] = float(truth[query] + noise) / UNIT
                weights = reweighed(weights, table / UNIT, measured)
        return weights


def reweighed(
    weights: NDArray[np.float64], queries: NDArray[np.float64], measured: dict[int, float]
) -> NDArray[np.float64]:
    """Weights of the same total, moved towards the measurements, each of them several times in turn."""
    total = float(weights.sum())
    for _ in range(_PASSES):
        for query, answer in measured.items():
            # A measurement may lie outside of what any histogram answers.
            wanted = min(max(answer, 0.0), total)
            weights = weights * np.exp(queries[query] * (wanted - float(queries[query] @ weights)) / (2 * total))
            weights *= total / float(weights.sum())
    return weights

"""The error of a simulated result by subgroup and by party, with intervals. Simulation only.

A subgroup's error is an exact function of private test records: no guarantee covers it, and a deployment never computes
it. The intervals account for the chance of the test records alone. Whether a subgroup differs from all test records
together is judged at 5 % for all subgroups of one column together (Bonferroni): with twenty subgroups one of twenty
separate 95 % intervals misses by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_RECORDS = 20
"""Fewer test records than this have no interval that helps: Wilson's is then wider than 0.35 around a share of 0.25.
Not tuned on data."""
Verdict = Literal["too few records to tell", "not different", "better", "worse"]
_VERDICTS = ("too few records to tell", "not different", "better", "worse")
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Subgroup:
    """The error of one subgroup, `group` of `by`, on its test records. `low` and `high` are a 95 % interval; there is
    none where the records are too few. The verdict compares it with all test records."""

    by: str
    group: str
    records: int
    error: float
    low: float | None
    high: float | None
    verdict: Verdict

    @property
    def words(self) -> str:
        """The interval, or what stands in its place."""
        if self.low is None or self.high is None:
            return "too few records to tell"
        return f"{self.low:.3f} to {self.high:.3f}"

    def check(self) -> None:
        """ValueError where the values are none that a run measures: a result may have been read from a folder."""
        numbers = [one for one in (self.error, self.low, self.high) if one is not None]
        if not all(map(isfinite, numbers)) or not 0 <= self.records < 1 << 53 or self.verdict not in _VERDICTS:
            raise ValueError("a subgroup holds values that no run measures")
        if (self.low is None) != (self.high is None):
            raise ValueError("a subgroup has one end of an interval and not the other")


def measure_subgroups(
    errors: Floats, groups: Mapping[str, NDArray[Any]], *, is_share: bool, order: Mapping[str, Sequence[str]]
) -> tuple[Subgroup, ...]:
    """The subgroups of each grouping that has test records, in the given order. `errors` are those of the single
    records, 0 or 1 where the error `is_share`."""
    found: list[Subgroup] = []
    whole = float(errors.mean()) if len(errors) else 0.0
    for by, labels in groups.items():
        present = [group for group in order[by] if (labels == group).any()]
        for group in present:
            found.append(_measure(by, group, errors[labels == group], whole, len(present), is_share=is_share))
    return tuple(found)


def _measure(by: str, group: str, errors: Floats, whole: float, several: int, *, is_share: bool) -> Subgroup:
    mean = float(errors.mean())
    if len(errors) < MIN_RECORDS:
        return Subgroup(by, group, len(errors), mean, None, None, "too few records to tell")
    low, high = error_interval(errors, 1 - _CONFIDENCE, is_share=is_share)
    least, most = error_interval(errors, (1 - _CONFIDENCE) / several, is_share=is_share)
    verdict: Verdict = "not different"
    if several > 1 and not least <= whole <= most:
        verdict = "worse" if mean > whole else "better"
    return Subgroup(by, group, len(errors), mean, low, high, verdict)


def error_interval(errors: Floats, miss: float, *, is_share: bool) -> tuple[float, float]:
    """The interval of the mean error that misses with probability `miss`: Wilson's of a share, Student's otherwise."""
    # A plan imports this module, and needs no quantiles.
    from scipy.special import ndtri, stdtrit

    count, mean = len(errors), float(errors.mean())
    if is_share:
        square = float(ndtri(1 - miss / 2)) ** 2 / count
        middle = (mean + square / 2) / (1 + square)
        reach = sqrt(square) * sqrt(mean * (1 - mean) + square / 4) / (1 + square)
        return max(0.0, min(mean, middle - reach)), min(1.0, max(mean, middle + reach))
    reach = float(stdtrit(count - 1, 1 - miss / 2)) * float(errors.std(ddof=1)) / sqrt(count)
    return max(0.0, mean - reach), mean + reach


def record_errors(presented: Any, features: Floats, labels: NDArray[Any]) -> Floats | None:
    """The error of each record by a released linear model: 1 for a wrong class, or the squared error of a target on
    [−1, 1]. None for anything else."""
    classes = getattr(presented, "classes_", None)
    if classes is not None:
        return np.asarray(presented.predict(features) != np.asarray(classes)[labels.astype(np.int64)], np.float64)
    if not hasattr(presented, "scores"):
        return None
    target = 2 * (np.asarray(labels, np.float64) - presented.low) / (presented.high - presented.low) - 1
    return np.asarray((presented.scores(features) - target) ** 2, np.float64)

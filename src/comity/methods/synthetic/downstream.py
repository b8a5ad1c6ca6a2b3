"""What learners make of records: the error on test records of what was learned from real ones, or from synthetic ones.

Features are the cells of a record, one-hot for linear learners and as they are for trees, so that all are compared in
what the counts could say. Simulation only: whatever is measured here reads private records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity.data import Bounded, Records
from comity.entropy import Stream
from comity.federation.assessment import auc
from comity.federation.baseline import Baseline
from comity.methods.synthetic.counting import Counting

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Records that a learner sees, and parties that are tried alone: limits of size.
MOST_LEARNED, MOST_ALONE = 30_000, 5


@dataclass(frozen=True, eq=False)
class Examples:
    """Cells of records, without the target's, and the target: classes, or numbers on [−1, 1]."""

    cells: Integers
    targets: NDArray[Any]

    def __len__(self) -> int:
        return len(self.cells)


@dataclass(frozen=True)
class Task:
    """To tell the target from the other columns."""

    counting: Counting

    @property
    def classified(self) -> bool:
        return self.counting.classified

    @property
    def measure(self) -> str:
        if self.classified:
            return "share of test records that a logistic regression on the dataset gets wrong"
        return "mean squared error of a ridge regression on the dataset, with the target on [-1, 1]"

    def examples(self, records: Records, most: int = MOST_LEARNED) -> Examples:
        """Some of the records, by public chance where there are more."""
        chosen = _some(len(records), most)
        cells = records.features[chosen].astype(np.int64)
        assert records.labels is not None
        labels = np.asarray(records.labels)[chosen]
        return Examples(cells[:, :-1], labels if self.classified else self._scaled(labels))

    def _scaled(self, values: NDArray[Any]) -> Floats:
        target = self.counting.schema.target
        assert isinstance(target, Bounded)
        return np.asarray(2 * (values - target.low) / (target.high - target.low) - 1, np.float64)

    def linear(self, learned: Examples, test: Examples) -> float:
        """Error of a linear learner; of a constant where there is nothing to learn."""
        from sklearn.linear_model import LogisticRegression, Ridge

        if len(learned) < 2 or len(np.unique(learned.targets)) < 2:
            return self.constant(learned, test)
        rows, tested = self._one_hot(learned.cells), self._one_hot(test.cells)
        with threadpool_limits(1):
            learner = LogisticRegression(max_iter=200) if self.classified else Ridge(1.0)
            learner.fit(rows, learned.targets)
            return self._error(learner.predict(tested), test)

    def trees(self, learned: Examples, test: Examples) -> tuple[float, float | None]:
        """Error of boosted trees and, of two classes, their AUC."""
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        if len(learned) < 2 or len(np.unique(learned.targets)) < 2:
            return self.constant(learned, test), None
        kind = HistGradientBoostingClassifier if self.classified else HistGradientBoostingRegressor
        with threadpool_limits(1):
            learner = kind(random_state=0, early_stopping=False).fit(learned.cells, learned.targets)
            error = self._error(learner.predict(test.cells), test)
            shares = learner.predict_proba(test.cells) if self.classified else None
        if shares is None or len(learner.classes_) != 2:
            return error, None
        return error, auc(shares[:, 1], test.targets == learner.classes_[1])

    def constant(self, learned: Examples, test: Examples) -> float:
        if not len(learned):
            learned = test
        values, counts = np.unique(learned.targets, return_counts=True)
        told = values[counts.argmax()] if self.classified else learned.targets.mean()
        return self._error(np.full(len(test), told), test)

    def compare(self, train: Sequence[Records], test: Examples) -> list[Baseline]:
        """A constant, parties alone, all records pooled."""
        pooled = self.examples(together(train))
        alone = [self.linear(self.examples(own), test) for own in train[:MOST_ALONE]]
        tried = f"the first {len(alone)} of {len(train)} parties" if len(train) > len(alone) else "each party"
        own = Baseline("own data", float(np.mean(alone)), float(np.std(alone)), note=f"{tried}, without privacy")
        return self._beside(pooled, own, test)

    def compare_columns(self, whole: Records, own: Sequence[int], test: Examples) -> list[Baseline]:
        """A constant, the target's holder with the columns `own` alone, all columns in one place."""
        pooled = self.examples(whole)
        alone = self.linear(_only(pooled, own), _only(test, own))
        return self._beside(pooled, Baseline("own data", alone, note="the target's holder, without privacy"), test)

    def _beside(self, pooled: Examples, own: Baseline, test: Examples) -> list[Baseline]:
        return [
            Baseline("constant", self.constant(pooled, test), note="the same answer for all"),
            own,
            Baseline("pooled", self.linear(pooled, test), note="all records in one place, without privacy"),
        ]

    def _error(self, told: NDArray[Any], test: Examples) -> float:
        if self.classified:
            return float(np.mean(told != test.targets))
        return float(np.mean((np.clip(told, -1, 1) - test.targets) ** 2))

    def _one_hot(self, cells: Integers) -> NDArray[np.float32]:
        sizes = self.counting.layout.sizes[: cells.shape[1]]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        found = np.zeros((len(cells), int(starts[-1])), np.float32)
        np.put_along_axis(found, cells + starts[:-1], 1.0, axis=1)
        return found


def together(records: Sequence[Records]) -> Records:
    labels: list[Any] = [one.labels for one in records if one.labels is not None]
    return Records(np.concatenate([one.features for one in records]), np.concatenate(labels) if labels else None)


def _only(examples: Examples, columns: Sequence[int]) -> Examples:
    """With every other column the same for all records, so that it tells nothing."""
    cells = np.zeros_like(examples.cells)
    cells[:, list(columns)] = examples.cells[:, list(columns)]
    return Examples(cells, examples.targets)


def _some(count: int, most: int) -> Integers:
    return (
        np.arange(count) if count <= most else np.sort(Stream.public("some records", count).permutation(count)[:most])
    )

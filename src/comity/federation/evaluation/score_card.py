"""The score card: what one held-out record adds to the sums of an evaluation, and how far it moves them.

    two classes     one cell of (bin of the score) x (label); right or wrong, log loss, squared error; count
    more classes    one cell of (predicted) x (label), one of (bin of the confidence) x (right); the same; count
    a number        squared error, target, its square, prediction, its square, their product; count

Cells and count are whole numbers. Every other entry lies in [0, 1] in steps of 2^-16. Sums are therefore exact in
doubles, and one record moves an entry by at most 1 times its weight. Where the unit is a whole party, the party divides
its sums by its own count: each party weighs the same, and its cells lie in the simplex, or are zero if it holds no
record out.

Sensitivity (proof.md, 3), squared L2 and L1, for t one-hot tables and entries of weights w and W for the count:

    record, replaced            2t + Σw²                       2t + Σw            (the count stays: W is free)
    record, added or removed    t + Σw² + W²                   t + Σw + W
    party, replaced             max(2t + Σw², t + Σw² + W²)    max(2t + Σw, t + Σw + W)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from comity.data.row_products import row_sums
from comity.federation.declare.bounds import Range, entries_within
from comity.privacy.unit import Neighbours, Unit
from comity.special import expit, logit

Floats = NDArray[np.float64]

REACH = 4.0
"""Scores are clipped to ±4 and probabilities to 0.018 … 0.982, which bounds the log loss."""
CAP = float(np.log1p(np.exp(REACH)))
MAX_BINS = 20
MAX_RECORDS = float(2**32)
"""The largest number of records of one party: its sums are clipped at what so many can add up to."""

_STEP = 2.0**-16
_FREE = 16.0


class Predictor(Protocol):
    """A released model with scikit-learn's interface. A classifier has `predict_proba` too, in the order of classes."""

    def predict(self, X: Any) -> Any: ...


@runtime_checkable
class Rowwise(Protocol):
    """A released model that may score private records, even if a dishonest coordinator sent it.

    The predictor of `rowwise` answers about each record independently of the others, to the last bit. A cell of a score
    card is an interval of the score: rounding that depends on other records could move a record to another cell.
    """

    def rowwise(self) -> Predictor: ...


@dataclass(frozen=True)
class PredictionTask:
    """What a model predicts: one of `classes` classes or, with classes = 0, a number between public bounds."""

    classes: int = 0
    low: float = -1.0
    high: float = 1.0


@dataclass(frozen=True)
class ScoreCard:
    """The layout of an evaluation's sums. `bins` divide the score or the confidence: an even number, with an edge at
    ½."""

    task: PredictionTask
    bins: int
    unit: Unit
    neighbours: Neighbours

    # The layout.

    @property
    def binary(self) -> bool:
        return self.task.classes == 2

    @property
    def tables(self) -> tuple[tuple[int, int], ...]:
        """Shapes of the one-hot tables."""
        classes = self.task.classes
        if not classes:
            return ()
        return ((self.bins, 2),) if self.binary else ((classes, classes), (self.bins, 2))

    @property
    def entries(self) -> tuple[str, ...]:
        if self.task.classes:
            return ("right", "log loss", "squared error")
        return ("squared error", "target", "target²", "prediction", "prediction²", "product")

    @property
    def weights(self) -> Floats:
        """Weights of the entries. The figures that most people ask for weigh most. With whole parties as the unit the
        budget is small, and log loss weighs half."""
        if not self.task.classes:
            return np.array([1.0, 0.5, 0.5, 0.5, 0.5, 0.5])
        return np.array([1.0, 0.5 if self.unit is Unit.PARTY else 1.0, 0.5])

    @property
    def count_weight(self) -> float:
        """Weight of the count. If neighbours have the same count, it costs nothing and may weigh more."""
        return _FREE if self.neighbours is Neighbours.REPLACE and self.unit is not Unit.PARTY else 1.0

    @property
    def cells(self) -> int:
        return sum(a * b for a, b in self.tables)

    @property
    def size(self) -> int:
        return self.cells + len(self.entries) + 1

    @property
    def edges(self) -> Floats:
        """Inner edges of the bins, of equal width: of scores from −4 to 4, of confidences from 1/classes to 1."""
        if self.binary:
            return np.linspace(-REACH, REACH, self.bins + 1)[1:-1]
        return np.linspace(1 / max(1, self.task.classes), 1.0, self.bins + 1)[1:-1]

    # The sensitivity.

    @property
    def l2(self) -> float:
        return sqrt(self._sensitivity(float((self.weights**2).sum()), self.count_weight**2))

    @property
    def l1(self) -> float:
        return self._sensitivity(float(self.weights.sum()), self.count_weight)

    def _sensitivity(self, entries: float, count: float) -> float:
        tables = len(self.tables)
        replaced, added = 2 * tables + entries, tables + entries + count
        if self.unit is Unit.PARTY:
            return max(replaced, added)
        return replaced if self.neighbours is Neighbours.REPLACE else added

    # The computation at a site.

    def sums(self, predictor: Predictor, features: Floats, labels: NDArray[Any]) -> Floats:
        """The sums of a party's own records; zero without records."""
        return self.party_sums(self.block_sums(predictor, features, labels))

    def block_sums(self, predictor: Predictor, features: Floats, labels: NDArray[Any]) -> Floats:
        """What a block of records adds to a party's sums; the last entry is the number of records."""
        count = len(features)
        if not count:
            return np.zeros(self.size)
        rows = np.clip(np.nan_to_num(np.asarray(features, np.float64)), -1e9, 1e9)
        one = (
            self._of_classes(predictor, rows, labels)
            if self.task.classes
            else self._of_numbers(predictor, rows, labels)
        )
        return np.append(one, float(count))

    def party_sums(self, total: Floats) -> Floats:
        """A party's sums from the total over its blocks. Where whole parties are protected they are means: every party
        weighs the same."""
        one, count = total[:-1], float(total[-1])
        if not count:
            return np.zeros(self.size)
        if self.unit is Unit.PARTY:
            return np.append(one / count, self.count_weight)
        return np.append(one, self.count_weight * count)

    def _of_classes(self, predictor: Any, rows: Floats, labels: NDArray[Any]) -> Floats:
        classes = self.task.classes
        shares = np.clip(np.nan_to_num(np.asarray(predictor.predict_proba(rows), np.float64)), 0.0, 1.0)
        truth = np.clip(np.nan_to_num(np.asarray(labels, np.float64)), 0, classes - 1).astype(np.int64)
        own = np.take_along_axis(shares, truth[:, None], 1)[:, 0]
        if self.binary:
            score = np.clip(logit(np.clip(shares[:, 1], 1e-12, 1 - 1e-12)), -2 * REACH, 2 * REACH)
            guess = (score > 0).astype(np.int64)
            cells = _table(np.searchsorted(self.edges, score, side="left"), truth, (self.bins, 2))
        else:
            guess = shares.argmax(1)
            sure = np.searchsorted(self.edges, shares.max(1), side="left")
            confusion = _table(guess, truth, (classes, classes))
            cells = np.concatenate([confusion, _table(sure, (guess == truth).astype(np.int64), (self.bins, 2))])
        lost = -np.log(np.clip(own, expit(-REACH), expit(REACH))) / CAP
        squared = row_sums((shares - np.eye(classes)[truth]) ** 2) / 2
        return np.concatenate([cells, self._sum_entries(np.column_stack([guess == truth, lost, squared]))])

    def _of_numbers(self, predictor: Predictor, rows: Floats, labels: NDArray[Any]) -> Floats:
        y, guess = (self._scaled(values) for values in (labels, predictor.predict(rows)))
        return self._sum_entries(np.column_stack([(y - guess) ** 2, y, y**2, guess, guess**2, y * guess]))

    def _scaled(self, values: Any) -> Floats:
        """Scale by the target's bounds to [0, 1]; a prediction outside counts as the nearest bound."""
        low, high = self.task.low, self.task.high
        return np.clip((np.nan_to_num(np.asarray(values, np.float64)) - low) / (high - low), 0.0, 1.0)

    def _sum_entries(self, entries: Floats) -> Floats:
        whole = np.rint(np.clip(entries, 0.0, 1.0) / _STEP).sum(0) * _STEP
        return np.asarray(whole * self.weights, np.float64)


def _table(one: NDArray[np.int64], other: NDArray[np.int64], shape: tuple[int, int]) -> Floats:
    return np.bincount(one * shape[1] + other, minlength=shape[0] * shape[1]).astype(np.float64)


def choose_bins(records: float | None, deviation: float) -> int:
    """The largest even number of bins, from 2 to 20, at which a cell holds on average twice the noise; 10 if the number
    of records is not public. It uses public figures alone. Not tuned on data."""
    if records is None:
        return 10
    return int(min(MAX_BINS, max(2, 2 * (records / (4 * max(deviation, 1e-9)) // 2))))


@dataclass(frozen=True)
class ScoreCardBound:
    """The bound of a party's sums: every entry lies between 0 and `most`.

    Where a whole party is protected, it may send the neutral value after any failure (`neutral_within`); where a record
    is protected, it may not.
    """

    l2: float
    l1: float
    most: float
    neutral_within: bool

    @property
    def limit(self) -> float:
        return self.most

    def enforce(self, value: Floats, shape: tuple[int, ...]) -> Floats:
        """Clip each entry, which moves no two contributions further apart."""
        return np.clip(np.nan_to_num(value), 0.0, self.most)

    def neutral(self, shape: tuple[int, ...]) -> Floats:
        return np.zeros(shape)

    def ranges(self, total: Floats, parties: int) -> tuple[Range, ...]:
        return (entries_within(total, 0.0, parties * self.most),)

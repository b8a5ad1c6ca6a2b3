"""How good what an owner received is on that owner's own records. For its own eyes: it is no release, and never sent.

A run may end normally and still bring a model that another party has spoiled: a party that lies within loose bounds
is not noticed (`federation.declare.plausibility`). An owner can check, because it has records: it compares the model
with the best constant on these records. A difference that chance explains for so many records does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import LocalRecords
from comity.federation.evaluation.score_card import PredictionTask

Floats = NDArray[np.float64]

# Standard deviations beyond which a difference is not left to chance.
_CHANCE = 3.0

WRONG = "share of your records that it gets wrong"
SQUARED = "mean squared error on your records, the target's bounds being 0 and 1"


@dataclass(frozen=True)
class OwnScore:
    """`error` of what was received and `constant` of the best constant, on `records` records; `margin` is what chance
    explains of a difference between the two."""

    records: int
    error: float
    constant: float
    margin: float
    measure: str

    @property
    def is_worse(self) -> bool:
        return self.error > self.constant + self.margin

    @property
    def sentence(self) -> str:
        beside = f"{self.error:.3g}, of a constant {self.constant:.3g} ({self.measure}; {self.records:,} records)"
        if self.is_worse:
            return (
                f"WORSE THAN A CONSTANT on your records: {beside}. Do not use it before the owners know why: one of "
                "them may have sent something else than its records say"
            )
        return f"on your records: {beside}"


def score_predictor(model: Any, records: LocalRecords, task: PredictionTask | None) -> OwnScore | None:
    """Of a model that predicts classes or, between the bounds of `predicts`, numbers; block by block. None where there
    is nothing to compare with."""
    classes = getattr(model, "classes_", None)
    if classes is not None:
        return _of_classes(model, np.asarray(classes), records)
    if task is None or task.classes:
        return None
    return _of_numbers(model, records, task)


def _blocks(records: LocalRecords) -> Iterator[tuple[Floats, NDArray[Any]]]:
    for block in records.blocks():
        if block.labels is not None and len(block):
            yield block.features, np.asarray(block.labels)


def _of_classes(model: Any, classes: NDArray[Any], records: LocalRecords) -> OwnScore | None:
    counts, wrong = (np.zeros(len(classes), np.int64) for _ in range(2))
    for features, labels in _blocks(records):
        truth = labels.astype(np.int64)
        told = np.asarray(model.predict(features))
        counts += np.bincount(truth, minlength=len(classes))
        wrong += np.bincount(truth[told != classes[truth]], minlength=len(classes))
    return of_classes(counts, wrong)


def of_classes(counts: NDArray[np.int64], wrong: NDArray[np.int64]) -> OwnScore | None:
    """Of each class `counts` records, about `wrong` of which the answer is wrong."""
    count = int(counts.sum())
    if not count:
        return None
    best = int(counts.argmax())
    # Records on which one of the two is right: chance moves their difference by the root of their number.
    lost, won = int(wrong[best]), int((counts - wrong).sum() - (counts - wrong)[best])
    error, constant = int(wrong.sum()) / count, 1 - int(counts[best]) / count
    return OwnScore(count, error, constant, _CHANCE * sqrt(lost + won) / count, WRONG)


def _of_numbers(model: Any, records: LocalRecords, task: PredictionTask) -> OwnScore | None:
    width = task.high - task.low
    pairs = [
        (np.clip((np.asarray(values, np.float64) - task.low) / width, 0.0, 1.0) for values in pair)
        for pair in ((labels, model.predict(features)) for features, labels in _blocks(records))
    ]
    if not pairs:
        return None
    truth, told = (np.concatenate(one) for one in zip(*pairs))
    squared, constant = (truth - told) ** 2, (truth - truth.mean()) ** 2
    margin = _CHANCE * float(np.std(squared - constant)) / sqrt(len(truth))
    return OwnScore(len(truth), float(squared.mean()), float(constant.mean()), margin, SQUARED)

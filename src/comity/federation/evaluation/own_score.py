"""An owner's own score: how good a received model is on that owner's records. It is not released and never sent.

A run may end normally and still bring a model that another party has spoiled, because lies within the declared bounds
go unnoticed (`federation.declare.plausibility`). The owner can check: it compares the model with the best constant on
its own records, and ignores a difference that chance explains for that many records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.federation.evaluation.score_card import PredictionTask

if TYPE_CHECKING:
    from comity.data import LocalRecords

Floats = NDArray[np.float64]

# A difference beyond this many standard deviations is not explained by chance.
_MAX_DEVIATIONS = 3.0

WRONG = "share of your records that it gets wrong"
SQUARED = "mean squared error on your records, the target's bounds being 0 and 1"


@dataclass(frozen=True)
class OwnScore:
    """The `error` of the received model and that of the best `constant`, on `records` records. Chance explains a
    difference up to `margin`."""

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
        both = f"{self.error:.3g}, of a constant {self.constant:.3g} ({self.measure}; {self.records:,} records)"
        if self.is_worse:
            return (
                f"WORSE THAN A CONSTANT on your records: {both}. Do not use it before the owners know why: one of "
                "them may have sent values that its records do not give"
            )
        return f"on your records: {both}"


def score_predictor(model: Any, records: LocalRecords, task: PredictionTask | None) -> OwnScore | None:
    """Score a model that predicts classes or, between the bounds of `task`, numbers; block by block. None if the model
    predicts neither, or there are no labels."""
    classes = getattr(model, "classes_", None)
    if classes is not None:
        return _score_classifier(model, np.asarray(classes), records)
    if task is None or task.classes:
        return None
    return _score_regressor(model, records, task)


def _blocks(records: LocalRecords) -> Iterator[tuple[Floats, NDArray[Any]]]:
    for block in records.blocks():
        if block.labels is not None and len(block):
            yield block.features, np.asarray(block.labels)


def _score_classifier(model: Any, classes: NDArray[Any], records: LocalRecords) -> OwnScore | None:
    counts, wrong = (np.zeros(len(classes), np.int64) for _ in range(2))
    for features, labels in _blocks(records):
        truth = labels.astype(np.int64)
        predicted = np.asarray(model.predict(features))
        counts += np.bincount(truth, minlength=len(classes))
        wrong += np.bincount(truth[predicted != classes[truth]], minlength=len(classes))
    return score_classes(counts, wrong)


def score_classes(counts: NDArray[np.int64], wrong: NDArray[np.int64]) -> OwnScore | None:
    """The score from each class's number of records (`counts`) and of wrong predictions (`wrong`)."""
    count = int(counts.sum())
    if not count:
        return None
    best = int(counts.argmax())
    # Records on which exactly one of the two is right: chance moves the difference by the root of their number.
    lost, won = int(wrong[best]), int((counts - wrong).sum() - (counts - wrong)[best])
    error, constant = int(wrong.sum()) / count, 1 - int(counts[best]) / count
    return OwnScore(count, error, constant, _MAX_DEVIATIONS * sqrt(lost + won) / count, WRONG)


def _score_regressor(model: Any, records: LocalRecords, task: PredictionTask) -> OwnScore | None:
    width = task.high - task.low
    pairs = [
        (np.clip((np.asarray(values, np.float64) - task.low) / width, 0.0, 1.0) for values in pair)
        for pair in ((labels, model.predict(features)) for features, labels in _blocks(records))
    ]
    if not pairs:
        return None
    truth, predicted = (np.concatenate(one) for one in zip(*pairs))
    squared, constant = (truth - predicted) ** 2, (truth - truth.mean()) ** 2
    margin = _MAX_DEVIATIONS * float(np.std(squared - constant)) / sqrt(len(truth))
    return OwnScore(len(truth), float(squared.mean()), float(constant.mean()), margin, SQUARED)

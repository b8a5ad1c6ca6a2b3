"""What the shared records are to be held against: a constant, each owner alone, everything pooled. In simulation only,
because they are computed from private records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Bounded, Records, Target
from comity.federation.baseline import Baseline
from comity.methods.synthetic.published.predictor import Learner, error, scaled, trained

SAMPLED = 200
"""Errors of owners alone are averaged over at most so many of them."""


def baselines(learner: Learner, target: Target, train: Sequence[Records], test: Records, l2: float) -> list[Baseline]:
    filled = [records for records in train if len(records) and records.labels is not None]
    if not filled or test.labels is None:
        return []
    rows = np.concatenate([records.features for records in filled])
    labels = np.concatenate([np.asarray(records.labels) for records in filled])
    alone = [
        error(target, trained(learner, target, own.features, np.asarray(own.labels), l2), test.features, test.labels)
        for own in filled[:SAMPLED]
    ]
    pooled = error(target, trained(learner, target, rows, labels, l2), test.features, test.labels)
    return [
        Baseline(
            "constant", constant_error(target, labels, test), note="knows the mean or the most frequent class alone"
        ),
        Baseline("own data", float(np.mean(alone)), float(np.std(alone)), f"mean of {len(alone)} owners, each alone"),
        Baseline("pooled", pooled, note="all records in one place, no privacy"),
    ]


def constant_error(target: Target, labels: NDArray[Any], test: Records) -> float:
    """Of the most frequent class, or the mean, of the labels that were learned from."""
    assert test.labels is not None
    if isinstance(target, Bounded):
        return float(np.mean((scaled(target, test.labels) - scaled(target, labels).mean()) ** 2))
    return float(np.mean(np.asarray(test.labels) != np.bincount(labels.astype(np.int64)).argmax()))

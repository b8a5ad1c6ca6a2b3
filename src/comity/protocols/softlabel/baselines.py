"""What a run is compared with in a simulation: a constant, each party alone, everything pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from comity.data import Records
from comity.federation.baseline import Baseline
from comity.protocols.softlabel.local_classifier import linear_weights

if TYPE_CHECKING:
    from comity.learn.models import LinearClassifier

# Own-data scores are averaged over at most this many parties.
_SAMPLED = 200


def wrong(model: LinearClassifier, test: Records) -> float:
    """Share of encoded test records that a model gets wrong."""
    assert test.labels is not None
    scores = model.decision_function(test.features)
    chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
    return float(np.mean(chosen != test.labels))


def baselines(train: Sequence[Records], test: Records, classes: tuple[str, ...], l2: float) -> list[Baseline]:
    filled = [records for records in train if len(records)]
    if not filled:
        return []
    assert test.labels is not None
    labels = np.concatenate([np.asarray(records.labels) for records in filled]).astype(np.int64)
    pooled = Records(np.concatenate([records.features for records in filled]), labels)
    constant = np.bincount(labels, minlength=len(classes)).argmax()
    alone = [_error_of(records, test, classes, l2) for records in filled[:_SAMPLED]]
    return [
        Baseline("constant", float(np.mean(test.labels != constant)), note="always the most frequent class"),
        Baseline(
            "own data",
            float(np.mean(alone)),
            float(np.std(alone)),
            note=f"mean of {len(alone)} parties, each alone",
        ),
        Baseline("pooled", _error_of(pooled, test, classes, l2), note="all records in one place, no privacy"),
    ]


def _error_of(train: Records, test: Records, classes: tuple[str, ...], l2: float) -> float:
    weights, _ = linear_weights(
        train.features, np.asarray(train.labels).astype(np.int64), np.ones(len(train), bool), len(classes), l2
    )
    from comity.learn.models import LinearClassifier

    return wrong(LinearClassifier(weights, classes=classes), test)

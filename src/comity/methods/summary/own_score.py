"""How good bought records are on the consumer's own, for its own eyes: what a linear classifier learns from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import LocalRecords
from comity.federation.own_score import OwnScore, of_classes
from comity.methods.summary.artefact import BoughtRecords

Floats = NDArray[np.float64]

# Of a penalty per record: little, and enough for columns that repeat each other.
_RIDGE = 1e-3


def score_bought(presented: Any, records: LocalRecords) -> OwnScore | None:
    """None of hashes and weights, and where records have no classes."""
    if not isinstance(presented, BoughtRecords) or presented.labels is None or not len(presented):
        return None
    if presented.labels.dtype.kind not in "iu":
        return None
    known = presented.labels.astype(np.int64)
    own = [np.asarray(block.labels, np.int64) for block in records.blocks() if block.labels is not None and len(block)]
    if not own:
        return None
    # By the labels that there are: one of another owner may be any number, where no schema says how many classes.
    labels = np.unique(np.concatenate([known, *own]))
    rows, target = _with_constant(presented.rows), np.eye(len(labels))[np.searchsorted(labels, known)]
    weights = np.linalg.solve(rows.T @ rows + _RIDGE * len(rows) * np.eye(rows.shape[1]), rows.T @ target)
    counts, wrong = (np.zeros(len(labels), np.int64) for _ in range(2))
    for block in records.blocks():
        truth = np.searchsorted(labels, np.asarray(block.labels, np.int64))
        told = (_with_constant(block.features) @ weights).argmax(axis=1)
        counts += np.bincount(truth, minlength=len(labels))
        wrong += np.bincount(truth[told != truth], minlength=len(labels))
    return of_classes(counts, wrong)


def _with_constant(rows: Floats) -> Floats:
    return np.column_stack([rows, np.ones(len(rows))])

"""Several owners' records as one stack of arrays, padded to the size of the largest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from comity.data import LocalRecords

Stack = tuple[NDArray[np.float64], NDArray[Any], NDArray[np.bool_]]


def padded(records: Sequence[LocalRecords]) -> Stack:
    """Features (owners, rows, d), labels (owners, rows), and which rows are records rather than padding. The
    features of one owner are not copied: they may be most of the memory."""
    if len(records) == 1 and len(records[0]):
        (one,) = records
        alone = np.zeros(len(one), np.int64) if one.labels is None else one.labels
        return one.features[None], alone[None], np.ones((1, len(one)), bool)
    rows, width = max(1, max(map(len, records))), records[0].features.shape[1]
    features = np.zeros((len(records), rows, width))
    # Classes are indices, and a target may be a number.
    kinds = [one.labels.dtype for one in records if one.labels is not None]
    labels = np.zeros((len(records), rows), np.result_type(np.int64, *kinds))
    present = np.zeros((len(records), rows), bool)
    for place, one in enumerate(records):
        features[place, : len(one)] = one.features
        labels[place, : len(one)] = one.labels if one.labels is not None else 0
        present[place, : len(one)] = True
    return features, labels, present

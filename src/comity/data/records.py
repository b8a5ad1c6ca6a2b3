"""Encoded records: the form in which a protocol's step gets its owner's data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.representation import html_fields, short_repr

if TYPE_CHECKING:
    from comity.data import LocalRecords


@dataclass(frozen=True, eq=False)
class Records:
    """Features (n, d), and where there are any labels (n,) as class indices or bounded numbers and ids (n,) as strings.
    All are in memory: there is one block.

        records = comity.Records(X, y)
        len(records), records.features.shape
    """

    __repr__ = short_repr
    _repr_html_ = html_fields

    features: NDArray[np.float64]
    labels: NDArray[np.int64] | NDArray[np.float64] | None = None
    ids: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.features)

    def blocks(self) -> Iterator[Records]:
        yield self


Stack = tuple[NDArray[np.float64], NDArray[Any], NDArray[np.bool_]]


def stack_records(records: Sequence[LocalRecords]) -> Stack:
    """Features (owners, rows, d), labels (owners, rows), and which rows are records and not padding. The features of a
    single owner are not copied: they may take most of the memory."""
    if len(records) == 1 and len(records[0]):
        (one,) = records
        labels = np.zeros(len(one), np.int64) if one.labels is None else one.labels
        return one.features[None], labels[None], np.ones((1, len(one)), bool)
    rows, width = max(1, max(map(len, records))), records[0].features.shape[1]
    features = np.zeros((len(records), rows, width))
    # Class labels are indices; a numeric target has floats.
    kinds = [one.labels.dtype for one in records if one.labels is not None]
    labels = np.zeros((len(records), rows), np.result_type(np.int64, *kinds))
    present = np.zeros((len(records), rows), bool)
    for place, one in enumerate(records):
        features[place, : len(one)] = one.features
        labels[place, : len(one)] = one.labels if one.labels is not None else 0
        present[place, : len(one)] = True
    return features, labels, present

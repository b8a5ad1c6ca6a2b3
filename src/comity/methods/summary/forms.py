"""The form of records that are handed over: so many rows at most, as wide as the study says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from comity.data import Classes, Encoding
from comity.federation.declare.consortium import Consortium
from comity.methods.summary.features import LENGTH

Interval = tuple[float, float]


@dataclass(frozen=True)
class Within:
    """Public intervals of the entries of rows and of labels; None where no schema says."""

    rows: Interval | None = None
    labels: Interval | None = None

    @classmethod
    def of(cls, encoding: Encoding | None, *, hashed: bool = False) -> Within:
        if encoding is None:
            return cls()
        target = encoding.schema.target
        labels: Interval | None = None
        if isinstance(target, Classes):
            labels = 0.0, len(target.values) - 1.0
        elif target is not None:
            labels = target.low, target.high
        if hashed:
            return cls((-LENGTH, LENGTH), labels)
        return cls((0.0 if encoding.scaling == "unit" else -1.0, 1.0), labels)


@dataclass(frozen=True)
class Chosen:
    """Rows of `width` finite numbers, `most` of them at most, with a label of type `labels` for each where the study
    has a target, and where they are those of several owners the place of each one's.

    Rows and labels lie `within` what the schema lets a record have: an owner with a program of its own can't hand over
    a class that there is none of, which whoever reads the records would take for a place in a list.
    """

    width: int
    most: int
    labels: str | None
    owners: int = 0
    within: Within = Within()

    def __str__(self) -> str:
        labels = ", each with a label that the schema allows" if self.labels else ""
        return f"at most {self.most} rows of {self.width} numbers within the schema's bounds{labels}"

    def fits(self, value: Any, dims: Mapping[str, int], who: Consortium) -> bool:
        names = {"rows", *(("labels",) if self.labels else ()), *(("owners",) if self.owners else ())}
        if type(value) is not dict or set(value) != names:
            return False
        rows = value["rows"]
        if not _is_array(rows, "<f8") or rows.ndim != 2 or rows.shape[1] != self.width or len(rows) > self.most:
            return False
        if self.labels and not (_is_array(value["labels"], self.labels) and value["labels"].shape == (len(rows),)):
            return False
        if not _lies_in(rows, self.within.rows) or not _lies_in(value.get("labels"), self.within.labels):
            return False
        if not self.owners:
            return True
        owners = value["owners"]
        return bool(
            _is_array(owners, "<i8") and owners.shape == (len(rows),) and ((owners >= 0) & (owners < self.owners)).all()
        )


def _lies_in(values: Any, interval: Interval | None) -> bool:
    return values is None or interval is None or bool(((values >= interval[0]) & (values <= interval[1])).all())


def _is_array(value: Any, dtype: str) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.str == dtype and bool(np.isfinite(value).all())

"""What all forms of the summary share: ranges of options, roles and public sizes, and the form of records handed
over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval, MultipleOf

from comity.data import Classes, Encoding
from comity.errors import StudyError
from comity.federation.declare.consortium import Consortium
from comity.methods.declared_records import Sizes, check_sizes, sum_sizes
from comity.methods.summary.features import LENGTH
from comity.privacy.unit import Neighbours, Unit

AtLeastOne = Annotated[int, Interval(ge=1)]
Features = Annotated[int, Interval(ge=2, le=2000), MultipleOf(2)]
"""Cosines and sines come in pairs."""
Payment = Annotated[float, Interval(ge=0, lt=inf)]


# Roles, and the public sizes that the study states.

OWNER, CONSUMER = "owner", "consumer"
# Sums have room for parties that hold so many times the records that the study says; beyond, they are shrunk. It
# decides how wide the integers are, and moves no noise: a limit of size.
HEADROOM = 2
_KEY = "summary.sizes"


def find_consumer(consortium: Consortium) -> str:
    """The one consumer; refused where there are none or several, or a party plays no part."""
    found = consortium.among(CONSUMER) if CONSUMER in consortium.roles else ()
    if len(found) != 1:
        raise StudyError(
            f"summary serves one consumer, and {len(found)} parties have that role; set [parties.NAME] "
            'role = "consumer" for one of them',
            key="parties",
        )
    idle = [party for party in consortium.parties if not consortium.includes((OWNER, CONSUMER), party)]
    if idle:
        raise StudyError(
            f'{idle[0]!r} has no role; set [parties.{idle[0]}] role = "owner" if it has records to hand over, or '
            '"consumer"',
            key="parties",
        )
    both = [party for party in found if party in consortium.roles.get(OWNER, ())]
    if both or len(consortium.among(OWNER)) < 1:
        raise StudyError("summary needs owners beside its consumer, who is none of them; add parties", key="parties")
    return str(found[0])


def check_terms(consortium: Consortium, sizes: Sizes | None, records: int) -> None:
    """Refuse terms on which no form of the method holds; `records` is how many the owners are to hand over."""
    if consortium.unit is not Unit.RECORD:
        raise StudyError(
            f'summary protects a record; found privacy.unit = "{consortium.unit}". Set privacy.unit = "record"',
            key="privacy.unit",
        )
    if consortium.neighbours is not Neighbours.REPLACE:
        raise StudyError(
            f'summary protects records that are replaced; found privacy.neighbours = "{consortium.neighbours}". Set '
            'privacy.neighbours = "replace": sizes are public, because quotas are capped by them',
            key="privacy.neighbours",
        )
    find_consumer(consortium)
    if not sizes:
        raise StudyError(
            "summary.sizes is missing: the study must state how many records each owner and the consumer have; add "
            "[summary.sizes] with a line NAME = COUNT for each, or one number for all",
            key=_KEY,
        )
    check_sizes(sizes, consortium, _KEY)
    held = sum_sizes(sizes, consortium.among(OWNER))
    if records > held:
        raise StudyError(
            f"summary.records = {records} is more than the owners have, {held} by summary.sizes; lower it",
            key="summary.records",
        )


# The form of records that are handed over.

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Within:
    """Public intervals of the entries of rows and of labels; None where no schema says."""

    rows: Bounds | None = None
    labels: Bounds | None = None

    @classmethod
    def of(cls, encoding: Encoding | None, *, hashed: bool = False) -> Within:
        if encoding is None:
            return cls()
        target = encoding.schema.target
        labels: Bounds | None = None
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

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
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


def _lies_in(values: Any, interval: Bounds | None) -> bool:
    return values is None or interval is None or bool(((values >= interval[0]) & (values <= interval[1])).all())


def _is_array(value: Any, dtype: str) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.str == dtype and bool(np.isfinite(value).all())

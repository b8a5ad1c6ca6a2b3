"""What a tree splits on: the columns of the schema as numbers on [0, 1] and as categories, and back to encoded rows.

Everything here comes from the schema. A range, a category or a bucket that was looked up in the records would tell two
neighbours apart with certainty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from comity.data import Bounded, Classes, Encoding, Schema, Target
from comity.entropy import Stream
from comity.errors import StudyError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BUCKETS = 10
"""Into how many classes of equal length a target that is a number is cut, as published."""


@dataclass(frozen=True)
class Attribute:
    """Entries of an encoded row, from `place` on: a number on [0, 1], or one of `values` categories, one-hot, or as a
    `flag` in a single entry."""

    name: str
    place: int
    values: int = 0
    flag: bool = False

    @property
    def numeric(self) -> bool:
        return self.values == 0


@dataclass(frozen=True)
class Attributes:
    """The attributes of a schema in order, and the classes of its target.

    Records are rows of numbers, one for each attribute: a number on [0, 1], or the place of a category. A number whose
    missing values are a cell is two attributes: the number, which is 0 where it is missing, and whether it is. A date
    is the number of its steps.
    """

    schema: Schema

    def __post_init__(self) -> None:
        if self.schema.target is None:
            raise StudyError(
                "synthetic.variant = published labels what it shares; declare [target] in the schema", key="target"
            )
        if not self.all:
            raise StudyError("synthetic.variant = published needs a column to split on, found none", key="columns")

    @cached_property
    def encoding(self) -> Encoding:
        # Shared records are nobody's: what is made and scored has no identifiers.
        return Encoding(replace(self.schema, identifier=None), scaling="unit", rows="none", intercept=True)

    @cached_property
    def all(self) -> tuple[Attribute, ...]:
        found: list[Attribute] = []
        for group in self.encoding.bounds.groups:
            if group.column == "(intercept)":
                continue
            if group.one_hot:
                found.append(Attribute(group.column, group.start, group.stop - group.start))
                continue
            found.append(Attribute(group.column, group.start))
            if group.stop == group.start + 2:
                found.append(Attribute(f"{group.column}=(missing)", group.start + 1, 2, flag=True))
        return tuple(found)

    @property
    def classes(self) -> int:
        target = self.schema.target
        return len(target.values) if isinstance(target, Classes) else BUCKETS

    def values(self, rows: Floats) -> Floats:
        """Encoded rows (n, width) as one number for each attribute."""
        out = np.empty((len(rows), len(self.all)))
        for place, one in enumerate(self.all):
            if one.numeric:
                out[:, place] = np.clip(np.nan_to_num(rows[:, one.place]), 0.0, 1.0)
            elif one.flag:
                out[:, place] = rows[:, one.place] > 0.5
            else:
                out[:, place] = rows[:, one.place : one.place + one.values].argmax(axis=1)
        return out

    def rows(self, values: Floats) -> Floats:
        """The other way round, with the intercept."""
        out = np.zeros((len(values), self.encoding.width))
        every = np.arange(len(values))
        for place, one in enumerate(self.all):
            if one.numeric:
                out[:, one.place] = values[:, place]
            elif one.flag:
                out[:, one.place] = values[:, place]
                out[values[:, place] > 0.5, one.place - 1] = 0.0
            else:
                out[every, one.place + values[:, place].astype(np.int64)] = 1.0
        out[:, -1] = 1.0
        return out

    def labels(self, target: NDArray[np.int64] | Floats) -> Integers:
        """Class of each record: its own, or the bucket of the target's public range that the number lies in."""
        found = self.schema.target
        if not isinstance(found, Bounded):
            return np.clip(np.asarray(target, np.int64), 0, self.classes - 1)
        share = np.nan_to_num((np.asarray(target, np.float64) - found.low) / (found.high - found.low))
        return np.clip(np.floor(share * BUCKETS), 0, BUCKETS - 1).astype(np.int64)


def targets_of(target: Target, labels: Integers, stream: Stream) -> Integers | Floats:
    """Classes as they are; of a number a uniform draw inside the bucket, by public chance."""
    if not isinstance(target, Bounded):
        return labels
    share = (labels + stream.uniform(len(labels))) / BUCKETS
    return np.asarray(target.low + share * (target.high - target.low), np.float64)

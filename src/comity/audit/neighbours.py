"""Neighbouring records for a study: made from its schema, searched for the pair that shows most.

Nothing here reads private data. Records are generated; the strongest pairs are at the corners of the schema: extreme
numbers, single categories, one class. An owner of nothing but such records is allowed by every neighbour relation, so
what is found for it is a lower bound for all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from comity.audit.capture import Run, shifts_between
from comity.audit.shift import Shift, design_epsilon, design_mu
from comity.data import Bounded, Categorical, Classes, Date, LocalRecords, Numeric, Ordinal, Schema
from comity.entropy import Stream
from comity.study.study import Study

Records = Mapping[str, LocalRecords]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighbours: what the runs on them open under the same messages, and how many records differ. `rows` are the
    places of the tried records that they differ in."""

    first: Run
    second: Run
    group: int
    rows: tuple[int, ...] = ()

    @property
    def shifts(self) -> list[Shift]:
        return shifts_between(self.first.consortium, self.first.opened, self.second.opened)


def strength(shifts: Sequence[Shift]) -> float:
    """What a pair could show: μ where noise is Gaussian, ε where it is pure."""
    gaussian = all(shift.gaussian for shift in shifts)
    return design_mu(shifts) if gaussian else design_epsilon(shifts)


def furthest(runs: Sequence[Run], *, replaced: bool) -> tuple[int, int]:
    """The places of the two runs that lie furthest apart. The first is the base, which the others are neighbours of;
    where records are `replaced`, any two of the others are."""
    places = range(1, len(runs))
    pairs = itertools.combinations(places, 2) if replaced else ((0, place) for place in places)

    def apart(pair: tuple[int, int]) -> float:
        one, other = pair
        return strength(shifts_between(runs[0].consortium, runs[one].opened, runs[other].opened))

    return max(pairs, key=apart)


def corner_rows(schema: Schema, count: int, *purpose: str) -> pd.DataFrame:
    """Records at the corners of a schema: each value an end of its range or a category. All of them where they are at
    most `count`; otherwise the lowest and the highest of everything, and as many others by public chance."""
    choices = {name: _ends(column) for name, column in _columns(schema).items()}
    if math.prod(map(len, choices.values())) <= count:
        return pd.DataFrame(list(itertools.product(*choices.values())), columns=list(choices))
    stream = Stream.public("audit corners", *purpose)
    columns = {}
    for name, ends in choices.items():
        places = np.array(stream.integers(len(ends), (count,)))
        places[:2] = 0, len(ends) - 1
        columns[name] = [ends[place] for place in places]
    return pd.DataFrame(columns)


def generated_rows(schema: Schema, count: int, *purpose: str) -> pd.DataFrame:
    """Records of a schema that nobody has, as one-sided as records can be: numbers at either end of their range, and a
    target that follows the first column. What a coordinator makes of them, and sends to the parties, is extreme too."""
    stream = Stream.public("audit records", *purpose)
    columns = {}
    for place, (name, column) in enumerate(_columns(schema).items()):
        ends = _ends(column)
        follows = column is schema.target or place == 0
        places = np.arange(count) % len(ends) if follows else stream.integers(len(ends), (count,))
        columns[name] = [ends[one] for one in places]
    return pd.DataFrame(columns)


def with_identifiers(schema: Schema, frame: pd.DataFrame, start: int = 0) -> pd.DataFrame:
    """The records under names of people, where the schema has an identifier."""
    if schema.identifier is None:
        return frame
    return frame.assign(**{schema.identifier: [f"person{start + place:06d}" for place in range(len(frame))]})


def _columns(schema: Schema) -> dict[str, Any]:
    target = {} if schema.target is None else {schema.target.name: schema.target}
    return {column.name: column for column in schema.columns} | target


def _ends(column: Any) -> list[Any]:
    match column:
        case Numeric() | Bounded():
            return [column.low, column.high]
        case Date():
            return [column.low.isoformat(), column.high.isoformat()]
        case Categorical() | Ordinal() | Classes():
            return list(column.values)
    raise TypeError(type(column).__name__)


def declared_sizes(study: Study) -> dict[str, int]:
    """The records of each party, where the study declares them."""
    sizes = getattr(study.method, "sizes", None)
    if isinstance(sizes, Mapping):
        return dict(sizes)
    return dict.fromkeys(study.agreement.consortium.parties, sizes) if isinstance(sizes, int) else {}

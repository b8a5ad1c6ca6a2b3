"""What no record can be: values of several columns that never come together, as public knowledge has it.

A rule describes the world, not the data: it is agreed like a bound, and no record is looked at to find it. Records that
contradict a rule are counted as they are. Only their owner is told how many there are (`check.explain`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from comity.data.schemas.columns import (
    OTHER_NAME,
    Bounded,
    Categorical,
    Classes,
    Column,
    Date,
    Numeric,
    Ordinal,
    Target,
)
from comity.data.schemas.reading import category_text
from comity.errors import SchemaError, did_you_mean

MISSING_NAME = "(missing)"
"""The name of a missing value, where missing values are a cell."""
MAX_RULES = 64
"""The most rules of a schema: a limit of size."""

Span = tuple[float, float] | tuple[date, date]
Entry = str | Span


@dataclass(frozen=True)
class Impossible:
    """No record has one of these values in each of these columns: `conditions` are pairs of a column and its values.

    A value is a category, or a range of numbers or days with both ends. All conditions of a rule hold together.
    """

    conditions: tuple[tuple[str, tuple[Entry, ...]], ...]

    @classmethod
    def of(cls, conditions: Mapping[str, Sequence[Any]]) -> Impossible:
        """The rule of a table: `Impossible.of({"age": [0, 14], "job": ["judge", "pilot"]})`."""
        return cls(tuple((name, _as_tuple(values)) for name, values in conditions.items()))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.conditions)

    def table(self) -> dict[str, list[Any]]:
        """The rule as a table of a schema file. One range is two values; several are a list of them."""
        return {name: _as_list(values) for name, values in self.conditions}


def _as_tuple(values: Any) -> Any:
    """Lists as tuples, to be compared and hashed; `check_rule` refuses other values."""
    return tuple(map(_as_tuple, values)) if isinstance(values, list | tuple) else values


def _as_list(values: tuple[Entry, ...]) -> list[Any]:
    if len(values) == 1 and isinstance(values[0], tuple):
        return list(values[0])
    return [list(one) if isinstance(one, tuple) else one for one in values]


# Whether a rule fits the schema.


def check_rule(rule: Impossible, columns: Mapping[str, Column | Target], place: int) -> Impossible:
    """The rule with its values as their columns have them. Raises `SchemaError` where they do not fit."""
    at = f"impossible[{place}]"
    if len(rule.conditions) < 2:
        _refuse(
            at,
            "at least two columns, whose values never come together",
            list(rule.names),
            "a value that never comes alone is left out of its column instead",
        )
    checked = []
    for name, values in rule.conditions:
        key = f"{at}.{name}"
        column = columns.get(name)
        if column is None:
            raise SchemaError(f"{key}: no such column{did_you_mean(name, columns)}", key=key)
        leader = getattr(column, "follows", None)
        if leader is not None:
            _refuse(key, "a column that follows no other", f"follows = {leader!r}", f"write the rule for {leader!r}")
        if not isinstance(values, tuple) or not values:
            _refuse(key, _describe(column), values, "list what can't be together with the rule's other values")
        ends = isinstance(column, Numeric | Bounded | Date) and len(values) == 2
        one_range = ends and not any(isinstance(one, str | tuple) for one in values)
        entries = (values,) if one_range else values
        checked.append((name, tuple(_check_entry(column, entry, key) for entry in entries)))
        if len(_whole(column, checked[-1][1])) == len(_whole(column, None)):
            _refuse(key, "a part of the column's values", "all of them", "leave the column out of the rule")
    return Impossible(tuple(checked))


def _check_entry(column: Column | Target, entry: Any, key: str) -> Entry:
    if entry == MISSING_NAME and not isinstance(column, Classes | Bounded) and column.missing == "cell":
        return MISSING_NAME
    if isinstance(column, Categorical | Classes | Ordinal):
        text = None if isinstance(entry, tuple) else category_text(entry)
        known = (*column.values, *((OTHER_NAME,) if isinstance(column, Categorical) and column.other else ()))
        if text is None or text not in known:
            raise SchemaError(f"{key}: no such value {entry!r}{did_you_mean(str(entry), known)}", key=key)
        return text
    if not isinstance(entry, tuple) or len(entry) != 2 or not all(_is_end(column, end) for end in entry):
        _refuse(key, _describe(column), entry, "give the lowest and the highest value, both included")
    low: Any
    high: Any
    low, high = entry if isinstance(column, Date) else (float(entry[0]) + 0.0, float(entry[1]) + 0.0)
    if not column.low <= low <= high <= column.high:
        _refuse(key, _describe(column), [_show(low), _show(high)], "stay within the column's bounds, low first")
    begins = (_least(column), *_span_cuts(column, (low, high)))
    if not any(covers(column, ((low, high),), begin) for begin in begins):
        _refuse(key, "a range with at least one value below the highest", [_show(low), _show(high)], "widen it")
    return (low, high)


def _is_end(column: Numeric | Bounded | Date, end: Any) -> bool:
    if isinstance(column, Date):
        return type(end) is date
    return isinstance(end, int | float) and not isinstance(end, bool) and math.isfinite(end)


def _describe(column: Column | Target) -> str:
    if isinstance(column, Categorical | Classes | Ordinal):
        return "a list of the column's values"
    low, high = _show(column.low), _show(column.high)
    return f"a range [low, high] within [{low}, {high}], or a list of ranges"


def _show(end: Any) -> str:
    return f"{end:g}" if isinstance(end, float) else str(end)


def _whole(column: Column | Target, entries: tuple[Entry, ...] | None) -> set[Any]:
    """Parts of the column that the entries cover; all of them for `None`. Numbers have one part for each cell that the
    entries alone make."""
    begins = [_least(column), *cuts_of(column, entries or ())]
    parts: set[Any] = set()
    if isinstance(column, Categorical | Classes | Ordinal):
        named = (*column.values, *((OTHER_NAME,) if isinstance(column, Categorical) and column.other else ()))
        parts = {value for value in named if entries is None or value in entries}
    elif entries is None or all(covers(column, entries, begin) for begin in begins):
        parts = {"numbers"}
    if not isinstance(column, Classes | Bounded) and column.missing == "cell":
        parts |= {MISSING_NAME} if entries is None or MISSING_NAME in entries else set()
    return parts


def _refuse(key: str, expected: str, found: object, remedy: str) -> NoReturn:
    raise SchemaError(f"{key}: expected {expected}, found {found!r}; {remedy}.", key=key)


# Where a rule divides a column. Cells begin there, so each cell lies inside the rule's values or outside.


def cuts_of(column: Column | Target, entries: tuple[Entry, ...]) -> tuple[float, ...]:
    """Inner edges of cells at which the column's values enter or leave these entries: numbers, steps of a date, or
    positions of ordered values. Categories need none."""
    if isinstance(column, Categorical | Classes):
        return ()
    if isinstance(column, Ordinal):
        inside = [value in entries for value in column.values]
        return tuple(float(place) for place, (a, b) in enumerate(pairwise(inside), start=1) if a != b)
    cuts: set[float] = set()
    for entry in entries:
        if isinstance(entry, tuple):
            cuts.update(_span_cuts(column, entry))
    return tuple(sorted(cuts))


def _span_cuts(column: Numeric | Bounded | Date, span: Span) -> list[float]:
    first, last = _ends(column, span)
    whole = isinstance(column, Date) or (isinstance(column, Numeric) and column.integer)
    # Cells include their lower edge and not their upper one.
    after = last + 1 if whole else math.nextafter(last, math.inf)
    least, most = _least(column), float(column.steps) if isinstance(column, Date) else column.high
    return [cut for cut in (first, after) if least < cut and (cut < most or (whole and cut == most))]


def _least(column: Column | Target) -> float:
    return column.low if isinstance(column, Numeric | Bounded) else 0.0


def _ends(column: Numeric | Bounded | Date, span: Any) -> tuple[float, float]:
    """Both ends in the column's units: whole ones for integers, steps for dates. A step that a range of days enters
    belongs to the range."""
    if isinstance(column, Date):
        first, last = column.since_low(np.array(span, "datetime64[D]"))
        return float(first), float(last)
    if isinstance(column, Numeric) and column.integer:
        return float(math.ceil(span[0])), float(math.floor(span[1]))
    return span[0], span[1]


def covers(column: Column | Target, entries: tuple[Entry, ...], begin: float) -> bool:
    """Whether the cell of a number, a date or an ordered value that begins here lies in the entries."""
    if isinstance(column, Ordinal):
        return column.values[int(begin)] in entries
    assert isinstance(column, Numeric | Bounded | Date)
    spans = (_ends(column, entry) for entry in entries if isinstance(entry, tuple))
    return any(first <= begin <= last for first, last in spans)

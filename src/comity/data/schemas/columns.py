"""The kinds of columns that a schema can have: what is public about one value of a record.

All parties agree on every bound, value and edge before data are read. A bound that was looked up in private records is
a release that nobody accounted for, and the sensitivities derived from it prove nothing. `draft` marks a column whose
bounds, values or fill were: a simulation takes it, a site does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import pairwise
from numbers import Real
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from comity.data.schemas.reading import (
    STEPS,
    Days,
    Step,
    category_text,
    parse_day,
    steps_since,
    write_format_keys,
)
from comity.errors import SchemaError

Other = Literal["error", "other", "cell"]
Fill = Literal["error", "fill", "cell"]
Spacing = Literal["linear", "log"]

OTHER_NAME = "(other)"
"""The name of the category of all values that the schema does not declare."""


@dataclass(frozen=True)
class Numeric:
    """A number in [low, high]. Values outside are clipped. `edges` divide the range into public, left-closed bins, or
    `bins` is the number of bins of equal length. With `scale` = "log" lengths are those of sign(x)·log(1 + |x|).

    With `missing` = "cell" a missing value counts as a further value. `follows` names a column that determines this
    one.
    """

    name: str
    low: float
    high: float
    missing: Fill = "error"
    fill: float | None = None
    edges: tuple[float, ...] | None = None
    integer: bool = False
    bins: int | None = None
    scale: Spacing = "linear"
    follows: str | None = None
    draft: bool = False

    def __post_init__(self) -> None:
        at = f"columns.{_check_name(self.name, 'columns')}"
        _check_flag(self.draft, f"{at}.draft")
        _check_choice(self.scale, ("linear", "log"), f"{at}.scale", "say how the range is measured")
        _check_bins(self.bins, self.edges, at)
        _set(self, "low", _check_number(self.low, f"{at}.low"))
        _set(self, "high", _check_number(self.high, f"{at}.high"))
        _check_range(self.low, self.high, at)
        _check_flag(self.integer, f"{at}.integer")
        _check_choice(self.missing, ("error", "fill", "cell"), f"{at}.missing")
        if self.integer and not (self.low.is_integer() and self.high.is_integer()):
            _refuse(
                f"{at}.low and .high",
                "whole numbers where integer = true",
                (self.low, self.high),
                "round them outwards",
            )
        _check_fill(self, at, _check_number, f"a number in [{self.low:g}, {self.high:g}]")
        if self.fill is not None and self.integer and not self.fill.is_integer():
            _refuse(f"{at}.fill", "a whole number where integer = true", self.fill, "round it")
        if self.edges is not None:
            _set(self, "edges", self._check_edges(self.edges, f"{at}.edges"))

    @property
    def cuts(self) -> tuple[float, ...] | None:
        """The inner edges of bins: `edges`, or those of `bins` of equal length on the scale."""
        return self.edges if self.bins is None else self.equal_cuts(self.bins)

    def equal_cuts(self, bins: int) -> tuple[float, ...]:
        """The inner edges of `bins` bins of equal length on the scale. Of an integer column they are whole numbers, and
        no bin is without one."""
        first, last = self.on_scale(np.array([self.low, self.high]))
        cuts = self.off_scale(first + (last - first) * np.arange(1, bins) / bins)
        if self.integer:
            cuts = np.unique(np.ceil(cuts))
        return tuple(float(cut) for cut in cuts if self.low < cut <= self.high and (cut < self.high or self.integer))

    def on_scale(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.scale == "linear":
            return values
        return np.asarray(np.sign(values) * np.log1p(np.abs(values)), np.float64)

    def off_scale(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.scale == "linear":
            return values
        return np.asarray(np.sign(values) * np.expm1(np.abs(values)), np.float64)

    def _check_edges(self, edges: Any, at: str) -> tuple[float, ...]:
        if isinstance(edges, str) or not isinstance(edges, Iterable):
            _refuse(at, "a list of numbers", edges, "write edges = [10, 20]")
        numbers = tuple(_check_number(edge, at) for edge in edges)
        # Of whole numbers the last may be a bin by itself.
        inside = all(self.low < edge < self.high + self.integer for edge in numbers)
        rising = all(a < b for a, b in pairwise(numbers))
        if not numbers or not inside or not rising:
            _refuse(
                at,
                f"rising cut points strictly inside ({self.low:g}, {self.high:g})",
                list(numbers),
                "low and high are implied",
            )
        return numbers


@dataclass(frozen=True)
class Categorical:
    """One of `values`, in no order. With `other`, all other values are one further category; with `missing` = "cell" so
    are missing values. `follows` names a column that determines this one."""

    name: str
    values: tuple[str, ...]
    other: bool = False
    missing: Other = "error"
    follows: str | None = None
    draft: bool = False

    def __post_init__(self) -> None:
        at = f"columns.{_check_name(self.name, 'columns')}"
        _check_flag(self.draft, f"{at}.draft")
        _set(self, "values", _check_values(self.values, f"{at}.values", least=1))
        _check_flag(self.other, f"{at}.other")
        _check_choice(self.missing, ("error", "other", "cell"), f"{at}.missing")
        if self.missing == "other" and not self.other:
            _refuse(f"{at}.missing", "other = true beside missing = 'other'", "other = false", "set other = true")

    @property
    def width(self) -> int:
        """The number of categories, with those of other and of missing values."""
        return len(self.values) + self.other + (self.missing == "cell")


@dataclass(frozen=True)
class Ordinal:
    """One of `values`, from lowest to highest, at equal distances. `edges` name the values at which bins begin, after
    the first; `bins` is the number of bins of about equally many values. `missing` and `follows` are those of
    `Numeric`."""

    name: str
    values: tuple[str, ...]
    missing: Fill = "error"
    fill: str | None = None
    edges: tuple[str, ...] | None = None
    bins: int | None = None
    follows: str | None = None
    draft: bool = False

    def __post_init__(self) -> None:
        at = f"columns.{_check_name(self.name, 'columns')}"
        _check_flag(self.draft, f"{at}.draft")
        _set(self, "values", _check_values(self.values, f"{at}.values", least=2))
        _check_choice(self.missing, ("error", "fill", "cell"), f"{at}.missing")
        _check_bins(self.bins, self.edges, at)
        if self.edges is not None:
            edges = _check_values(self.edges, f"{at}.edges", least=1)
            places = [self.values.index(edge) if edge in self.values else 0 for edge in edges]
            if 0 in places or places != sorted(places):
                _refuse(f"{at}.edges", "rising values after the first", list(edges), "name where each bin begins")
            _set(self, "edges", edges)
        if (self.missing == "fill") != (self.fill is not None):
            _refuse(f"{at}.fill", "a value exactly where missing = 'fill'", self.fill, "set both keys or neither")
        if self.fill is not None:
            _set(self, "fill", category_text(self.fill))
            if self.fill not in self.values:
                _refuse(f"{at}.fill", f"one of {list(self.values)}", self.fill, "choose a declared value")

    @property
    def cuts(self) -> tuple[int, ...]:
        """Positions at which bins begin, after the first. Without edges or bins every value is a bin."""
        count = len(self.values)
        if self.edges is not None:
            return tuple(self.values.index(edge) for edge in self.edges)
        bins = count if self.bins is None else min(self.bins, count)
        return tuple(-(-count * place // bins) for place in range(1, bins))


@dataclass(frozen=True)
class Date:
    """A day from `low` to `high`, as the number of whole steps since `low`. Days outside are clipped.

    `format` is how text spells a day, as in strptime; the default is ISO 8601. A format without a day or month needs a
    `step` that is as coarse.
    """

    name: str
    low: date
    high: date
    step: Step = "day"
    format: str | None = None
    missing: Fill = "error"
    fill: date | None = None
    bins: int | None = None
    follows: str | None = None
    draft: bool = False

    def __post_init__(self) -> None:
        at = f"columns.{_check_name(self.name, 'columns')}"
        _check_flag(self.draft, f"{at}.draft")
        _set(self, "low", _check_day(self.low, f"{at}.low"))
        _set(self, "high", _check_day(self.high, f"{at}.high"))
        _check_choice(self.missing, ("error", "fill", "cell"), f"{at}.missing")
        _check_bins(self.bins, None, at)
        if self.step not in STEPS:
            _refuse(f"{at}.step", " or ".join(map(repr, STEPS)), self.step, "say in which steps days are counted")
        if self.steps < 1:
            _refuse(
                f"{at}.low and .high",
                f"high at least one {self.step} after low",
                (str(self.low), str(self.high)),
                "give the range that any record can have",
            )
        _check_fill(self, at, _check_day, f"a date from {self.low} to {self.high}")
        if self.format is not None and not self._spells(self.format):
            _refuse(
                f"{at}.format",
                f"a format that spells every {self.step} from low to high, {write_format_keys(('%d.%m.%Y',))} for one",
                self.format,
                "see the codes of strptime",
            )

    @property
    def steps(self) -> int:
        """The number of steps from low to high: the largest value of a record."""
        return int(self.since_low(np.array([self.high], "datetime64[D]"))[0])

    def since_low(self, days: Days) -> NDArray[np.float64]:
        """Steps since `low`, also of days outside; NaN for none."""
        return steps_since(self.low, days, self.step)

    def days_after(self, steps: NDArray[np.float64], missing: NDArray[np.bool_]) -> Any:
        """The first day of each step, as a date or as the text that `format` spells."""
        import pandas as pd

        first, whole = np.datetime64(self.low, "D"), steps.astype(np.int64)
        if self.step in ("day", "week"):
            days = first + whole * (7 if self.step == "week" else 1)
        else:
            unit = {"month": "M", "year": "Y"}[self.step]
            days = (first.astype(f"datetime64[{unit}]") + whole).astype("datetime64[D]")
        days = np.clip(days, first, np.datetime64(self.high, "D"))
        series = pd.Series(days.astype("datetime64[s]"))
        if self.format is not None:
            series = series.dt.strftime(self.format).astype(object)
        return series.where(~missing, None if self.format is not None else pd.NaT).to_numpy()

    def _spells(self, format: Any) -> bool:
        """Whether parsing the texts of both bounds, and of a day whose parts differ, returns the same steps."""
        if not isinstance(format, str):
            return False
        middle = self.low + (self.high - self.low) // 3
        for day in (self.low, self.high, middle):
            try:
                back = parse_day(day.strftime(format), format)
            except ValueError:
                return False
            if back is None or len(set(self.since_low(np.array([back, day], "datetime64[D]")))) > 1:
                return False
        return True


@dataclass(frozen=True)
class Classes:
    """A target that is one of `values`; the labels of encoded records are their positions."""

    name: str
    values: tuple[str, ...]
    draft: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name, "target")
        _check_flag(self.draft, "target.draft")
        _set(self, "values", _check_values(self.values, "target.classes", least=2))


@dataclass(frozen=True)
class Bounded:
    """A target that is a number in [low, high]; values outside are clipped."""

    name: str
    low: float
    high: float
    draft: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name, "target")
        _check_flag(self.draft, "target.draft")
        _set(self, "low", _check_number(self.low, "target.low"))
        _set(self, "high", _check_number(self.high, "target.high"))
        _check_range(self.low, self.high, "target")


Column = Numeric | Categorical | Ordinal | Date
Target = Classes | Bounded


def _set(column: object, key: str, value: object) -> None:
    object.__setattr__(column, key, value)


def _refuse(key: str, expected: str, found: object, remedy: str) -> NoReturn:
    raise SchemaError(f"{key}: expected {expected}, found {found!r}; {remedy}.", key=key)


def _check_name(name: Any, table: str) -> str:
    if not isinstance(name, str) or not name.strip():
        _refuse(f"{table}.name", "a name that is not blank", name, "write the column's name as in the data")
    return str(name)


def _check_fill(column: Numeric | Date, at: str, check: Callable[[Any, str], Any], expected: str) -> None:
    """Refuse a `fill` that is missing, not asked for, or outside the column's range."""
    if (column.missing == "fill") != (column.fill is not None):
        _refuse(f"{at}.fill", "a value exactly where missing = 'fill'", column.fill, "set both keys or neither")
    if column.fill is not None:
        fill = check(column.fill, f"{at}.fill")
        _set(column, "fill", fill)
        if not column.low <= fill <= column.high:
            found = fill if isinstance(fill, float) else str(fill)
            _refuse(f"{at}.fill", expected, found, "choose a public value in it")


def _check_number(value: Any, key: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        _refuse(
            key,
            "a finite number",
            value,
            "write a bound that is public knowledge, not one taken from the records",
        )
    # Adding zero turns -0.0 into 0.0: equal schemas have equal digests.
    return number + 0.0


def _check_day(value: Any, key: str) -> date:
    day = parse_day(value, None) if isinstance(value, str) else value
    if isinstance(day, datetime) or not isinstance(day, date):
        _refuse(key, "a date such as 2015-01-31", value, "write one that is public knowledge, without a time of day")
    return day


def _check_range(low: float, high: float, at: str) -> None:
    if not low < high or not math.isfinite(high - low):
        _refuse(f"{at}.low and .high", "low < high", (low, high), "give the range that any record can have")


def _check_flag(value: Any, key: str) -> None:
    if not isinstance(value, bool):
        _refuse(key, "true or false", value, "write it without quotes")


def _check_choice(
    value: Any, known: Sequence[str], key: str, remedy: str = "say what happens to a record without this value"
) -> None:
    if value not in known:
        _refuse(key, " or ".join(map(repr, known)), value, remedy)


def _check_bins(bins: Any, edges: Any, at: str) -> None:
    if bins is None:
        return
    if isinstance(bins, bool) or not isinstance(bins, int) or not 2 <= bins <= 10_000:
        _refuse(f"{at}.bins", "a whole number from 2 to 10,000", bins, "write bins = 8")
    if edges is not None:
        _refuse(f"{at}.bins", "bins or edges, one of the two", "both", "remove one")


def _check_values(values: Any, key: str, *, least: int) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        _refuse(key, "a list of values", values, 'write it as ["a", "b"]')
    texts = tuple(category_text(value) for value in values)
    if len(texts) < least or len(set(texts)) < len(texts) or not all(text.strip() for text in texts):
        _refuse(key, f"at least {least} different values, none blank", list(texts), "list every public value once")
    return texts

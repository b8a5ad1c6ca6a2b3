"""Values of one column made to conform to its declaration: clipped, mapped or filled as declared, else refused.

A `Tally` counts what was changed, for the owner only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from comity.data.schemas.columns import Bounded, Categorical, Classes, Column, Date, Numeric, Ordinal
from comity.data.schemas.reading import (
    MISSING,
    UNKNOWN,
    has_decimal_commas,
    kind_of_value,
    likely_formats,
    read_codes,
    read_days,
    read_numbers,
    whole_codes,
    write_format_keys,
)
from comity.data.tables.table import Batch, column_of
from comity.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from comity.data.tables.table import Table

# Errors of readers reach logs: they tell the kind of a value, its column and its row, and not the value.
_SEE = "The value is shown by: comity schema check"

Change = Literal["clipped", "unknown", "missing"]


@dataclass(frozen=True)
class Tally:
    """How many values the schema changed in each column. The counts are exact functions of private records: they stay
    on the owner's machine, no codec takes a `Tally`, and no release is made from one.

    `first` is the number of records of the source before these.
    """

    records: int
    clipped: Counter[str]
    unknown: Counter[str]
    missing: Counter[str]
    first: int = 0

    @classmethod
    def start(cls, records: int = 0, first: int = 0) -> Tally:
        return cls(records, Counter(), Counter(), Counter(), first)

    def add(self, change: Change, column: str, count: int) -> None:
        if count:
            getattr(self, change)[column] += count

    def __add__(self, after: Tally) -> Tally:
        return Tally(
            self.records + after.records,
            self.clipped + after.clipped,
            self.unknown + after.unknown,
            self.missing + after.missing,
            self.first,
        )

    def sentences(self) -> list[str]:
        """One line per column and change, for the owner's terminal."""
        changes = (
            ("clipped to the schema's bounds", self.clipped),
            ("counted as other", self.unknown),
            ("missing and filled by policy", self.missing),
        )
        return [
            f"{column}: {count} of {self.records} {what}"
            for what, counts in changes
            for column, count in counts.items()
        ]

    def __repr__(self) -> str:
        return f"Tally(local, never sent: {'; '.join(self.sentences()) or 'nothing changed'})"


def plain_numbers(column: Numeric | Bounded, table: Table) -> NDArray[np.float64] | None:
    """The result of `conform_numbers` for a batch's column that needs no change, without a series in between."""
    values = table.plain(column.name) if isinstance(table, Batch) else None
    if values is None:
        return None
    return _all_inside(values, column.low, column.high, integer=isinstance(column, Numeric) and column.integer)


def plain_categories(column: Categorical | Ordinal | Classes, table: Table) -> NDArray[np.int64] | None:
    """The result of `conform_categories` for a batch's column of whole numbers that are all declared."""
    values = table.plain(column.name) if isinstance(table, Batch) else None
    return None if values is None else whole_codes(values, column.values)


def conform_numbers(column: Numeric | Bounded, table: Table, where: str, tally: Tally) -> NDArray[np.float64]:
    """Numbers within the bounds: those outside are clipped and counted; missing ones are filled, left as NaN or
    refused."""
    plain = plain_numbers(column, table)
    if plain is not None:
        return plain
    series = column_of(table, column.name, where)
    integer = isinstance(column, Numeric) and column.integer
    if isinstance(series.dtype, np.dtype):
        inside = _all_inside(series.to_numpy(), column.low, column.high, integer=integer)
        if inside is not None:
            return inside
    read = read_numbers(series, integer=integer)
    if read.wrong.any():
        kind = "whole numbers" if integer else "numbers"
        raise DataError(
            f"{where}: column {column.name!r} expects {kind}, found {kind_of_value(series, read.wrong)} "
            f"in {name_first(read.wrong, tally)}; {remedy_for_numbers(series, read.wrong)}. {_SEE}",
            key=column.name,
        )
    fill = column.fill if isinstance(column, Numeric) else None
    return _clip(column, read.values, read.missing, fill, column.low, column.high, where, tally)


def _all_inside(column: NDArray[Any], low: float, high: float, *, integer: bool) -> NDArray[np.float64] | None:
    """The values of a column of numbers if none is missing, wrong or outside, as in most blocks of most files: there is
    nothing to mark, fill, clip or count."""
    if column.dtype.kind not in "fiu" or not len(column):
        return None
    values = np.asarray(column, np.float64)
    # Written so that NaN fails.
    if not (low <= values.min() and values.max() <= high):
        return None
    if integer and column.dtype.kind == "f" and (values != np.floor(values)).any():
        return None
    return values


def conform_dates(column: Date, table: Table, where: str, tally: Tally) -> NDArray[np.float64]:
    """Steps since the column's first day, from 0 to `column.steps`: days outside are clipped and counted, missing ones
    are filled, left as NaN or refused."""
    series = column_of(table, column.name, where)
    read = read_days(series, column.format)
    if read.wrong.any():
        raise DataError(
            f"{where}: column {column.name!r} expects {expected_dates(column)}, found another form in "
            f"{name_first(read.wrong, tally)}; {remedy_for_dates(column, series, read.wrong)}. {_SEE}",
            key=column.name,
        )
    fill = None if column.fill is None else float(column.since_low(np.array([column.fill], "datetime64[D]"))[0])
    return _clip(column, column.since_low(read.days), read.missing, fill, 0.0, float(column.steps), where, tally)


def _clip(
    column: Numeric | Bounded | Date,
    values: NDArray[np.float64],
    missing: NDArray[np.bool_],
    fill: float | None,
    low: float,
    high: float,
    where: str,
    tally: Tally,
) -> NDArray[np.float64]:
    if not isinstance(column, Bounded) and column.missing == "cell":
        pass
    elif fill is None:
        _refuse_missing(column, missing, where, "set missing = 'fill' with a public fill value", tally)
    elif missing.any():
        values = np.where(missing, fill, values)
    tally.add("missing", column.name, int(missing.sum()))
    tally.add("clipped", column.name, int(((values < low) | (values > high)).sum()))
    return np.clip(values, low, high)


def remedy_for_numbers(series: pd.Series, wrong: NDArray[np.bool_]) -> str:
    """Advice about values that are no numbers."""
    if has_decimal_commas(series, wrong):
        return 'these have a decimal comma: read the file with decimal = ","'
    if not read_days(series[wrong]).wrong.any():
        return 'these are dates: declare the column with kind = "date", low and high'
    return "correct the value, or declare the column otherwise in the schema"


def expected_dates(column: Date) -> str:
    return "dates as YYYY-MM-DD" if column.format is None else f"dates as {column.format!r} writes them"


def remedy_for_dates(column: Date, series: pd.Series, wrong: NDArray[np.bool_]) -> str:
    """Advice about values that are no days of the declared form."""
    likely = likely_formats(series, wrong)
    if likely:
        return f"set {write_format_keys(likely)} for the column in the schema"
    return 'correct the value, or set format for the column in the schema, as in format = "%d.%m.%Y"'


def conform_categories(
    column: Categorical | Ordinal | Classes, table: Table, where: str, tally: Tally
) -> NDArray[np.int64]:
    """Positions among the declared values. Unknown and missing ones follow the column's policy, or are refused."""
    plain = plain_categories(column, table)
    if plain is not None:
        return plain
    series = column_of(table, column.name, where)
    read = read_codes(series, column.values)
    if not len(read.codes) or read.codes.min() >= 0:
        return read.codes
    missing, unknown = read.codes == MISSING, read.codes == UNKNOWN
    other = isinstance(column, Categorical) and column.other
    if unknown.any() and not other:
        remedy = "set other = true or add the value" if isinstance(column, Categorical) else "add the value"
        raise DataError(
            f"{where}: column {column.name!r} expects one of {', '.join(map(repr, column.values))}, found "
            f"{kind_of_value(series, unknown)} that is none of them in {name_first(unknown, tally)}; correct the "
            f"value, or {remedy} in the schema. {_SEE}",
            key=column.name,
        )
    if isinstance(column, Ordinal) and column.fill is not None:
        code = column.values.index(column.fill)
    elif isinstance(column, Categorical) and column.missing == "other":
        code = len(column.values)
    elif isinstance(column, Categorical) and column.missing == "cell":
        code = column.width - 1
    elif isinstance(column, Ordinal) and column.missing == "cell":
        code = MISSING
    else:
        code = MISSING
        policy = "set missing = 'other' and other = true" if isinstance(column, Categorical) else "set missing = 'fill'"
        _refuse_missing(column, missing, where, policy, tally)
    tally.add("missing", column.name, int(missing.sum()))
    tally.add("unknown", column.name, int(unknown.sum()))
    return np.where(missing, code, np.where(unknown, len(column.values), read.codes))


def _refuse_missing(
    column: Column | Classes | Bounded, missing: NDArray[np.bool_], where: str, policy: str, tally: Tally
) -> None:
    if missing.any():
        target = isinstance(column, Classes | Bounded)
        remedy = "remove records without a target" if target else f"complete the record, or {policy} in the schema"
        raise DataError(
            f"{where}: column {column.name!r} has no value in {name_first(missing, tally)}; {remedy}.",
            key=column.name,
        )


def name_first(marked: NDArray[np.bool_], tally: Tally) -> str:
    """The number of the first marked record of the source, and whether there are others. It does not say how many."""
    number, others = tally.first + int(np.argmax(marked)) + 1, int(marked.sum()) > 1
    return f"record {number}" + (" and in others" if others else "") + " (the first is 1)"

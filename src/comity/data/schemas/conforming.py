"""Values of one column made to conform to its declaration: clipped, mapped or filled as declared, else refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data.nearest import nearest
from comity.data.schemas.columns import Bounded, Categorical, Classes, Column, Date, Numeric, Ordinal
from comity.data.schemas.dates import likely_formats, named, read_days
from comity.data.schemas.reading import (
    MISSING,
    UNKNOWN,
    decimal_commas,
    kind_shown,
    read_codes,
    read_numbers,
    whole_codes,
)
from comity.data.tables.arrow_frames import Batch
from comity.data.tally import Tally
from comity.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from comity.data.tables.arrow_frames import Table

# Errors of readers reach logs: they tell the kind of a value, its column and its row, and not the value.
_SEE = "The value is shown by: comity schema check"


def column_of(frame: Table, name: str, where: str) -> pd.Series:
    """The one column of that name, or an error naming the nearest. A table without columns and without records has
    every column: a party without records need not know their names."""
    import pandas as pd

    if frame.shape == (0, 0):
        return pd.Series([], dtype=object, name=name)
    present = [str(column) for column in frame.columns]
    found = present.count(name)
    if found > 1:
        raise DataError(
            f"{where}: expected one column {name!r}, found {found}; rename or remove the surplus.", key=name
        )
    if found == 0:
        raise missing_column(where, name, present)
    place = present.index(name)
    return frame.series(place) if isinstance(frame, Batch) else frame.iloc[:, place]


def missing_column(where: str, name: str, present: Sequence[str]) -> DataError:
    """Names what is like it and lists nothing: the header of a file without one is its first record."""
    close = nearest(name, present)
    if close is not None:
        hint = f"did you mean {close!r}? Rename it, or correct the schema"
    else:
        hint = f"none of its {len(present)} columns is like it; check that the file begins with a header line"
    return DataError(f"{where}: column {name!r} is missing; {hint}.", code="missing-column", key=name)


def plain_numbers(column: Numeric | Bounded, frame: Table) -> NDArray[np.float64] | None:
    """What `numbers` gives for a batch's column that needs no change, without a series in between."""
    values = frame.plain(column.name) if isinstance(frame, Batch) else None
    if values is None:
        return None
    return _all_inside(values, column.low, column.high, integer=isinstance(column, Numeric) and column.integer)


def plain_categories(column: Categorical | Ordinal | Classes, frame: Table) -> NDArray[np.int64] | None:
    """What `categories` gives for a batch's column of whole numbers each of which is declared."""
    values = frame.plain(column.name) if isinstance(frame, Batch) else None
    return None if values is None else whole_codes(values, column.values)


def numbers(column: Numeric | Bounded, series: pd.Series, where: str, tally: Tally) -> NDArray[np.float64]:
    """Numbers within the bounds: outside ones clipped and tallied, missing ones filled, left as NaN or refused."""
    integer = isinstance(column, Numeric) and column.integer
    if isinstance(series.dtype, np.dtype):
        inside = _all_inside(series.to_numpy(), column.low, column.high, integer=integer)
        if inside is not None:
            return inside
    read = read_numbers(series, integer=integer)
    if read.wrong.any():
        kind = "whole numbers" if integer else "numbers"
        raise DataError(
            f"{where}: column {column.name!r} expects {kind}, found {kind_shown(series, read.wrong)} "
            f"in {first_record(read.wrong, tally)}; {instead_of_numbers(series, read.wrong)}. {_SEE}",
            key=column.name,
        )
    fill = column.fill if isinstance(column, Numeric) else None
    return _within(column, read.values, read.missing, fill, column.low, column.high, where, tally)


def _all_inside(found: NDArray[Any], low: float, high: float, *, integer: bool) -> NDArray[np.float64] | None:
    """The values of a plain column of numbers none of which is missing, wrong or outside, as in most blocks of most
    files: then there is nothing to mark, fill, clip or count."""
    if found.dtype.kind not in "fiu" or not len(found):
        return None
    values = np.asarray(found, np.float64)
    # Written so that NaN fails.
    if not (low <= values.min() and values.max() <= high):
        return None
    if integer and found.dtype.kind == "f" and (values != np.floor(values)).any():
        return None
    return values


def dates(column: Date, series: pd.Series, where: str, tally: Tally) -> NDArray[np.float64]:
    """Steps since the column's first day, from 0 to `column.steps`: days outside clipped and tallied, missing ones
    filled or refused."""
    read = read_days(series, column.format)
    if read.wrong.any():
        raise DataError(
            f"{where}: column {column.name!r} expects {expected_dates(column)}, found another form in "
            f"{first_record(read.wrong, tally)}; {instead_of_dates(column, series, read.wrong)}. {_SEE}",
            key=column.name,
        )
    fill = None if column.fill is None else float(column.since_low(np.array([column.fill], "datetime64[D]"))[0])
    return _within(column, column.since_low(read.days), read.missing, fill, 0.0, float(column.steps), where, tally)


def _within(
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


def instead_of_numbers(series: pd.Series, wrong: NDArray[np.bool_]) -> str:
    """What to do about values that are no numbers."""
    if decimal_commas(series, wrong):
        return 'these have a decimal comma: read the file with decimal = ","'
    if not read_days(series[wrong]).wrong.any():
        return 'these are dates: declare the column with kind = "date", low and high'
    return "correct the value, or declare the column otherwise in the schema"


def expected_dates(column: Date) -> str:
    return "dates as YYYY-MM-DD" if column.format is None else f"dates as {column.format!r} writes them"


def instead_of_dates(column: Date, series: pd.Series, wrong: NDArray[np.bool_]) -> str:
    """What to do about values that are no days of the declared form."""
    likely = likely_formats(series, wrong)
    if likely:
        return f"set {named(likely)} for the column in the schema"
    return 'correct the value, or set format for the column in the schema, as in format = "%d.%m.%Y"'


def categories(
    column: Categorical | Ordinal | Classes, series: pd.Series, where: str, tally: Tally
) -> NDArray[np.int64]:
    """Positions among the declared values: unknown and missing ones by the column's policy, else refused."""
    read = read_codes(series, column.values)
    if not len(read.codes) or read.codes.min() >= 0:
        return read.codes
    missing, unknown = read.codes == MISSING, read.codes == UNKNOWN
    other = isinstance(column, Categorical) and column.other
    if unknown.any() and not other:
        remedy = "set other = true or add the value" if isinstance(column, Categorical) else "add the value"
        raise DataError(
            f"{where}: column {column.name!r} expects one of {', '.join(map(repr, column.values))}, found "
            f"{kind_shown(series, unknown)} that is none of them in {first_record(unknown, tally)}; correct the value, "
            f"or {remedy} in the schema. {_SEE}",
            key=column.name,
        )
    if isinstance(column, Ordinal) and column.fill is not None:
        instead = column.values.index(column.fill)
    elif isinstance(column, Categorical) and column.missing == "other":
        instead = len(column.values)
    elif isinstance(column, Categorical) and column.missing == "cell":
        instead = column.width - 1
    elif isinstance(column, Ordinal) and column.missing == "cell":
        instead = MISSING
    else:
        instead = MISSING
        policy = "set missing = 'other' and other = true" if isinstance(column, Categorical) else "set missing = 'fill'"
        _refuse_missing(column, missing, where, policy, tally)
    tally.add("missing", column.name, int(missing.sum()))
    tally.add("unknown", column.name, int(unknown.sum()))
    return np.where(missing, instead, np.where(unknown, len(column.values), read.codes))


def _refuse_missing(
    column: Column | Classes | Bounded, missing: NDArray[np.bool_], where: str, policy: str, tally: Tally
) -> None:
    if missing.any():
        target = isinstance(column, Classes | Bounded)
        remedy = "remove records without a target" if target else f"complete the record, or {policy} in the schema"
        raise DataError(
            f"{where}: column {column.name!r} has no value in {first_record(missing, tally)}; {remedy}.",
            key=column.name,
        )


def first_record(marked: NDArray[np.bool_], tally: Tally) -> str:
    """Which record of the source is the first that is marked, and whether there are others: how many stays at home."""
    number, others = tally.first + int(np.argmax(marked)) + 1, int(marked.sum()) > 1
    return f"record {number}" + (" and in others" if others else "") + " (the first is 1)"

"""Values of one column made to conform to its declaration: clipped, mapped or filled as declared, else "
"refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data.columns import Bounded, Categorical, Classes, Column, Numeric, Ordinal
from comity.data.nearest import nearest
from comity.data.reading import MISSING, UNKNOWN, read_codes, read_numbers, shown
from comity.data.tally import Tally
from comity.errors import DataError


def column_of(frame: pd.DataFrame, name: str, where: str) -> pd.Series:
    """The one column of that name, or an error naming the nearest."""
    present = [str(column) for column in frame.columns]
    found = present.count(name)
    if found > 1:
        raise DataError(
            f"{where}: expected one column {name!r}, found {found}; rename or remove the surplus.", key=name
        )
    if found == 0:
        close = nearest(name, present)
        there = f"the nearest present is {close!r}" if close else f"present: {', '.join(present[:12]) or 'none'}"
        raise DataError(
            f"{where}: column {name!r} is missing; {there}. Rename it, or correct the schema.",
            code="missing-column",
            key=name,
        )
    return frame.iloc[:, present.index(name)]


def numbers(column: Numeric | Bounded, series: pd.Series, where: str, tally: Tally) -> NDArray[np.float64]:
    """Numbers within the bounds: outside ones clipped and tallied, missing ones filled or refused."""
    integer = isinstance(column, Numeric) and column.integer
    read = read_numbers(series, integer=integer)
    if read.wrong.any():
        kind = "whole numbers" if integer else "numbers"
        raise DataError(
            f"{where}: column {column.name!r} expects {kind}, found {shown(series, read.wrong)} "
            f"in {first_record(read.wrong)}; correct the value, or declare the column otherwise in the "
            "schema.",
            key=column.name,
        )
    fill = column.fill if isinstance(column, Numeric) else None
    if fill is None:
        _refuse_missing(column, read.missing, where, "set missing = 'fill' with a public fill value")
    values = np.where(read.missing, fill, read.values) if fill is not None and read.missing.any() else read.values
    tally.add("missing", column.name, int(read.missing.sum()))
    tally.add("clipped", column.name, int(((values < column.low) | (values > column.high)).sum()))
    return np.clip(values, column.low, column.high)


def categories(
    column: Categorical | Ordinal | Classes, series: pd.Series, where: str, tally: Tally
) -> NDArray[np.int64]:
    """Positions among the declared values: unknown and missing ones by the column's policy, else refused."""
    read = read_codes(series, column.values)
    missing, unknown = read.codes == MISSING, read.codes == UNKNOWN
    other = isinstance(column, Categorical) and column.other
    if unknown.any() and not other:
        remedy = "set other = true or add the value" if isinstance(column, Categorical) else "add the value"
        raise DataError(
            f"{where}: column {column.name!r} expects one of {', '.join(map(repr, column.values))}, found "
            f"{shown(series, unknown)} in {first_record(unknown)}; correct the value, or {remedy} in the "
            "schema.",
            key=column.name,
        )
    if isinstance(column, Ordinal) and column.fill is not None:
        instead = column.values.index(column.fill)
    elif isinstance(column, Categorical) and column.missing == "other":
        instead = len(column.values)
    else:
        instead = MISSING
        policy = "set missing = 'other' and other = true" if isinstance(column, Categorical) else "set missing = 'fill'"
        _refuse_missing(column, missing, where, policy)
    tally.add("missing", column.name, int(missing.sum()))
    tally.add("unknown", column.name, int(unknown.sum()))
    return np.where(missing, instead, np.where(unknown, len(column.values), read.codes))


def _refuse_missing(column: Column | Classes | Bounded, missing: NDArray[np.bool_], where: str, policy: str) -> None:
    if missing.any():
        target = isinstance(column, Classes | Bounded)
        remedy = "remove records without a target" if target else f"complete the record, or {policy} in the schema"
        raise DataError(
            f"{where}: column {column.name!r} has no value in {first_record(missing)}; {remedy}.",
            key=column.name,
        )


def first_record(marked: NDArray[np.bool_]) -> str:
    total = int(marked.sum())
    return (
        f"record {int(np.argmax(marked)) + 1}" + (f" and {total - 1} more" if total > 1 else "") + " (the first is 1)"
    )

"""A first schema from a public sample, for people to correct."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data.schemas.columns import (
    Bounded,
    Categorical,
    Classes,
    Column,
    Date,
    Numeric,
    Ordinal,
    Target,
    category_text,
)
from comity.data.schemas.conforming import column_of
from comity.data.schemas.dates import Days, likely_formats, read_days
from comity.data.schemas.reading import read_codes, read_numbers
from comity.data.schemas.schema import Schema
from comity.errors import DataError

MOST_CATEGORIES = 50
MOST_CLASSES = 20

_WARNING = """\
# DRAFT. CHECK EVERY LINE BEFORE USE.
#
# WARNING: bounds, values and fill values taken from PRIVATE data VOID THE GUARANTEE.
# Sensitivities rest on them, so a schema that depends on a record gives that record away.
# Draft from a public sample only, or replace every number and value below by what is known
# without the data: the range of the instrument, the code book, the law.
"""


def draft(frame: pd.DataFrame, *, target: str, identifier: str | None = None, where: str = "the sample") -> str:
    """TOML text of a schema for a table like this *public* sample, under a warning; bounds are rounded
    outwards.

    Numbers become numeric columns, dates date columns over whole years, text and two-valued columns categorical ones
    with `other`, ordered pandas categories ordinal ones. What can't be drafted (free text, no values) is left out and
    named in a comment.
    """
    if len(frame) == 0:
        raise DataError(f"{where}: expected a sample with records, found none; give a public sample.")
    label = _target(column_of(frame, target, where), target, where)
    if identifier is not None:
        column_of(frame, identifier, where)
    columns: list[Column] = []
    left_out: list[str] = []
    for name in map(str, frame.columns):
        if name not in (target, identifier):
            drafted = _column(column_of(frame, name, where), name)
            if isinstance(drafted, str):
                left_out.append(f"# left out: {name!r} {drafted}")
            else:
                columns.append(drafted)
    if not columns:
        raise DataError(f"{where}: no column beside the target can be drafted; write the schema by hand.")
    return "\n".join(
        [
            _WARNING,
            *left_out,
            *([""] if left_out else []),
            Schema(tuple(columns), label, identifier).to_toml(),
        ]
    )


def _column(series: pd.Series, name: str) -> Column | str:
    """A column, or why there is none."""
    if isinstance(series.dtype, pd.CategoricalDtype) and series.dtype.ordered and len(series.cat.categories) > 1:
        levels = tuple(map(category_text, series.cat.categories))
        gaps = bool(series.isna().any())
        return Ordinal(name, levels, "fill" if gaps else "error", levels[len(levels) // 2] if gaps else None)
    if series.isna().all():
        return "has no values"
    days = read_days(series)
    if not days.wrong.any() and not days.missing.all():
        return _date(name, days.days, None)
    read = read_numbers(series)
    values = read.values[np.isfinite(read.values)]
    if not read.wrong.any() and len(np.unique(values)) > 2:
        return _numeric(name, values, gaps=bool(read.missing.any()))
    formats = likely_formats(series, days.wrong) if read.wrong.any() and not (~days.wrong & ~days.missing).any() else ()
    if len(formats) > 1:
        return f"has dates that {' and '.join(formats)} read differently; declare kind = 'date' with its format"
    if formats:
        return _date(name, read_days(series, formats[0]).days, formats[0])
    texts = _texts(series)
    if not texts:
        return "has no values"
    if len(texts) > MOST_CATEGORIES:
        return f"has {len(texts)} different values, more than a categorical column is drafted with"
    gaps = bool((read_codes(series, texts).codes < 0).any())
    return Categorical(name, texts, other=True, missing="other" if gaps else "error")


def _date(name: str, days: Days, format: str | None) -> Date:
    """Whole years around the sample."""
    known = np.sort(days[~np.isnat(days)])
    first, last, middle = (day.astype(date) for day in (known[0], known[-1], known[len(known) // 2]))
    gaps = len(known) < len(days)
    low, high = date(first.year, 1, 1), date(last.year, 12, 31)
    return Date(name, low, high, format=format, missing="fill" if gaps else "error", fill=middle if gaps else None)


def _numeric(name: str, values: NDArray[np.float64], *, gaps: bool) -> Numeric:
    low, high = outwards(float(values.min()), float(values.max()))
    integer = bool((values == np.floor(values)).all()) and low.is_integer() and high.is_integer()
    middle = float(np.median(values))
    fill = float(round(middle)) if integer else float(f"{middle:.2g}")
    return Numeric(
        name,
        low,
        high,
        "fill" if gaps else "error",
        min(max(fill, low), high) if gaps else None,
        integer=integer,
    )


def _target(series: pd.Series, name: str, where: str) -> Target:
    read = read_numbers(series)
    values = read.values[np.isfinite(read.values)]
    whole = not read.wrong.any() and len(values) > 0
    texts = _texts(series)
    if len(texts) < 2:
        raise DataError(
            f"{where}: target {name!r} has {len(texts)} different values, expected two or more; give a larger sample.",
            key=name,
        )
    if not whole or (len(texts) <= MOST_CLASSES and bool((values == np.floor(values)).all())):
        if len(texts) > MOST_CATEGORIES:
            raise DataError(
                f"{where}: target {name!r} is text with {len(texts)} different values; choose a target "
                "with fewer classes.",
                key=name,
            )
        return Classes(name, texts)
    return Bounded(name, *outwards(float(values.min()), float(values.max())))


def _texts(series: pd.Series) -> tuple[str, ...]:
    def texts() -> Iterator[str]:
        for value in series.dropna().unique():
            text = category_text(value)
            if text.strip():
                yield text

    found = set(texts())
    return tuple(sorted(found, key=lambda text: (_as_number(text), text)))


def _as_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return np.inf
    return number if number == number else np.inf


def outwards(low: float, high: float) -> tuple[float, float]:
    """The narrowest round numbers around [low, high], on a step of a fifth to a tenth of its width."""
    bottom, top = Decimal(repr(low)), Decimal(repr(high))
    size = (top - bottom) or max(abs(top), Decimal(1))
    leading = size.as_tuple().digits[0]
    step = Decimal(1).scaleb(size.adjusted()) / (5 if leading < 2 else 2 if leading < 5 else 1)
    bottom = (bottom / step).to_integral_value(ROUND_FLOOR) * step
    top = (top / step).to_integral_value(ROUND_CEILING) * step
    return float(bottom), float(top if top > bottom else bottom + step)

"""A first schema from a public sample, for people to correct."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data.schemas.columns import Bounded, Categorical, Classes, Column, Date, Numeric, Ordinal, Target
from comity.data.schemas.reading import (
    Days,
    category_text,
    likely_formats,
    read_codes,
    read_days,
    read_numbers,
)
from comity.data.schemas.schema import Schema
from comity.data.tables.table import column_of
from comity.errors import DataError

MAX_CATEGORIES = 50
MAX_CLASSES = 20

_WARNING = """\
# DRAFT. CHECK EVERY LINE BEFORE USE.
#
# WARNING: bounds, values and fill values taken from PRIVATE data VOID THE GUARANTEE.
# Sensitivities rest on them, so a schema that depends on a record gives that record away.
# Draft from a public sample only, or replace every number and value below by what is known
# without the data: the range of the instrument, the code book, the law.
"""


def draft(frame: pd.DataFrame, *, target: str, identifier: str | None = None, where: str = "the sample") -> str:
    """TOML text of a schema for a table like this *public* sample, under a warning. Bounds are rounded outwards.

    Numbers become numeric columns, dates date columns over whole years, text and two-valued columns categorical ones
    with `other`, ordered pandas categories ordinal ones. A comment names the columns that can't be drafted (free text,
    no values).
    """
    schema, left_out = draft_schema(frame, target=target, identifier=identifier, where=where)
    comments = [f"# left out: {name!r} {reason}" for name, reason in left_out.items()]
    return "\n".join([_WARNING, *comments, *([""] if comments else []), schema.to_toml()])


def draft_schema(
    frame: pd.DataFrame,
    *,
    target: str | None,
    identifier: str | None = None,
    codes: Collection[str] = (),
    where: str = "the sample",
) -> tuple[Schema, dict[str, str]]:
    """A schema for a table like this sample, and why columns that can't be drafted were left out. Numbers of the
    columns in `codes` are categories."""
    if len(frame) == 0:
        raise DataError(f"{where}: expected a sample with records, found none; give a public sample.")
    label = None if target is None else _draft_target(column_of(frame, target, where), target, where)
    if identifier is not None:
        column_of(frame, identifier, where)
    columns: list[Column] = []
    left_out: dict[str, str] = {}
    for name in map(str, frame.columns):
        if name not in (target, identifier):
            drafted = _draft_column(column_of(frame, name, where), name, codes=name in codes)
            if isinstance(drafted, str):
                left_out[name] = drafted
            else:
                columns.append(drafted)
    if not columns:
        raise DataError(f"{where}: no column beside the target can be drafted; write the schema by hand.")
    return Schema(tuple(columns), label, identifier), left_out


def _draft_column(series: pd.Series, name: str, *, codes: bool) -> Column | str:
    """A column, or the reason why there is none."""
    if isinstance(series.dtype, pd.CategoricalDtype) and series.dtype.ordered and len(series.cat.categories) > 1:
        levels = tuple(map(category_text, series.cat.categories))
        gaps = bool(series.isna().any())
        return Ordinal(name, levels, "fill" if gaps else "error", levels[len(levels) // 2] if gaps else None)
    if series.isna().all():
        return "has no values"
    days = read_days(series)
    if not days.wrong.any() and not days.missing.all():
        return _draft_date(name, days.days, None)
    read = read_numbers(series)
    values = read.values[np.isfinite(read.values)]
    if not codes and not read.wrong.any() and len(np.unique(values)) > 2:
        return _draft_numeric(name, values, gaps=bool(read.missing.any()))
    formats = likely_formats(series, days.wrong) if read.wrong.any() and not (~days.wrong & ~days.missing).any() else ()
    if len(formats) > 1:
        return f"has dates that {' and '.join(formats)} read differently; declare kind = 'date' with its format"
    if formats:
        return _draft_date(name, read_days(series, formats[0]).days, formats[0])
    texts = _distinct_texts(series)
    if not texts:
        return "has no values"
    if len(texts) > MAX_CATEGORIES:
        return f"has {len(texts)} different values, more than a categorical column is drafted with"
    gaps = bool((read_codes(series, texts).codes < 0).any())
    return Categorical(name, texts, other=True, missing="other" if gaps else "error")


def _draft_date(name: str, days: Days, format: str | None) -> Date:
    """A column over the whole years of the sample."""
    known = np.sort(days[~np.isnat(days)])
    first, last, middle = (day.astype(date) for day in (known[0], known[-1], known[len(known) // 2]))
    gaps = len(known) < len(days)
    low, high = date(first.year, 1, 1), date(last.year, 12, 31)
    return Date(name, low, high, format=format, missing="fill" if gaps else "error", fill=middle if gaps else None)


def _draft_numeric(name: str, values: NDArray[np.float64], *, gaps: bool) -> Numeric:
    low, high = round_outwards(float(values.min()), float(values.max()))
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


def _draft_target(series: pd.Series, name: str, where: str) -> Target:
    read = read_numbers(series)
    values = read.values[np.isfinite(read.values)]
    whole = not read.wrong.any() and len(values) > 0
    texts = _distinct_texts(series)
    if len(texts) < 2:
        raise DataError(
            f"{where}: target {name!r} has {len(texts)} different values, expected two or more; give a larger sample.",
            key=name,
        )
    if not whole or (len(texts) <= MAX_CLASSES and bool((values == np.floor(values)).all())):
        if len(texts) > MAX_CATEGORIES:
            raise DataError(
                f"{where}: target {name!r} is text with {len(texts)} different values; choose a target "
                "with fewer classes.",
                key=name,
            )
        return Classes(name, texts)
    return Bounded(name, *round_outwards(float(values.min()), float(values.max())))


def _distinct_texts(series: pd.Series) -> tuple[str, ...]:
    texts = {category_text(value) for value in series.dropna().unique()}
    return tuple(sorted(filter(str.strip, texts), key=lambda text: (_as_number(text), text)))


def _as_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return np.inf
    return number if number == number else np.inf


def round_outwards(low: float, high: float) -> tuple[float, float]:
    """The narrowest round numbers around [low, high], on a step of a fifth to a tenth of its width."""
    bottom, top = Decimal(repr(low)), Decimal(repr(high))
    size = (top - bottom) or max(abs(top), Decimal(1))
    leading = size.as_tuple().digits[0]
    step = Decimal(1).scaleb(size.adjusted()) / (5 if leading < 2 else 2 if leading < 5 else 1)
    bottom = (bottom / step).to_integral_value(ROUND_FLOOR) * step
    top = (top / step).to_integral_value(ROUND_CEILING) * step
    return float(bottom), float(top if top > bottom else bottom + step)

"""One column of a table, read as numbers, categories, days or identifiers. Values that do not fit are marked, and none
is refused: an encoding refuses the first value that breaks the schema, a check lists them all.

A day is the one that a value shows, in the time zone that it carries; nothing is converted, and a time of day is
dropped. Databases are asked for UTC (`comity.data.tables.sql`): the day of a time with a zone does not depend on the
machine that reads it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

MISSING = -1
UNKNOWN = -2

Step = Literal["day", "week", "month", "year"]
STEPS: tuple[str, ...] = get_args(Step)

Days = NDArray[np.datetime64]

_MAX_QUOTED = 24
_MAX_TABLE = 256
_COMMA = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*")
_TRUE = {"true": ("true", "True", "1"), "false": ("false", "False", "0")}
_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
# Common formats of days, tried on values that are not ISO 8601.
FORMATS = (
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%Y/%m/%d",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%Y.%m.%d",
    "%Y%m%d",
    "%Y-%m",
    "%d.%m.%y",
)


@dataclass(frozen=True, eq=False)
class Numbers:
    """Values as floats, NaN where missing or wrong; `wrong` marks values that are no number of the declared kind."""

    values: NDArray[np.float64]
    missing: NDArray[np.bool_]
    wrong: NDArray[np.bool_]


def read_numbers(series: pd.Series, *, integer: bool = False) -> Numbers:
    """Numbers, booleans and text that spells a number. Dates and other text are wrong; blank text is missing."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(series.dtype) and not pd.api.types.is_complex_dtype(series.dtype):
        values = np.array(series.to_numpy(dtype=np.float64, na_value=np.nan))
        missing = np.isnan(values)
        wrong = np.zeros(len(values), np.bool_)
    else:
        missing = find_blank(series)
        text = isinstance(series.dtype, pd.CategoricalDtype) or pd.api.types.is_string_dtype(series.dtype)
        if text or series.dtype == object:
            plain = series.astype(object).where(~missing, None)
            values = np.array(pd.to_numeric(plain, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))
        else:
            values = np.full(len(series), np.nan)
        wrong = np.isnan(values) & ~missing
    if integer:
        fractional = np.isfinite(values) & (values != np.floor(values))
        wrong |= fractional
        values[fractional] = np.nan
    return Numbers(values, missing, wrong)


@dataclass(frozen=True, eq=False)
class Codes:
    """Positions among the declared values, `MISSING` or `UNKNOWN`; and the distinct unknown texts, as met."""

    codes: NDArray[np.int64]
    unknown: tuple[str, ...]


def category_text(value: object) -> str:
    """The text of a category, whatever type its source gave it: 1, 1.0 and "1" are one category."""
    if isinstance(value, str):
        return value
    # numpy's bool is no Python bool, and has the same text apart from its case.
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return "true" if value else "false"
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real) and float(value).is_integer():
        return str(int(float(value)))
    return str(value)


def read_codes(series: pd.Series, values: tuple[str, ...]) -> Codes:
    """Look every distinct value up once, by its category text."""
    import pandas as pd

    positions = {value: position for position, value in enumerate(values)}
    places, distinct = pd.factorize(series, use_na_sentinel=True)
    table = np.full(len(distinct) + 1, MISSING, np.int64)
    unknown: list[str] = []
    for index, value in enumerate(distinct):
        table[index] = _look_up(value, positions)
        if table[index] == UNKNOWN:
            unknown.append(category_text(value))
    # factorize marks a missing value by -1, which picks the table's last entry.
    return Codes(table[places], tuple(unknown))


def whole_codes(values: NDArray[Any], declared: tuple[str, ...]) -> NDArray[np.int64] | None:
    """The codes of whole numbers that are all declared and lie close together: a table of their range is faster than a
    search for the distinct ones. None for all others."""
    if values.dtype.kind not in "iu" or not np.can_cast(values.dtype, np.int64) or not len(values):
        return None
    low, high = int(values.min()), int(values.max())
    if high - low >= _MAX_TABLE:
        return None
    positions = {value: position for position, value in enumerate(declared)}
    table = np.array([_look_up(number, positions) for number in range(low, high + 1)], np.int64)
    if (table == np.arange(low, high + 1)).all():
        return np.asarray(values, np.int64)
    codes = table[values.astype(np.int64) - low]
    return codes if codes.min() >= 0 else None


def _look_up(value: object, positions: dict[str, int]) -> int:
    text = category_text(value)
    if not text.strip():
        return MISSING
    for candidate in (text, text.strip(), *_TRUE.get(text.lower(), ()), *_whole_text(text)):
        if candidate in positions:
            return positions[candidate]
    return UNKNOWN


def _whole_text(text: str) -> tuple[str, ...]:
    """Many programs write whole numbers of a column with gaps as "1.0"."""
    try:
        number = float(text)
    except ValueError:
        return ()
    return (str(int(number)),) if number.is_integer() else ()


def read_ids(series: pd.Series) -> tuple[NDArray[np.object_], NDArray[np.bool_]]:
    """Identifiers as texts, and which of them are missing or blank."""
    missing = find_blank(series)
    ids = np.empty(len(series), object)
    ids[:] = [category_text(value) for value in series.astype(object)]
    ids[missing] = ""
    return ids, missing


def canonical_id(one: str) -> str:
    """The form of an identifier by which records of several files are matched."""
    return unicodedata.normalize("NFC", one).strip()


def find_blank(series: pd.Series) -> NDArray[np.bool_]:
    """Which values are missing, or texts of blanks."""
    import pandas as pd

    missing = series.isna().to_numpy(dtype=np.bool_).copy()
    if (
        series.dtype == object
        or pd.api.types.is_string_dtype(series.dtype)
        or isinstance(series.dtype, pd.CategoricalDtype)
    ):
        codes, distinct = pd.factorize(series, use_na_sentinel=True)
        blank = [isinstance(value, str) and not value.strip() for value in distinct]
        missing |= np.array([*blank, True], np.bool_)[codes]
    return missing


@dataclass(frozen=True, eq=False)
class ReadDays:
    """Days, NaT where missing or wrong; `wrong` marks values that are no day of the expected form."""

    days: Days
    missing: NDArray[np.bool_]
    wrong: NDArray[np.bool_]


def read_days(series: pd.Series, format: str | None = None) -> ReadDays:
    """Dates and times of any source, and text in ISO 8601 or in the given `format`."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(series.dtype):
        zone = getattr(series.dtype, "tz", None)
        local = series if zone is None else series.dt.tz_localize(None)
        days: Days = np.array(local.to_numpy().astype("datetime64[D]"))
        return ReadDays(days, np.isnat(days), np.zeros(len(days), np.bool_))
    codes, distinct = pd.factorize(series.astype(object), use_na_sentinel=True)
    table: Days = np.full(len(distinct) + 1, "NaT", "datetime64[D]")
    blank = np.ones(len(distinct) + 1, np.bool_)
    for place, value in enumerate(distinct):
        day = _read_day(value, format)
        blank[place] = isinstance(value, str) and not value.strip()
        if day is not None:
            table[place] = np.datetime64(day, "D")
    # factorize marks a missing value by -1, which picks the last entry.
    days, missing = table[codes], blank[codes]
    return ReadDays(days, missing, np.isnat(days) & ~missing)


def _read_day(value: object, format: str | None) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    text = _day_text(value)
    # Without a format a number is no date: 20240131 could be anything.
    return None if text is None or (format is None and not isinstance(value, str)) else parse_day(text, format)


def _day_text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    return str(int(value)) if float(value).is_integer() else None


def parse_day(text: str, format: str | None) -> date | None:
    """The day that a text spells, or None."""
    try:
        if format is not None:
            return datetime.strptime(text.strip(), format).date()
        iso = _ISO.fullmatch(text.strip())
        return None if iso is None else date.fromisoformat(iso.group(1))
    except ValueError:
        return None


def steps_since(first: date, days: Days, step: str) -> NDArray[np.float64]:
    """Whole steps from `first` to each day, NaN for none. Months and years are those of the calendar: from the last day
    of January to the first of February is one month. Weeks begin on the weekday of `first`."""
    unit = {"day": "D", "week": "D", "month": "M", "year": "Y"}[step]
    apart = days.astype(f"datetime64[{unit}]") - np.array(first, f"datetime64[{unit}]")
    steps = np.where(np.isnat(apart), np.nan, apart.astype(np.int64).astype(np.float64))
    return np.floor(steps / 7) if step == "week" else steps


def likely_formats(series: pd.Series, wrong: NDArray[np.bool_]) -> tuple[str, ...]:
    """The common formats in which every marked value is a day."""
    texts = [_day_text(value) for value in series[wrong].unique()]
    if not texts or None in texts:
        return ()
    return tuple(format for format in FORMATS if all(parse_day(str(text), format) for text in texts))


def write_format_keys(formats: Sequence[str]) -> str:
    return " or ".join(f'format = "{format}"' for format in formats)


def has_decimal_commas(series: pd.Series, wrong: NDArray[np.bool_]) -> bool:
    """Whether every value that is no number would be one with a point for its comma."""
    texts = series[wrong].unique()
    return len(texts) > 0 and all(isinstance(one, str) and _COMMA.fullmatch(one) for one in texts)


def kind_of_value(series: pd.Series, marked: NDArray[np.bool_]) -> str:
    """The kind of the first marked value. Errors of readers reach logs: they never quote a value."""
    value = series.iloc[int(np.argmax(marked))]
    for kind, word in ((str, "a text"), (bool | np.bool_, "a truth value"), (Real, "a number"), (date, "a date")):
        if isinstance(value, kind):
            return word
    return f"a value of type {type(value).__name__}"


def quote_value(series: pd.Series, marked: NDArray[np.bool_]) -> str:
    """The first marked value, or its form if it could be more than one value. Only `comity schema check` shows it, at
    its owner's terminal."""
    value = series.iloc[int(np.argmax(marked))]
    if isinstance(value, str):
        return quote_text(value)
    text = str(value)
    is_one = _is_one_value(text) and isinstance(value, Real | date | np.bool_)
    return text if is_one else f"a value of type {type(value).__name__}"


def quote_text(text: str) -> str:
    return repr(text) if _is_one_value(text) else f"a text of {len(text)} characters"


def _is_one_value(text: str) -> bool:
    """Whether a text is surely one value. A long text, or one with a separator, may be a whole record that was read as
    one field, and a record is never quoted."""
    return len(text) <= _MAX_QUOTED and not set(text) & set(',;|\t\r\n"')

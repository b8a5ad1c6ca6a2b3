"""Days of the calendar: read from whatever a source gives, and counted in steps since a public first day.

One rule for time zones: a value is on the day that it shows, in the zone that it carries; nothing is converted. A time
of day is dropped. Databases are asked for UTC (`comity.data.tables.sql`), so that the day of a time with a zone does
not depend on the machine that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Step = Literal["day", "week", "month", "year"]
STEPS: tuple[str, ...] = get_args(Step)

Days = NDArray[np.datetime64]

_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
# Ways in which people write days, tried on values that are not ISO 8601.
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
class ReadDays:
    """Days, NaT where missing or wrong; `wrong` marks what is no day of the expected form."""

    days: Days
    missing: NDArray[np.bool_]
    wrong: NDArray[np.bool_]


def read_days(series: pd.Series, format: str | None = None) -> ReadDays:
    """Dates and times of any source, and text: ISO 8601, or what `format` says."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(series.dtype):
        zone = getattr(series.dtype, "tz", None)
        shown = series if zone is None else series.dt.tz_localize(None)
        days: Days = np.array(shown.to_numpy().astype("datetime64[D]"))
        missing = np.isnat(days)
        return ReadDays(days, missing, np.zeros(len(days), np.bool_))
    codes, distinct = pd.factorize(series.astype(object), use_na_sentinel=True)
    table: Days = np.full(len(distinct) + 1, "NaT", "datetime64[D]")
    blank = np.ones(len(distinct) + 1, np.bool_)
    for place, value in enumerate(distinct):
        day = _day(value, format)
        blank[place] = isinstance(value, str) and not value.strip()
        if day is not None:
            table[place] = np.datetime64(day, "D")
    # factorize marks a missing value by -1, which picks the last entry.
    days, missing = table[codes], blank[codes]
    return ReadDays(days, missing, np.isnat(days) & ~missing)


def steps_since(first: date, days: Days, step: str) -> NDArray[np.float64]:
    """Whole steps from `first` to each day, NaN for none. Months and years are those of the calendar: from the last day
    of January to the first of February is one month. Weeks begin on the weekday of `first`."""
    unit = {"day": "D", "week": "D", "month": "M", "year": "Y"}[step]
    apart = days.astype(f"datetime64[{unit}]") - np.array(first, f"datetime64[{unit}]")
    steps = np.where(np.isnat(apart), np.nan, apart.astype(np.int64).astype(np.float64))
    return np.floor(steps / 7) if step == "week" else steps


def parsed(text: str, format: str | None) -> date | None:
    """The day that a text spells, or None."""
    try:
        if format is not None:
            return datetime.strptime(text.strip(), format).date()
        iso = _ISO.fullmatch(text.strip())
        return None if iso is None else date.fromisoformat(iso.group(1))
    except ValueError:
        return None


def likely_formats(series: pd.Series, wrong: NDArray[np.bool_]) -> tuple[str, ...]:
    """The common formats in which every marked value is a day."""
    texts = [_text(value) for value in series[wrong].unique()]
    if not texts or None in texts:
        return ()
    return tuple(format for format in FORMATS if all(parsed(str(text), format) for text in texts))


def named(formats: Sequence[str]) -> str:
    return " or ".join(f'format = "{format}"' for format in formats)


def _day(value: object, format: str | None) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    text = _text(value)
    # Without a format a number is no date: 20240131 could be anything.
    return None if text is None or (format is None and not isinstance(value, str)) else parsed(text, format)


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    return str(int(value)) if float(value).is_integer() else None

"""One column of a table read as numbers or as categories, with every value that does not fit marked and
none refused.

Policy lives elsewhere: an encoding refuses at the first value that breaks the schema, a check lists them
all.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import date
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data.schemas.columns import category_text

if TYPE_CHECKING:
    import pandas as pd

MISSING = -1
UNKNOWN = -2

_LONGEST = 24
_CLOSE = 256
_COMMA = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*")
_TRUE = {"true": ("true", "True", "1"), "false": ("false", "False", "0")}


@dataclass(frozen=True, eq=False)
class Numbers:
    """Values as floats, NaN where missing or wrong; `wrong` marks what is no number of the declared kind."""

    values: NDArray[np.float64]
    missing: NDArray[np.bool_]
    wrong: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Codes:
    """Positions among the declared values, `MISSING` or `UNKNOWN`; and the distinct unknown texts, as met."""

    codes: NDArray[np.int64]
    unknown: tuple[str, ...]


def read_numbers(series: pd.Series, *, integer: bool = False) -> Numbers:
    """Numbers, booleans and text that spells a number are read; dates and other text are wrong; blank text
    is missing.
    """
    import pandas as pd

    if pd.api.types.is_numeric_dtype(series.dtype) and not pd.api.types.is_complex_dtype(series.dtype):
        values = np.array(series.to_numpy(dtype=np.float64, na_value=np.nan))
        missing = np.isnan(values)
        wrong = np.zeros(len(values), np.bool_)
    else:
        missing = _blank(series)
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


def read_codes(series: pd.Series, values: tuple[str, ...]) -> Codes:
    """Look every distinct value up once, by its category text."""
    import pandas as pd

    positions = {value: position for position, value in enumerate(values)}
    found, distinct = pd.factorize(series, use_na_sentinel=True)
    table = np.full(len(distinct) + 1, MISSING, np.int64)
    unknown: list[str] = []
    for index, value in enumerate(distinct):
        table[index] = _position(value, positions)
        if table[index] == UNKNOWN:
            unknown.append(category_text(value))
    # factorize marks a missing value by -1, which picks the table's last entry.
    return Codes(table[found], tuple(unknown))


def whole_codes(found: NDArray[Any], values: tuple[str, ...]) -> NDArray[np.int64] | None:
    """The codes of whole numbers that are all declared and lie close together, by a table rather than by a search for
    the distinct ones; None for all others."""
    if found.dtype.kind not in "iu" or not np.can_cast(found.dtype, np.int64) or not len(found):
        return None
    low, high = int(found.min()), int(found.max())
    if high - low >= _CLOSE:
        return None
    positions = {value: position for position, value in enumerate(values)}
    table = np.array([_position(number, positions) for number in range(low, high + 1)], np.int64)
    if (table == np.arange(low, high + 1)).all():
        return np.asarray(found, np.int64)
    codes = table[found.astype(np.int64) - low]
    return codes if codes.min() >= 0 else None


def read_ids(series: pd.Series) -> tuple[NDArray[np.object_], NDArray[np.bool_]]:
    """Identifiers as texts, and which of them are missing or blank."""
    missing = _blank(series)
    ids = np.empty(len(series), object)
    ids[:] = [category_text(value) for value in series.astype(object)]
    ids[missing] = ""
    return ids, missing


def canonical_id(one: str) -> str:
    """An identifier as records of several files are matched by it."""
    return unicodedata.normalize("NFC", one).strip()


def kind_shown(series: pd.Series, marked: NDArray[np.bool_]) -> str:
    """What kind of value the first marked one is. Errors of readers reach logs, so they never quote the value."""
    value = series.iloc[int(np.argmax(marked))]
    for kind, word in ((str, "a text"), (bool | np.bool_, "a truth value"), (Real, "a number"), (date, "a date")):
        if isinstance(value, kind):
            return word
    return f"a value of type {type(value).__name__}"


def shown(series: pd.Series, marked: NDArray[np.bool_]) -> str:
    """The first marked value as a person would write it, or its form where it could be more than one value. For the
    findings of `comity schema check` alone, which its owner reads at a terminal."""
    value = series.iloc[int(np.argmax(marked))]
    if isinstance(value, str):
        return repr(value) if quotable(value) else f"a text of {len(value)} characters"
    text = str(value)
    return (
        text
        if quotable(text) and isinstance(value, Real | date | np.bool_)
        else f"a value of type {type(value).__name__}"
    )


def quotable(text: str) -> bool:
    """Whether a text is surely one value: a long one, or one with a separator in it, may be a whole record that was
    read as one field, and a record is never quoted."""
    return len(text) <= _LONGEST and not set(text) & set(',;|\t\r\n"')


def decimal_commas(series: pd.Series, wrong: NDArray[np.bool_]) -> bool:
    """Whether every value that is no number would be one if its comma were a point."""
    texts = series[wrong].unique()
    return len(texts) > 0 and all(isinstance(one, str) and _COMMA.fullmatch(one) for one in texts)


def _blank(series: pd.Series) -> NDArray[np.bool_]:
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


def _position(value: object, positions: dict[str, int]) -> int:
    text = category_text(value)
    if not text.strip():
        return MISSING
    for candidate in (text, text.strip(), *_TRUE.get(text.lower(), ()), *_whole(text)):
        if candidate in positions:
            return positions[candidate]
    return UNKNOWN


def _whole(text: str) -> tuple[str, ...]:
    """A column of whole numbers with gaps comes out of many programs as "1.0"."""
    try:
        number = float(text)
    except ValueError:
        return ()
    return (str(int(number)),) if number.is_integer() else ()

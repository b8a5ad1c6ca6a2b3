"""One owner's file, read as it is most likely written: separator, encoding, decimal mark, marks for missing values, and
how its columns spell days and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from comity.data.schemas.reading import category_text, find_blank, likely_formats, read_days, read_numbers
from comity.data.tables.csv_file import SEPARATORS, guess_dialect
from comity.data.tables.sources import kind_by_suffix, open_source
from comity.data.tables.translation import NUMBER_FORMATS, Translation, parse_number
from comity.errors import BadInput, DataError, nearest_name
from comity.study.drafting.proposals import Decisions

if TYPE_CHECKING:
    import pandas as pd

MARKS = frozenset(("?", "??", "n/a", "n.a.", "n. a.", "#n/a", "k.a.", "k. a.", "<na>", "nil"))
"""Texts that stand for a missing value in any column."""
WEAK_MARKS = frozenset(
    (
        *("-", "--", ".", "..", "*", "x", "none", "unknown", "unk", "missing", "not known", "not available", "nd"),
        *("unbekannt", "fehlt", "keine angabe", "nicht bekannt", "inconnu", "manquant"),
    )
)
"""Texts that stand for a missing value in a column of numbers or days, and may be a category in another."""
_LOW_CODES = (-9, -99, -999, -9999)
_HIGH_CODES = (999, 9999, 99999)
_COMMA = re.compile(r"[+-]?[0-9]+,([0-9]+)")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:\.[0-9]{3})*")

MAX_CODES = 12
"""More different whole numbers than these are a measure, and no codes. Not tuned on data."""

ColumnKind = Literal["number", "day", "category", "empty"]


@dataclass(frozen=True, eq=False)
class OwnFile:
    """A party's file: the keys that read it, and the translation of its values, by the schema's names once columns are
    renamed."""

    party: str
    path: Path
    keys: Mapping[str, str] = field(default_factory=dict)
    translation: Translation = field(default_factory=Translation)

    def table(self, path: str) -> dict[str, Any] | str:
        """The source as a study names it, with the file at `path`."""
        if not self.keys and not self.translation.as_table():
            return path
        source = kind_by_suffix(self.path) or "csv"
        return {"source": source, "path": path, **self.keys, **self.translation.as_table()}

    @cached_property
    def frame(self) -> pd.DataFrame:
        return open_source(self.table(str(self.path)), self.party).read()

    def with_translation(self, translation: Translation) -> OwnFile:
        return replace(self, translation=translation)

    @property
    def columns(self) -> list[str]:
        return [str(name) for name in self.frame.columns]


def read_own_file(party: str, path: Path, decisions: Decisions) -> OwnFile:
    """The file with the keys that read it, and with what its values show: marks, and formats of days and numbers."""
    if kind_by_suffix(path) is None:
        raise BadInput(
            f"{path}: expected a .csv or .parquet file; save it as one, or write the study by hand with a table of its "
            "database",
            key="data",
        )
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file; check the path", key="data")
    file = OwnFile(party, path) if kind_by_suffix(path) != "csv" else _guess_dialect(party, path, decisions)
    if not len(file.frame):
        raise DataError(f"{path}: holds no records; a study can't be drafted from it", key="data")
    duplicates = [name for name in file.columns if file.columns.count(name) > 1]
    if duplicates:
        raise DataError(f"{path}: has two columns called {duplicates[0]!r}; rename or remove one", key=duplicates[0])
    file = _with_marks(file, decisions)
    return _with_formats(file, decisions)


def require_column(file: OwnFile, name: str, key: str) -> None:
    """Refuse a column that the file does not have. The error lists no other names: without a header line, they are
    values of the first record."""
    if name in file.columns:
        return
    close = nearest_name(name, file.columns)
    if close is not None:
        hint = f"did you mean {close!r}?"
    else:
        hint = f"none of its {len(file.columns)} columns is like it; check that the file begins with a header line"
    raise BadInput(f"{file.path}: has no column {name!r}; {hint}", key=key)


def kind_of(series: pd.Series) -> ColumnKind:
    """What a column holds, by its values. Two different values are a category, also where they are numbers."""
    if find_blank(series).all():
        return "empty"
    # Numbers are no days without a format, and reading them as days takes long.
    if series.dtype.kind not in "iufb" and not read_days(series).wrong.any():
        return "day"
    numbers = read_numbers(series)
    if not numbers.wrong.any() and len(np.unique(numbers.values[np.isfinite(numbers.values)])) > 2:
        return "number"
    return "category"


def are_compatible(first: pd.Series, second: pd.Series) -> bool:
    """Whether two columns may mean the same: they hold the same kind, or one has no values, or numbers of which the
    other happens to have two, or few whole numbers that may be codes of the other's categories."""
    kinds = (kind_of(first), kind_of(second))
    if kinds[0] == kinds[1] or "empty" in kinds:
        return True
    return set(kinds) == {"number", "category"} and (
        all(not read_numbers(series).wrong.any() for series in (first, second))
        or all(map(holds_codes, (first, second)))
    )


def holds_codes(series: pd.Series) -> bool:
    """Whether values are categories, or few enough whole numbers to be codes of categories."""
    return kind_of(series) == "category" or (
        kind_of(series) == "number" and len(texts := texts_of(series)) <= MAX_CODES and all(map(_is_whole, texts))
    )


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def texts_of(series: pd.Series) -> list[str]:
    """The distinct values of a column as categories, sorted: the order of records stays in the file."""
    return sorted({category_text(value).strip() for value in series[~find_blank(series)].unique()})


# The dialect of a CSV file.


def _guess_dialect(party: str, path: Path, decisions: Decisions) -> OwnFile:
    csv = guess_dialect(path)
    keys = {} if csv.separator is None else {"separator": csv.separator}
    if csv.encoding != "utf-8":
        keys["encoding"] = csv.encoding
    frame = csv.read()
    names = [str(name) for name in frame.columns]
    commas = [name for name in names if names.count(name) == 1 and _writes_commas(frame[name], csv.separator)]
    points = [name for name in names if names.count(name) == 1 and _has_fractions(frame[name])]
    texts = replace(csv, texts=tuple(points)).read() if commas and points else frame
    # In a file with decimal commas, points before three digits set off thousands.
    dotted = [name for name in points if commas and all(map(_THOUSANDS.fullmatch, _unmarked(texts_of(texts[name]))))]
    if commas and len(dotted) == len(points):
        keys["decimal"] = ","
    said = [f"fields are separated by {SEPARATORS[csv.separator]}"] if csv.separator is not None else []
    said += ["numbers have decimal commas"] if "decimal" in keys else []
    said += [f"numbers of {', '.join(dotted)} have points for thousands"] if dotted else []
    said += [f"texts are in {csv.encoding}"] if "encoding" in keys else []
    if said:
        decisions.notes.append(f"{party}: {', '.join(said)}")
    return OwnFile(party, path, keys, Translation(format=dict.fromkeys(dotted, "1.234,5")))


def _writes_commas(series: pd.Series, separator: str | None) -> bool:
    """Whether a column of texts holds numbers with decimal commas. With three digits behind every comma these may be
    thousands; a file separated by semicolons has its commas for decimals."""
    texts = _unmarked(texts_of(series)) if series.dtype == object or str(series.dtype) in ("str", "string") else []
    found = [_COMMA.fullmatch(text) for text in texts]
    if not any(found) or not all(match or text.lstrip("+-").isdecimal() for match, text in zip(found, texts)):
        return False
    return separator == ";" or any(match is not None and len(match[1]) != 3 for match in found)


def _has_fractions(series: pd.Series) -> bool:
    if series.dtype.kind != "f":
        return False
    values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    return bool((np.isfinite(values) & (values != np.floor(values))).any())


# Marks for missing values.


def _is_mark(text: str, *, weak: bool) -> bool:
    folded = text.strip().lower()
    return folded in MARKS or (weak and folded in WEAK_MARKS)


def _unmarked(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if not _is_mark(text, weak=True)]


def _with_marks(file: OwnFile, decisions: Decisions) -> OwnFile:
    marks: dict[str, None] = {}
    recode: dict[str, dict[str, str]] = {}
    for name in file.columns:
        series = file.frame[name]
        texts = texts_of(series)
        marks |= dict.fromkeys(text for text in texts if _is_mark(text, weak=False))
        measured = _measures(_unmarked(texts))
        codes = [text for text in texts if measured and _is_mark(text, weak=True) and not _is_mark(text, weak=False)]
        low, high = _missing_codes(series)
        codes += low
        guess = f"{name}: {_listed(high)} {_stands(high)} for a missing value (a guess by its values)"
        if high and decisions.propose(file.party, name, guess, sure=False):
            recode[name] = dict.fromkeys(high, "")
        if codes and decisions.propose(
            file.party, name, f"{name}: {_listed(codes)} {_stands(codes)} for a missing value"
        ):
            recode.setdefault(name, {}).update(dict.fromkeys(codes, ""))
    if marks and not decisions.propose(file.party, "", f"{_listed(list(marks))} {_stands(marks)} for a missing value"):
        marks = {}
    return file.with_translation(replace(file.translation, missing=tuple(marks), recode=recode))


def _measures(texts: Sequence[str]) -> bool:
    """Whether texts are all numbers, or all days, in one of the known formats."""
    import pandas as pd

    if len(texts) < 3:
        return False
    series = pd.Series(texts, dtype=object)
    return (
        not read_numbers(series).wrong.any()
        or not read_days(series).wrong.any()
        or bool(likely_formats(series, np.ones(len(texts), np.bool_)))
        or bool(_number_format(texts)[0])
    )


def _missing_codes(series: pd.Series) -> tuple[list[str], list[str]]:
    """Numbers that most likely stand for a missing value: such as -9 where nothing else is below zero, and such as 999
    beyond the range of the rest by as much as it is wide. The second may also be a largest value that was cut off."""
    read = read_numbers(series)
    values = np.unique(read.values[np.isfinite(read.values)])
    if read.wrong.any() or len(values) < 3:
        return [], []
    low = [code for code in _LOW_CODES if code in values and (values[~np.isin(values, _LOW_CODES)] >= 0).all()]
    rest = values[~np.isin(values, (*_LOW_CODES, *_HIGH_CODES))]
    high = [
        code for code in _HIGH_CODES if code in values and len(rest) > 3 and code - rest.max() > rest.max() - rest.min()
    ]
    return list(map(str, low)), list(map(str, high))


# How days and numbers are spelled.


def _with_formats(file: OwnFile, decisions: Decisions) -> OwnFile:
    days = {name: found for name in file.columns if (found := _day_formats(file.frame[name]))}
    settled = {found[0] for found in days.values() if len(found) == 1}
    formats = dict(file.translation.format)
    for name, found in days.items():
        chosen = next((format for format in found if format in settled), found[0])
        if len(found) > 1 and chosen not in settled:
            decisions.notes.append(
                f"{file.party}: {name}: {' and '.join(found)} both read its dates; {chosen} is written, change format "
                "if that is wrong"
            )
        if decisions.propose(file.party, name, f"{name}: dates are written as {chosen}"):
            formats[name] = chosen
    for name in file.columns:
        series = file.frame[name]
        if name in days or kind_of(series) != "category":
            continue
        spelled, sure = _number_format(texts_of(series))
        if spelled and decisions.propose(file.party, name, f"{name}: numbers are written like {spelled}", sure=sure):
            formats[name] = spelled
    return file.with_translation(replace(file.translation, format=formats))


def _day_formats(series: pd.Series) -> tuple[str, ...]:
    """Formats other than ISO 8601 that read all of a column's texts as days."""
    if not read_numbers(series).wrong.any():
        return ()
    days = read_days(series)
    if not days.wrong.any() or (~days.wrong & ~days.missing).any():
        return ()
    return likely_formats(series, days.wrong)


def _number_format(texts: Sequence[str]) -> tuple[str, bool]:
    """The format with thousands or decimal marks that reads every text, and whether it is the only one; an empty text
    where there is none. Of several, the one with thousands marks is the likeliest: few fractions have three digits."""
    if len(texts) < 3 or all(text.lstrip("+-").isdecimal() for text in texts):
        return "", False
    fitting: dict[tuple[float | None, ...], list[str]] = {}
    for format, marks in NUMBER_FORMATS.items():
        # The first texts tell of most columns.
        if None in (parse_number(text, *marks) for text in texts):
            continue
        fitting.setdefault(tuple(parse_number(text, *marks) for text in texts), []).append(format)
    if not fitting or "1234.5" in (formats := [one for group in fitting.values() for one in group]):
        return "", False
    marked = (format for format in formats if NUMBER_FORMATS[format][0] and NUMBER_FORMATS[format][0] in "".join(texts))
    return next(marked, formats[0]), len(fitting) == 1


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(map(repr, texts))


def _stands(texts: Iterable[str]) -> str:
    return "stands" if len(list(texts)) == 1 else "stand"

"""How one owner's file says what the schema says: other column names, codes, spellings of dates and numbers, units.

A translation belongs to a source, in the study or the site file, and each owner writes its own. It maps every value by
itself: a record is translated the same in a block as in the whole file, and to the same values that a file cleaned by
hand would have. The steps are, in this order: `rename`, `missing`, `recode`, `format`, `unit`, `complete`. All but
`rename` name columns as the schema does.

A value that its format can't spell is refused: left as it is, the schema might read it by another rule. The errors here
reach logs and quote no value; `comity schema check` shows it to its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from comity.data.schemas.reading import category_text, find_blank, parse_day, read_days, read_numbers
from comity.data.tables.source import PIECE_ROWS, Columns, Source
from comity.data.tables.table import Batch, column_of
from comity.errors import DataError, StudyError, nearest_name

if TYPE_CHECKING:
    import pandas as pd

    from comity.data.tables.table import Table

_Table = TypeVar("_Table")

KEYS = ("rename", "missing", "recode", "format", "unit", "complete")
"""The keys of a source that say how its values are translated."""

NUMBER_FORMATS: dict[str, tuple[str, str]] = {
    "1234.5": ("", "."),
    "1234,5": ("", ","),
    "1,234.5": (",", "."),
    "1.234,5": (".", ","),
    "1 234.5": (" ", "."),
    "1 234,5": (" ", ","),
    "1'234.5": ("'", "."),
    "1'234,5": ("'", ","),
}
"""How the number 1234.5 is written: the thousands mark and the decimal mark."""


@dataclass(frozen=True)
class Translation:
    """`rename` maps the file's column names to the schema's. `missing` lists texts that stand for no value in any
    column. `recode` maps values of a column to other values, an empty one to no value. `format` is how a column spells
    days (a strptime format) or numbers (one of `NUMBER_FORMATS`). `unit` is the factor that a column's numbers are
    multiplied by. Records without a value in one of the columns of `complete` are left out.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    recode: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    format: Mapping[str, str] = field(default_factory=dict)
    unit: Mapping[str, float] = field(default_factory=dict)
    complete: tuple[str, ...] = ()

    def as_table(self) -> dict[str, Any]:
        """The keys of a source that say the same; none where nothing is translated."""
        return {
            key: list(value) if isinstance(value, tuple) else dict(value)
            for key, value in ((key, getattr(self, key)) for key in KEYS)
            if value
        }

    def touches(self, column: str, *, numbers: bool = False) -> bool:
        """Whether values of the column may change. `column` is the schema's name of it; `numbers` says that it holds
        numbers only, which marks such as "?" are not among."""
        marked = any(map(_is_number, self.missing)) if numbers else bool(self.missing)
        return marked or column in self.recode or column in self.format or column in self.unit

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns, by the file's names, that must be read as text: 1.234 may be 1234, and 2024.10 an October."""
        return tuple(map(self.own_name, self.format))

    @property
    def blanks(self) -> tuple[tuple[str, str], ...]:
        """The values that are recoded to no value, each with its column by the file's name."""
        coded = ((self.own_name(name), codes) for name, codes in self.recode.items())
        return tuple((name, code) for name, codes in coded for code, other in codes.items() if not other.strip())

    def own_name(self, column: str) -> str:
        """The file's name of a column."""
        return next((own for own, name in self.rename.items() if name == column), column)

    def names(self, own: Sequence[str], where: str) -> list[str]:
        """The schema's names of the file's columns. A name that the file does not have, and two columns of one name,
        are errors: a rename that is ignored is most likely a misspelling."""
        for name in self.rename:
            if name not in own:
                raise DataError(
                    f"{where}: rename: the file has no column {name!r}{_hint(name, own)}; correct the name on the left "
                    "of rename, or remove it.",
                    key="rename",
                )
        names = [self.rename.get(name, name) for name in own]
        for name in self.rename.values():
            if names.count(name) > 1:
                raise DataError(
                    f"{where}: rename: two columns would be called {name!r}; rename the one that has this name "
                    "already, or remove the entry.",
                    key="rename",
                )
        for key, named in self._named():
            if named not in names:
                raise DataError(
                    f"{where}: {key}: the file has no column {named!r}{_hint(named, names)}; name the column as the "
                    "schema does.",
                    key=key,
                )
        return names

    def _named(self) -> Iterator[tuple[str, str]]:
        for key in ("recode", "format", "unit", "complete"):
            yield from ((key, name) for name in getattr(self, key))

    def column(self, series: pd.Series, name: str) -> Translated:
        """A column's values in the schema's terms."""
        wrong = np.zeros(len(series), np.bool_)
        if self.missing or name in self.recode:
            series = _recode(series, {**dict.fromkeys(self.missing, ""), **self.recode.get(name, {})})
        if name in self.format:
            change = _read_days if "%" in self.format[name] else _read_spelled
            series, wrong = change(series, self.format[name])
        if name in self.unit:
            series, other = _multiply(series, self.unit[name])
            wrong = wrong | other
        return Translated(series, wrong)

    def expected(self, name: str) -> tuple[str, str]:
        """What values of the column must be, and the remedy where one isn't."""
        format = self.format.get(name)
        if format is None:
            return "expected numbers, which unit multiplies", "correct the value, recode it, or remove unit"
        what = "dates" if "%" in format else "numbers as text"
        return f"expected {what} as format = {format!r} writes them", "correct the value, recode it, or correct format"


@dataclass(frozen=True, eq=False)
class Translated:
    """Translated values; `wrong` marks those that can't be, which keep their own form."""

    series: pd.Series
    wrong: NDArray[np.bool_]


@dataclass(frozen=True)
class TranslatedSource(Source):
    """A source whose values are translated as they are read. `where` names it in errors."""

    inner: Source
    translation: Translation
    where: str

    def read(self, columns: Columns = None) -> pd.DataFrame:
        frame = self._frame(self._found(lambda: self.inner.read(self.own_columns(columns))), 0, whole=columns is None)
        return frame if columns is None or frame.shape == (0, 0) else frame[list(columns)]

    def read_all_wrong(self) -> tuple[pd.DataFrame, dict[str, Translated]]:
        """All records, and the columns with values that can't be translated. Nothing is refused: a check lists all."""
        frame = self._renamed(self.inner.read(), whole=True)
        found = {
            name: self.translation.column(self._series(frame, name), name) for name in self._touched(frame.columns)
        }
        clean = frame.assign(**{name: one.series for name, one in found.items()})
        wrong = {name: Translated(frame[name], one.wrong) for name, one in found.items() if one.wrong.any()}
        return self._complete(clean) if not wrong else clean, wrong

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        first = 0
        batches = self.inner.batches(self.own_columns(columns), rows)
        while (frame := self._found(lambda: next(batches, None))) is not None:
            translated = self._frame(frame, first, whole=columns is None)
            first += len(frame)
            yield translated if columns is None or translated.shape == (0, 0) else translated[list(columns)]

    def pieces(self, columns: Columns = None, rows: int = PIECE_ROWS) -> Iterator[Table]:
        """Arrow batches stay such: columns that need no translation are not copied."""
        first = 0
        pieces = self.inner.pieces(self.own_columns(columns), rows)
        while (piece := self._found(lambda: next(pieces, None))) is not None:
            count = len(piece)
            if isinstance(piece, Batch):
                yield self._complete_batch(self._batch(piece, first))
            else:
                yield self._frame(piece, first, whole=columns is None)
            first += count

    def names(self) -> list[str] | None:
        own = self.inner.names()
        return own if own is None or not own else self.translation.names(own, self.where)

    def row_count(self) -> int | None:
        return None if self.translation.complete else self.inner.row_count()

    def rows_at_most(self, columns: int) -> int | None:
        return self.inner.rows_at_most(columns)

    def files(self) -> list[Path]:
        return self.inner.files()

    def own_columns(self, columns: Columns) -> list[str] | None:
        """The file's columns for the schema's: those asked for, and those that decide which records are complete."""
        if columns is None:
            return None
        needed = dict.fromkeys([*columns, *self.translation.complete])
        return [self.translation.own_name(name) for name in needed]

    def _found(self, read: Callable[[], _Table]) -> _Table:
        """What `read` returns. A missing column is one that `rename` names wrongly, where it names it."""
        try:
            return read()
        except DataError as error:
            if error.code == "missing-column" and error.key in self.translation.rename:
                raise DataError(
                    f"{self.where}: rename: the file has no column {error.key!r}; correct the name on the left of "
                    "rename, or remove it.",
                    code=error.code,
                    key="rename",
                ) from None
            raise

    def _frame(self, frame: pd.DataFrame, first: int, *, whole: bool) -> pd.DataFrame:
        frame = self._renamed(frame, whole=whole)
        changed = {}
        for name in self._touched(frame.columns):
            changed[name] = self._require(self.translation.column(self._series(frame, name), name), name, first)
        return self._complete(frame.assign(**changed))

    def _series(self, frame: pd.DataFrame, name: str) -> pd.Series:
        return column_of(frame, name, self.where)

    def _renamed(self, frame: pd.DataFrame, *, whole: bool) -> pd.DataFrame:
        """The frame under the schema's names; `whole` says that it has all columns of the file."""
        if frame.shape == (0, 0):
            return frame
        own = [str(name) for name in frame.columns]
        return frame.set_axis(self.translation.names(own, self.where) if whole else self._names(own), axis=1)

    def _names(self, own: Sequence[str]) -> list[str]:
        """The schema's names of some of the file's columns."""
        return [self.translation.rename.get(name, name) for name in own]

    def _touched(self, names: Iterable[Any]) -> list[str]:
        return [str(name) for name in names if self.translation.touches(str(name))]

    def _batch(self, piece: Batch, first: int) -> TranslatedBatch:
        names = self._names(piece.columns)
        return TranslatedBatch(piece.batch.rename_columns(names), self, first)

    def _require(self, found: Translated, name: str, first: int) -> pd.Series:
        """The values; refuse them where one can't be translated."""
        if found.wrong.any():
            number, others = first + int(np.argmax(found.wrong)) + 1, int(found.wrong.sum()) > 1
            expected, remedy = self.translation.expected(name)
            raise DataError(
                f"{self.where}: column {name!r}: {expected}, found another form in record {number}"
                f"{' and in others' if others else ''} (the first is 1); {remedy}. The value is shown by: comity "
                "schema check",
                key=name,
            )
        return found.series

    def _complete(self, frame: pd.DataFrame) -> pd.DataFrame:
        if not self.translation.complete or frame.shape == (0, 0):
            return frame
        kept = _filled([frame[name] for name in self.translation.complete])
        return frame if kept.all() else frame[kept].reset_index(drop=True)

    def _complete_batch(self, batch: TranslatedBatch) -> TranslatedBatch:
        import pyarrow as pa

        if not self.translation.complete:
            return batch
        kept = _filled([batch.series(batch.columns.index(name)) for name in self.translation.complete])
        return batch if kept.all() else TranslatedBatch(batch.batch.filter(pa.array(kept)), self, batch.first)


@dataclass(frozen=True, eq=False)
class TranslatedBatch(Batch):
    """An Arrow batch under the schema's names. A column that is translated becomes a series on demand."""

    source: TranslatedSource
    first: int

    def plain(self, name: str) -> NDArray[Any] | None:
        return None if self.source.translation.touches(name, numbers=True) else super().plain(name)

    def series(self, place: int) -> pd.Series:
        name, series = self.columns[place], super().series(place)
        if not self.source.translation.touches(name):
            return series
        return self.source._require(self.source.translation.column(series, name), name, self.first)


# What happens to one column.


def _change_distinct(
    series: pd.Series, change: Callable[[Any], Any], wrong: Callable[[Any], bool]
) -> tuple[pd.Series, NDArray[np.bool_]]:
    """Change each distinct value once. The result is a series of objects; missing values stay missing."""
    import pandas as pd

    codes, distinct = pd.factorize(series.astype(object), use_na_sentinel=True)
    changed = np.empty(len(distinct) + 1, object)
    changed[:-1] = [change(value) for value in distinct]
    failed = np.array([*(wrong(value) for value in changed[:-1]), False], np.bool_)
    changed[:-1][failed[:-1]] = np.asarray(distinct, object)[failed[:-1]]
    # factorize marks a missing value by -1, which picks the last entry.
    return pd.Series(changed[codes], index=series.index, name=series.name), failed[codes]


def _recode(series: pd.Series, codes: Mapping[str, str]) -> pd.Series:
    known = {key.strip(): value for key, value in codes.items()}
    found = {category_text(value).strip() for value in series.dropna().unique()}
    if not found & set(known):
        # A column of numbers stays one.
        return series

    def change(value: Any) -> Any:
        return known.get(category_text(value).strip(), value)

    recoded, _ = _change_distinct(series, change, lambda _: False)
    return recoded.where(recoded != "", None)


def _read_days(series: pd.Series, format: str) -> tuple[pd.Series, NDArray[np.bool_]]:
    import pandas as pd

    read = read_days(series, format)
    if read.wrong.any():
        return series, read.wrong
    # As times: the schema's own format, for other owners' texts, does not apply to them.
    return pd.Series(read.days.astype("datetime64[s]"), index=series.index, name=series.name), read.wrong


def _read_spelled(series: pd.Series, format: str) -> tuple[pd.Series, NDArray[np.bool_]]:
    """Numbers from their texts. A value that is a number already is wrong: its marks were read by another rule."""
    import pandas as pd

    thousands, decimal = NUMBER_FORMATS[format]

    def parse(value: Any) -> float | None:
        return parse_number(value, thousands, decimal) if isinstance(value, str) and value.strip() else np.nan

    def change(value: Any) -> Any:
        return parse(value) if isinstance(value, str) else None

    changed, wrong = _change_distinct(series, change, lambda value: value is None)
    return (changed if wrong.any() else pd.to_numeric(changed)), wrong


def parse_number(text: str, thousands: str, decimal: str) -> float | None:
    """The number that a text writes with these marks, or None."""
    sign, digits = ("-", text.strip()[1:]) if text.strip()[:1] == "-" else ("", text.strip().removeprefix("+"))
    whole, mark, fraction = digits.partition(decimal)
    if thousands:
        # Narrow and fixed spaces set off thousands too.
        first, *groups = whole.replace("\u00a0", " ").replace("\u202f", " ").split(thousands)
        if any(len(group) != 3 for group in groups) or (groups and not 1 <= len(first) <= 3):
            return None
        whole = "".join((first, *groups))
    if not (whole + fraction).isdecimal() or not (whole + fraction).isascii() or (mark and not fraction):
        return None
    return float(f"{sign}{whole or '0'}.{fraction or '0'}")


def _multiply(series: pd.Series, factor: float) -> tuple[pd.Series, NDArray[np.bool_]]:
    """Multiply decimal numbers exactly and round once: 1.1 metres are 110 centimetres, not 110.00000000000001."""
    import pandas as pd

    read = read_numbers(series)
    if read.wrong.any():
        return series, read.wrong
    products = np.full(len(read.values), np.nan)
    finite = np.isfinite(read.values)
    products[~finite] = read.values[~finite] * factor
    products[finite] = _decimal_products(read.values[finite], factor)
    return pd.Series(products, index=series.index, name=series.name), read.wrong


def _decimal_products(values: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """The doubles nearest to the products of decimal numbers.

    Numbers of up to six decimals are whole numbers n over a power of ten, and so is the factor: n·F and the power are
    exact doubles below 2**53 and 10**22, and one division rounds once. Below 10**15, n is the number's only shortest
    decimal form. Other numbers go through `Decimal`, one by one.
    """
    exact = Decimal(repr(factor))
    places = max(0, -int(exact.as_tuple().exponent))
    multiplier = float(exact.scaleb(places))
    for decimals in range(7):
        whole = np.rint(values * 10.0**decimals)
        if (whole / 10.0**decimals == values).all() and (np.abs(whole) < 1e15).all():
            if decimals + places > 22 or (np.abs(whole) * abs(multiplier) >= 2.0**53).any():
                break
            return np.asarray(whole * multiplier / 10.0 ** (decimals + places), np.float64)
    return np.array([float(Decimal(repr(value)) * exact) for value in values.tolist()], np.float64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _filled(columns: Sequence[pd.Series]) -> NDArray[np.bool_]:
    """Which records have a value in each of the columns."""
    blank = [find_blank(series) for series in columns]
    return np.asarray(~np.logical_or.reduce(blank), np.bool_)


# The keys of a table.


def read_translation(table: Mapping[str, Any], where: str) -> Translation | None:
    """The translation that a source's table describes; None where it has no such key. Errors show no value of it."""
    if not set(KEYS) & set(table):
        return None
    return Translation(
        rename=_read_renames(table.get("rename", {}), where),
        missing=_read_texts(table.get("missing", []), "missing", where),
        recode={
            name: _read_codes(codes, f"recode.{name}", where)
            for name, codes in _require_mapping(table.get("recode", {}), "recode", where).items()
        },
        format={
            name: _read_format(value, f"format.{name}", where)
            for name, value in _require_mapping(table.get("format", {}), "format", where).items()
        },
        unit={
            name: _read_factor(value, f"unit.{name}", where)
            for name, value in _require_mapping(table.get("unit", {}), "unit", where).items()
        },
        complete=_read_texts(table.get("complete", []), "complete", where),
    )


def _refuse(key: str, expected: str, remedy: str, where: str) -> NoReturn:
    raise StudyError(f"{where}: {key}: expected {expected}, found another form; {remedy}.", key=key)


def _require_mapping(value: Any, key: str, where: str) -> Mapping[str, Any]:
    example = {
        "rename": '{alter = "age"}',
        "recode": '{sex = {m = "male", w = "female"}}',
        "format": '{admitted = "%d.%m.%Y"}',
        "unit": "{height = 100}",
    }.get(key.partition(".")[0], "")
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name.strip() for name in value):
        _refuse(key, "a table of columns", f"write {key.partition('.')[0]} = {example}", where)
    return value


def _read_renames(value: Any, where: str) -> dict[str, str]:
    names = _require_mapping(value, "rename", where)
    if not all(isinstance(name, str) and name.strip() for name in names.values()):
        _refuse("rename", "names as text", 'write rename = {alter = "age"}, the file\'s name on the left', where)
    if len(set(names.values())) < len(names):
        _refuse("rename", "each name of the schema once", "two columns can't have one name: remove one", where)
    return {str(own): str(name) for own, name in names.items()}


def _read_texts(value: Any, key: str, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one.strip() for one in value):
        _refuse(key, "a list of texts", f'write {key} = ["..."], numbers in quotes too', where)
    return tuple(value)


def _read_codes(value: Any, key: str, where: str) -> dict[str, str]:
    codes = _require_mapping(value, key, where)
    if not all(isinstance(code, str) for code in codes.values()):
        _refuse(key, "values as text", 'write {m = "male", "9" = ""}, where "" means no value', where)
    return {str(code): str(other) for code, other in codes.items()}


def _read_format(value: Any, key: str, where: str) -> str:
    if isinstance(value, str) and (value in NUMBER_FORMATS or _spells_days(value)):
        return value
    known = ", ".join(map(repr, NUMBER_FORMATS))
    _refuse(key, 'a format of dates, such as "%d.%m.%Y", or of numbers', f"for numbers write one of {known}", where)


def _spells_days(format: str) -> bool:
    """Whether a day's text leads back to its year and month."""
    day = date(2021, 11, 23)
    try:
        back = parse_day(day.strftime(format), format) if "%" in format else None
    except ValueError:
        return False
    return back is not None and back.year == day.year


def _read_factor(value: Any, key: str, where: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not isfinite(value) or value == 0:
        _refuse(key, "a number that is not zero", "write the factor that turns your numbers into the schema's", where)
    return float(value)


def _hint(name: str, known: Sequence[str]) -> str:
    close = nearest_name(name, list(known))
    return "" if close is None else f" (did you mean {close!r}?)"

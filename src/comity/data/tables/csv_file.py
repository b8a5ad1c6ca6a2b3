"""A CSV file: read as text first, and turned into numbers only where that loses nothing.

If it is not written as its keys say, the error names its form: separators, encoding, numbers of lines and fields. No
error quotes a record, because it may end in a log.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from comity.data.tables.source import Columns, Kind, Place, Source, select_columns, split_frames, translate_errors
from comity.errors import DataError, StudyError

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}

_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]
# Digits after a leading zero are an identifier or a code (007, 01067), not a number.
_CODE = r"^\s*[+-]?0[0-9]"
_DECIMAL_COMMA = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*")
_COMMA_NUMBER = r"^(\s*[+-]?[0-9]+),([0-9]+\s*)$"
_DECIMAL_POINT = re.compile(r"\s*[+-]?[0-9]*\.[0-9]+\s*")
_HEAD_BYTES = 1 << 16
_HEAD_LINES = 50
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class Csv(Source):
    """A CSV file with a header line, in UTF-8 with commas and decimal points unless the keys say otherwise.

    Numbers are recognised only where nothing is lost: 007 stays text. An empty file has no records. Without a
    `separator` commas are expected, and another one in the file is an error; a given separator is used as it is.
    """

    path: Path
    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    missing: tuple[str, ...] = ()
    """Texts that stand for no value, beside empty fields and NA: without them a column of numbers stays one."""
    blanks: tuple[tuple[str, str], ...] = ()
    """The same for single columns: pairs of a column and a text."""
    texts: tuple[str, ...] = ()
    """Columns that stay text."""

    def __post_init__(self) -> None:
        separator = self.separator
        if separator is not None and (not isinstance(separator, str) or len(separator) != 1 or separator in '"\r\n'):
            _refuse_key("separator", 'one character, such as ";" or "\\t"', separator)
        if self.decimal not in (".", ","):
            _refuse_key("decimal", '"." or ","', self.decimal)
        try:
            # str.encode takes text encodings only, and no compression.
            "a".encode(self.encoding)
            codecs.getincrementaldecoder(self.encoding)
        except (LookupError, TypeError, ValueError):
            _refuse_key("encoding", 'the name of a text encoding, such as "latin-1"', self.encoding)

    def read(self, columns: Columns = None) -> pd.DataFrame:
        """All records; a column is numeric if every value in it is."""
        import pandas as pd

        with translate_errors(self.path), _explain_errors(self):
            if _is_empty(self):
                return select_columns(pd.DataFrame(), columns, str(self.path))
            _check_form(self)
            table = _without_marks(_open_reader(self, columns).read_all(), self)
            kinds = [_narrowest(column, kind, self) for column, kind in zip(table.columns, _least(table, self))]
            return select_columns(_to_frame(table, kinds, self), columns, str(self.path))

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        with translate_errors(self.path), _explain_errors(self):
            for frame in split_frames(self._frames(columns), rows):
                yield select_columns(frame, columns, str(self.path))

    def _frames(self, columns: Columns) -> Iterator[pd.DataFrame]:
        """The file in parts. A first pass settles the type of each column: all parts agree with the whole."""
        import pandas as pd
        import pyarrow as pa

        if _is_empty(self):
            yield pd.DataFrame()
            return
        _check_form(self)
        kinds: list[_Kind] | None = None
        for batch in _open_reader(self, columns):
            table = _without_marks(pa.Table.from_batches([batch]), self)
            least = kinds or _least(table, self)
            kinds = [_narrowest(column, kind, self) for column, kind in zip(table.columns, least)]
        reader = _open_reader(self, columns)
        if kinds is None:
            yield _to_frame(reader.read_all(), [_Kind.TEXT] * len(reader.schema), self)
            return
        for batch in reader:
            yield _to_frame(_without_marks(pa.Table.from_batches([batch]), self), kinds, self)

    def names(self) -> list[str]:
        with translate_errors(self.path), _explain_errors(self):
            if _is_empty(self):
                return []
            _check_form(self)
            return _header(self)

    def rows_at_most(self, columns: int) -> int:
        # A field may be empty, but the separator or line end after it takes a byte.
        with translate_errors(self.path):
            return self.path.stat().st_size // max(1, columns)

    def files(self) -> list[Path]:
        return [self.path]


def _refuse_key(key: str, expected: str, found: object) -> NoReturn:
    raise StudyError(f"{key}: expected {expected}, found {found!r}; correct it or leave it out.", key=key)


def guess_dialect(path: Path) -> Csv:
    """The file with the encoding and the separator that it is most likely written with."""
    file = Csv(path)
    with translate_errors(path):
        encoding = _guess_utf16(_read_start(file)) or _find_encoding(file)
        file = file if encoding is None else replace(file, encoding=encoding)
        return replace(file, separator=_find_separator(*_read_head(file)))


def _open(table: Mapping[str, Any], place: Place) -> Csv:
    path = place.find_file(Path(table["path"]), "path")
    try:
        return Csv(path, **{key: table[key] for key in ("separator", "decimal", "encoding") if key in table})
    except StudyError as error:
        raise StudyError(f"{place.where}: {error}", key=error.key) from None


CSV = Kind(keys=("source", "path", "separator", "decimal", "encoding"), open=_open)


class _Kind(IntEnum):
    """The type of a column, from narrow to wide. DOTTED are numbers with points in a file of decimal commas."""

    WHOLE = 0
    REAL = 1
    DOTTED = 2
    TEXT = 3


_NUMBERS = {".": (_Kind.WHOLE, _Kind.REAL), ",": (_Kind.WHOLE, _Kind.REAL, _Kind.DOTTED)}


def _open_reader(file: Csv, columns: Columns) -> Any:
    """A reader of texts: of these columns where the file has each of them once, and otherwise of all."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names = _header(file)
    chosen = None if columns is None or any(names.count(name) != 1 for name in columns) else list(columns)
    convert = arrow_csv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        # An empty list stands for all columns.
        include_columns=chosen or None,
        null_values=_MISSING,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return arrow_csv.open_csv(file.path, convert_options=convert, **_arrow_options(file))


def _header(file: Csv) -> list[str]:
    from pyarrow import csv as arrow_csv

    with arrow_csv.open_csv(file.path, **_arrow_options(file)) as head:
        return list(head.schema.names)


def _arrow_options(file: Csv) -> dict[str, Any]:
    from pyarrow import csv as arrow_csv

    return {
        "parse_options": arrow_csv.ParseOptions(delimiter=file.separator or ",", newlines_in_values=True),
        "read_options": arrow_csv.ReadOptions(encoding=file.encoding),
    }


def _least(table: Any, file: Csv) -> list[_Kind]:
    """The narrowest kind that each column may have."""
    return [_Kind.TEXT if name in file.texts else _Kind.WHOLE for name in table.column_names]


def _without_marks(table: Any, file: Csv) -> Any:
    """The table of texts with missing values for the texts that stand for none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not file.missing and not file.blanks:
        return table
    for place, name in enumerate(table.column_names):
        marks = [text.strip() for text in (*file.missing, *(text for column, text in file.blanks if column == name))]
        if marks:
            column = table.column(place)
            marked = pc.is_in(pc.utf8_trim_whitespace(column), value_set=pa.array(marks, pa.string()))
            table = table.set_column(place, name, pc.if_else(marked, pa.scalar(None, pa.string()), column))
    return table


def _narrowest(column: Any, least: _Kind, file: Csv) -> _Kind:
    """The narrowest kind that holds the column and is no narrower than `least`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if least is _Kind.TEXT or pc.any(pc.match_substring_regex(column, _CODE)).as_py():
        return _Kind.TEXT
    for kind in _NUMBERS[file.decimal]:
        if kind < least:
            continue
        try:
            _cast(column, kind, file)
        except pa.ArrowInvalid:
            continue
        return kind
    return _Kind.TEXT


def _cast(column: Any, kind: _Kind, file: Csv) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind is _Kind.WHOLE:
        return pc.cast(column, pa.int64())
    if kind is _Kind.REAL and file.decimal == ",":
        if pc.any(pc.match_substring(column, ".")).as_py():
            raise pa.ArrowInvalid("points")
        return pc.cast(pc.replace_substring(column, ",", "."), pa.float64())
    return pc.cast(column, pa.string() if kind is _Kind.TEXT else pa.float64())


def _to_frame(table: Any, kinds: list[_Kind], file: Csv) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, kind in zip(table.column_names, kinds):
        if kind is _Kind.DOTTED:
            raise DataError(
                f'{file.path}: column {name!r} has numbers with points under decimal = ",", which may set off '
                "thousands or decimals; write them without thousands marks, or leave decimal out if points are decimal "
                "points.",
                key="decimal",
            )
    columns = [_cast(column, kind, file) for column, kind in zip(table.columns, kinds)]
    if file.decimal == ",":
        # One text among numbers must not make texts with commas of all of them: a check would name every number.
        for place, (name, kind) in enumerate(zip(table.column_names, kinds)):
            if kind is _Kind.TEXT and name not in file.texts:
                columns[place] = pc.replace_substring_regex(columns[place], _COMMA_NUMBER, r"\1.\2")
    frame: pd.DataFrame = pa.table(columns, names=table.column_names).to_pandas()
    return frame


def _is_empty(file: Csv) -> bool:
    """Whether there is neither a header nor a record: no byte, or only blank lines."""
    text, whole = _read_head(file)
    return whole and not text.strip(_BYTE_ORDER_MARK + "\r\n\t ")


def _check_form(file: Csv) -> None:
    """Refuse files that can be read and would be read wrongly: another separator, or two bytes per character."""
    if file.encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        wide = _guess_utf16(_read_start(file))
        if wide is not None:
            raise DataError(_name_encoding(file, wide), key="encoding")
    text, whole = _read_head(file)
    other = _find_separator(text, whole) if file.separator is None else None
    if other is not None:
        raise DataError(_name_separator(file, other, text, whole), key="separator")


@contextmanager
def _explain_errors(file: Csv) -> Iterator[None]:
    """Raise the reader's errors as sentences about the file's form. The reader quotes the record at which it failed:
    its text goes nowhere."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, UnicodeError):
        raise _explain_failure(file) from None


def _explain_failure(file: Csv) -> DataError:
    encoding = _find_encoding(file)
    if encoding is not None:
        return DataError(_name_encoding(file, encoding), key="encoding")
    ragged = _find_ragged_line(file)
    if ragged is not None:
        return DataError(ragged, key="path")
    return DataError(
        f"{file.path} can't be read as CSV; check that the file is complete and has a header line, and that every "
        "quotation mark is closed.",
        key="path",
    )


def _read_start(file: Csv) -> bytes:
    with file.path.open("rb") as opened:
        return opened.read(_HEAD_BYTES)


def _read_head(file: Csv) -> tuple[str, bool]:
    """The start of the file as text, with replacements for bytes that can't be decoded; and whether it is the whole
    file."""
    start = _read_start(file)
    decoder = codecs.getincrementaldecoder(file.encoding)(errors="replace")
    return decoder.decode(start), len(start) < _HEAD_BYTES


def _split_rows(text: str, separator: str, *, whole: bool) -> list[list[str]]:
    """The first records. The last one is left out where the text ends within it."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text.lstrip(_BYTE_ORDER_MARK), newline=""), delimiter=separator):
            if row:
                rows.append(row)
            if len(rows) > _HEAD_LINES:
                return rows
    except csv.Error:
        return rows
    return rows if whole or len(rows) < 2 else rows[:-1]


def _find_separator(text: str, whole: bool) -> str | None:
    """A separator that gives all records the same number of fields, where the comma doesn't."""
    if _common_width(_split_rows(text, ",", whole=whole)) > 1:
        return None
    for separator in SEPARATORS:
        if separator != "," and _common_width(_split_rows(text, separator, whole=whole)) > 1:
            return separator
    return None


def _common_width(rows: list[list[str]]) -> int:
    """The number of fields that all rows have; 0 if they differ."""
    widths = {len(row) for row in rows}
    return widths.pop() if len(widths) == 1 else 0


def _name_separator(file: Csv, separator: str, text: str, whole: bool) -> str:
    cells = [cell for row in _split_rows(text, separator, whole=whole)[1:] for cell in row]
    commas = any(map(_DECIMAL_COMMA.fullmatch, cells)) and not any(map(_DECIMAL_POINT.fullmatch, cells))
    written = separator.replace("\t", "\\t")
    keys = f'separator = "{written}"' + (' and decimal = ","' if commas else "")
    also = " and its numbers have decimal commas" if commas else ""
    return (
        f"{file.path} is separated by {SEPARATORS[separator]}, not commas{also}; read it with {keys}: "
        f'{{source = "csv", path = "...", separator = "{written}"}} in a file, or --separator where a command has it. '
        "Or save it with commas."
    )


def _name_encoding(file: Csv, name: str) -> str:
    declared = "UTF-8" if file.encoding == "utf-8" else file.encoding
    return (
        f'{file.path} is not {declared}: it is most likely written in {name}; read it with encoding = "{name}": '
        f'{{source = "csv", path = "...", encoding = "{name}"}} in a file, or --encoding where a command has it. Or '
        "save it as UTF-8."
    )


def _guess_utf16(start: bytes) -> str | None:
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # Without a byte order mark: separators and line ends have a zero byte, and its side tells the order.
    low, high = start[0::2].count(0), start[1::2].count(0)
    if max(low, high) * 4 < len(start) or not start:
        return None
    return "utf-16-le" if high > low else "utf-16-be"


def _find_encoding(file: Csv) -> str | None:
    """An encoding that decodes the whole file, if the declared one doesn't."""
    if _decodes(file.path, file.encoding):
        return None
    wide = _guess_utf16(_read_start(file))
    candidates: tuple[str, ...] = (
        "utf-8",
        *((wide,) if wide else ()),
        *(("cp1252",) if _has_c1(file.path) else ()),
        "latin-1",
    )
    return next(name for name in candidates if _decodes(file.path, name))


def _decodes(path: Path, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeError:
        return False
    return True


def _has_c1(path: Path) -> bool:
    """Whether there are bytes that are control characters in Latin-1 and typographic ones in Windows' code page."""
    with path.open("rb") as file:
        return any(any(0x80 <= byte <= 0x9F for byte in block) for block in iter(lambda: file.read(1 << 20), b""))


def _find_ragged_line(file: Csv) -> str | None:
    """A sentence about the first record with another number of fields than the header."""
    head = 0
    for line, width in _line_widths(file):
        head = head or width
        if width != head:
            fields = f"{width} field{'s' if width != 1 else ''}"
            return (
                f"{file.path} can't be read: line {line} has {fields} where the header has {head}; a text that holds "
                "the separator needs quotes around it, and every quotation mark its other half."
            )
    return None


def _line_widths(file: Csv) -> Iterator[tuple[int, int]]:
    """The line on which each record begins, and how many fields it has."""
    with file.path.open(encoding=file.encoding, errors="replace", newline="") as opened:
        reader = csv.reader(opened, delimiter=file.separator or ",")
        line = 1
        try:
            for row in reader:
                if row:
                    yield line, len(row)
                line = reader.line_num + 1
        except csv.Error:
            return

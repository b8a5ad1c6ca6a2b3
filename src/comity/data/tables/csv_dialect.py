"""How a CSV file is written, and what to call it when it is written otherwise than was said.

Every sentence here describes a file by its form: separators, encoding, numbers of lines and fields. None quotes a
record, because a sentence may end in a log.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from comity.errors import DataError, StudyError

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
_HEAD = 1 << 16
_LINES = 50
_DECIMAL_COMMA = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*")
_DECIMAL_POINT = re.compile(r"\s*[+-]?[0-9]*\.[0-9]+\s*")


@dataclass(frozen=True)
class Dialect:
    """`separator` None means commas as long as nothing speaks for another; one that is named is not questioned."""

    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        separator = self.separator
        if separator is not None and (not isinstance(separator, str) or len(separator) != 1 or separator in '"\r\n'):
            _bad("separator", 'one character, such as ";" or "\\t"', separator)
        if self.decimal not in (".", ","):
            _bad("decimal", '"." or ","', self.decimal)
        try:
            # str.encode knows text encodings alone: compressions and the like are no way to write a table.
            "a".encode(self.encoding)
            codecs.getincrementaldecoder(self.encoding)
        except (LookupError, TypeError, ValueError):
            _bad("encoding", 'the name of a text encoding, such as "latin-1"', self.encoding)

    @property
    def between(self) -> str:
        return self.separator or ","


def _bad(key: str, expected: str, found: object) -> NoReturn:
    raise StudyError(f"{key}: expected {expected}, found {found!r}; correct it or leave it out.", key=key)


def is_empty(path: Path, dialect: Dialect) -> bool:
    """No header and no record: nothing, or blank lines alone."""
    text, whole = _head(path, dialect)
    return whole and not text.strip("﻿\r\n\t ")


def check_form(path: Path, dialect: Dialect) -> None:
    """Refuse what reads without an error and still is wrong: another separator, or two bytes per character."""
    if dialect.encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        with path.open("rb") as file:
            start = file.read(_HEAD)
        wide = _two_bytes(start)
        if wide is not None:
            raise DataError(_encoded(path, dialect, wide), key="encoding")
    text, whole = _head(path, dialect)
    other = _other_separator(text, whole) if dialect.separator is None else None
    if other is not None:
        raise DataError(_separated(path, other, text, whole), key="separator")


def unreadable(path: Path, dialect: Dialect) -> DataError:
    """Why a file could not be read, for the person who holds it."""
    wrong = _wrong_encoding(path, dialect)
    if wrong is not None:
        return DataError(wrong, key="encoding")
    ragged = _ragged(path, dialect)
    if ragged is not None:
        return DataError(ragged, key="path")
    return DataError(
        f"{path} can't be read as CSV; check that the file is complete and has a header line, and that every quotation "
        "mark is closed.",
        key="path",
    )


def _head(path: Path, dialect: Dialect) -> tuple[str, bool]:
    """The beginning as text, whatever can't be decoded replaced; and whether it is the whole file."""
    with path.open("rb") as file:
        start = file.read(_HEAD)
    decoder = codecs.getincrementaldecoder(dialect.encoding)(errors="replace")
    return decoder.decode(start), len(start) < _HEAD


def _rows(text: str, separator: str, *, whole: bool) -> list[list[str]]:
    """The first records; the last one of a text that was cut off is left out."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text.lstrip("﻿"), newline=""), delimiter=separator):
            if row:
                rows.append(row)
            if len(rows) > _LINES:
                return rows
    except csv.Error:
        return rows
    return rows if whole or len(rows) < 2 else rows[:-1]


def _other_separator(text: str, whole: bool) -> str | None:
    """A mark that cuts every record into as many fields, where the comma doesn't."""
    if _table_width(_rows(text, ",", whole=whole)) > 1:
        return None
    for separator in SEPARATORS:
        if separator != "," and _table_width(_rows(text, separator, whole=whole)) > 1:
            return separator
    return None


def _table_width(rows: list[list[str]]) -> int:
    """In how many fields all rows agree; 0 if they don't."""
    widths = {len(row) for row in rows}
    return widths.pop() if len(widths) == 1 else 0


def _separated(path: Path, separator: str, text: str, whole: bool) -> str:
    cells = [cell for row in _rows(text, separator, whole=whole)[1:] for cell in row]
    commas = any(map(_DECIMAL_COMMA.fullmatch, cells)) and not any(map(_DECIMAL_POINT.fullmatch, cells))
    written = separator.replace("\t", "\\t")
    keys = f'separator = "{written}"' + (' and decimal = ","' if commas else "")
    also = " and its numbers have decimal commas" if commas else ""
    return (
        f"{path} is separated by {SEPARATORS[separator]}, not commas{also}; read it with {keys}: "
        f'{{source = "csv", path = "...", separator = "{written}"}} in a file, --separator on the command line. Or '
        "save it with commas."
    )


def _encoded(path: Path, dialect: Dialect, name: str) -> str:
    said = "UTF-8" if dialect == Dialect() or dialect.encoding == "utf-8" else dialect.encoding
    return (
        f'{path} is not {said}: it is most likely written in {name}; read it with encoding = "{name}": '
        f'{{source = "csv", path = "...", encoding = "{name}"}} in a file, --encoding on the command line. Or save it '
        "as UTF-8."
    )


def _two_bytes(start: bytes) -> str | None:
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # Text without a mark: in most scripts a file's separators and line ends show on which side the zeros are.
    low, high = start[0::2].count(0), start[1::2].count(0)
    if max(low, high) * 4 < len(start) or not start:
        return None
    return "utf-16-le" if high > low else "utf-16-be"


def _wrong_encoding(path: Path, dialect: Dialect) -> str | None:
    if _decodes(path, dialect.encoding):
        return None
    with path.open("rb") as file:
        wide = _two_bytes(file.read(_HEAD))
    candidates = ("utf-8", *((wide,) if wide else ()), *(("cp1252",) if _has_c1(path) else ()), "latin-1")
    fits = next(name for name in candidates if _decodes(path, name))
    return _encoded(path, dialect, fits)


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
    """Bytes that are control characters in Latin-1 and typographic ones in Windows' code page."""
    with path.open("rb") as file:
        return any(any(0x80 <= byte <= 0x9F for byte in block) for block in iter(lambda: file.read(1 << 20), b""))


def _ragged(path: Path, dialect: Dialect) -> str | None:
    """The first record whose number of fields is not the header's, by its line."""
    head = 0
    for line, width in _widths(path, dialect):
        head = head or width
        if width != head:
            fields = f"{width} field{'s' if width != 1 else ''}"
            return (
                f"{path} can't be read: line {line} has {fields} where the header has {head}; a text that holds the "
                "separator needs quotes around it, and every quotation mark its other half."
            )
    return None


def _widths(path: Path, dialect: Dialect) -> Iterator[tuple[int, int]]:
    """The line on which each record begins, and how many fields it has."""
    with path.open(encoding=dialect.encoding, errors="replace", newline="") as file:
        reader = csv.reader(file, delimiter=dialect.between)
        begun = 1
        try:
            for row in reader:
                if row:
                    yield begun, len(row)
                begun = reader.line_num + 1
        except csv.Error:
            return

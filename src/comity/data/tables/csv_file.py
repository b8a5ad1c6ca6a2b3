"""A CSV file as tables, read as text first and turned into numbers only where that loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from comity.data.tables.csv_dialect import Dialect, check_form, is_empty, unreadable
from comity.errors import DataError

_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]
# Digits after a leading zero are an identifier or a code (007, 01067), not a number.
_CODE = r"^\s*[+-]?0[0-9]"


class _Kind(IntEnum):
    """What holds a column, from narrow to wide. DOTTED are numbers with points where the dialect says commas."""

    WHOLE = 0
    REAL = 1
    DOTTED = 2
    TEXT = 3


_NUMBERS = {".": (_Kind.WHOLE, _Kind.REAL), ",": (_Kind.WHOLE, _Kind.REAL, _Kind.DOTTED)}


def csv_table(path: Path, dialect: Dialect) -> pd.DataFrame:
    """The whole file; a column is numeric if every value in it is."""
    with _explained(path, dialect):
        if is_empty(path, dialect):
            return pd.DataFrame()
        check_form(path, dialect)
        table = _reader(path, dialect).read_all()
        kinds = [_kind(column, _Kind.WHOLE, dialect) for column in table.columns]
        return _typed(table, kinds, path, dialect)


def csv_batches(path: Path, dialect: Dialect) -> Iterator[pd.DataFrame]:
    """The file in pieces. A first pass settles each column's type, so that all pieces agree with the whole."""
    with _explained(path, dialect):
        if is_empty(path, dialect):
            yield pd.DataFrame()
            return
        check_form(path, dialect)
        kinds: list[_Kind] | None = None
        for batch in _reader(path, dialect):
            wider = kinds or [_Kind.WHOLE] * batch.num_columns
            kinds = [_kind(column, kind, dialect) for column, kind in zip(batch.columns, wider)]
        reader = _reader(path, dialect)
        if kinds is None:
            yield _typed(reader.read_all(), [_Kind.TEXT] * len(reader.schema), path, dialect)
            return
        for batch in reader:
            yield _typed(pa.Table.from_batches([batch]), kinds, path, dialect)


@contextmanager
def _explained(path: Path, dialect: Dialect) -> Iterator[None]:
    """What the reader raises quotes the record that it stumbled over, so its text goes nowhere."""
    try:
        yield
    except (pa.ArrowInvalid, UnicodeError):
        raise unreadable(path, dialect) from None


def _reader(path: Path, dialect: Dialect) -> Any:
    parse = csv.ParseOptions(delimiter=dialect.between, newlines_in_values=True)
    reading = csv.ReadOptions(encoding=dialect.encoding)
    with csv.open_csv(path, parse_options=parse, read_options=reading) as head:
        names = head.schema.names
    convert = csv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        null_values=_MISSING,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return csv.open_csv(path, parse_options=parse, read_options=reading, convert_options=convert)


def _kind(column: Any, least: _Kind, dialect: Dialect) -> _Kind:
    """The narrowest kind that holds the column and is no narrower than `least`."""
    if least is _Kind.TEXT or pc.any(pc.match_substring_regex(column, _CODE)).as_py():
        return _Kind.TEXT
    for kind in _NUMBERS[dialect.decimal]:
        if kind < least:
            continue
        try:
            _cast(column, kind, dialect)
        except pa.ArrowInvalid:
            continue
        return kind
    return _Kind.TEXT


def _cast(column: Any, kind: _Kind, dialect: Dialect) -> Any:
    if kind is _Kind.WHOLE:
        return pc.cast(column, pa.int64())
    if kind is _Kind.REAL and dialect.decimal == ",":
        if pc.any(pc.match_substring(column, ".")).as_py():
            raise pa.ArrowInvalid("points")
        return pc.cast(pc.replace_substring(column, ",", "."), pa.float64())
    return pc.cast(column, pa.string() if kind is _Kind.TEXT else pa.float64())


def _typed(table: Any, kinds: list[_Kind], path: Path, dialect: Dialect) -> pd.DataFrame:
    for name, kind in zip(table.column_names, kinds):
        if kind is _Kind.DOTTED:
            raise DataError(
                f'{path}: column {name!r} has numbers with points under decimal = ",", which may set off thousands or '
                "decimals; write them without thousands marks, or leave decimal out if points are decimal points.",
                key="decimal",
            )
    columns = [_cast(column, kind, dialect) for column, kind in zip(table.columns, kinds)]
    frame: pd.DataFrame = pa.table(columns, names=table.column_names).to_pandas()
    return frame

"""A CSV file as tables, read as text first and turned into numbers only where that loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]
# Digits after a leading zero are an identifier or a code (007, 01067), not a number.
_CODE = r"^\s*[+-]?0[0-9]"


def csv_table(path: Path) -> pd.DataFrame:
    """The whole file; a column is numeric if every value in it is."""
    table = _reader(path).read_all()
    return _typed(table, [_kind(column, pa.int64()) for column in table.columns])


def csv_batches(path: Path) -> Iterator[pd.DataFrame]:
    """The file in pieces. A first pass settles each column's type, so that all pieces agree with the "
    "whole."""
    kinds: list[Any] | None = None
    for batch in _reader(path):
        kinds = [_kind(column, kind) for column, kind in zip(batch.columns, kinds or [pa.int64()] * batch.num_columns)]
    reader = _reader(path)
    if kinds is None:
        yield _typed(reader.read_all(), [pa.string()] * len(reader.schema))
        return
    for batch in reader:
        yield _typed(pa.Table.from_batches([batch]), kinds)


def _reader(path: Path) -> Any:
    parse = csv.ParseOptions(newlines_in_values=True)
    with csv.open_csv(path, parse_options=parse) as head:
        names = head.schema.names
    convert = csv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        null_values=_MISSING,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return csv.open_csv(path, parse_options=parse, convert_options=convert)


def _kind(column: Any, kind: Any) -> Any:
    """The narrowest of integer, real and text that holds the column and is no narrower than `kind`."""
    if pa.types.is_string(kind) or pc.any(pc.match_substring_regex(column, _CODE)).as_py():
        return pa.string()
    for wider in (pa.int64(), pa.float64()):
        if wider == pa.int64() and kind != wider:
            continue
        try:
            pc.cast(column, wider)
        except pa.ArrowInvalid:
            continue
        return wider
    return pa.string()


def _typed(table: Any, kinds: list[Any]) -> pd.DataFrame:
    columns = [pc.cast(column, kind) for column, kind in zip(table.columns, kinds)]
    frame: pd.DataFrame = pa.table(columns, names=table.column_names).to_pandas()
    return frame

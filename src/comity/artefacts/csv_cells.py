"""Cells of exported CSV files that no spreadsheet takes for a formula.

A spreadsheet runs a cell that begins with =, +, - or @, and some skip a tab, a line end or an invisible character
before it. Where the decimal mark is a comma, semicolons separate cells, and a formula may also begin behind a semicolon
or a line end within a text. Records and identifiers come from other parties: a formula in one of them could fetch a
page, or start a program, on the machine where the table is opened. An apostrophe before each such place marks the cell
as a text. Numbers stay numbers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Also in the full width of East Asian scripts, which spreadsheets of these languages take for the same signs.
_SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
# A byte-order mark at the beginning of a file is skipped; the others are skipped by some.
_UNSEEN = "\0\x0b\x0c\xad\u200b-\u200f\u2060\ufeff"
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_ENDS = r"(?=[;\r\n]|\Z)"
_BEGINS = f"['{_UNSEEN}]*[{_SIGNS}\t\r\n]"
_GOES_ON = f"['{_UNSEEN} ]*[{_SIGNS}]"
_MARK = "'"
_UNMARKED = re.compile(rf"\A(?!{_NUMBER}\Z)(?={_BEGINS})|(?<=[;\r\n])(?! *{_NUMBER} *{_ENDS})(?={_GOES_ON})")
_MARKED = re.compile(rf"\A{_MARK}(?={_BEGINS})|(?<=[;\r\n]){_MARK}(?={_GOES_ON})")


def escape_cell(cell: Any) -> Any:
    """The cell as it is written to a file: a text that could be a formula gets marks, anything else stays as it is. A
    text that has such a mark gets another one, and `unescape_cell` restores it."""
    return _UNMARKED.sub(_MARK, cell) if isinstance(cell, str) else cell


def unescape_cell(cell: Any) -> Any:
    """The cell that `escape_cell` was given."""
    return _MARKED.sub("", cell) if isinstance(cell, str) else cell


def escape_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose heads and texts are safe to open; columns of numbers, truth values and times stay as they are."""
    return _mapped(frame, escape_cell)


def unescape_frame(frame: pd.DataFrame) -> pd.DataFrame:
    return _mapped(frame, unescape_cell)


def _mapped(frame: pd.DataFrame, function: Any) -> pd.DataFrame:
    import pandas as pd

    columns = {}
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        kind = column.dtype
        if pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_datetime64_any_dtype(kind):
            columns[place] = column
        else:
            mapped = [function(cell) for cell in column]
            columns[place] = column if mapped == list(column) else pd.Series(mapped, index=column.index, dtype=object)
    made = pd.DataFrame(columns, index=frame.index)
    made.columns = pd.Index([function(head) for head in frame.columns], name=frame.columns.name)
    return made

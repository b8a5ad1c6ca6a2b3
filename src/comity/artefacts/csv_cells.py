"""Cells of exported CSV files that no spreadsheet takes for a formula.

A spreadsheet runs a cell that begins with =, +, - or @, and some skip a tab or a line end before it. Records and
identifiers come from others: one of them could fetch a page, or start a program, on the machine where the table is
opened. Such a text gets an apostrophe before it, which spreadsheets take as the mark of a text. Numbers stay numbers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Also in the full width of East Asian scripts, which spreadsheets of these languages take for the same signs.
_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MARK = "'"


def escape_cell(cell: Any) -> Any:
    """What stands for this cell in a file: a text that could be a formula with a mark before it, anything else as it
    is. A text that has such a mark already gets a further one, so that `unescape_cell` gives back what was there."""
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return _MARK + cell
    return cell


def unescape_cell(cell: Any) -> Any:
    """The cell that `escape_cell` was given."""
    if isinstance(cell, str) and cell.startswith(_MARK) and _FORMULA.match(cell[1:]):
        return cell[1:]
    return cell


def escape_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose heads and texts are safe to open; columns of numbers, truth values and times are as they were."""
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

"""Whether a query reads: decided from its text before a database sees it."""

from __future__ import annotations

import re

from comity.errors import DataError

_READS = ("select", "with", "values", "table", "from")
# The first word, after blanks, brackets and comments.
_FIRST = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*([A-Za-z]*)", re.S)


def check_reads(query: str, where: str) -> None:
    """One statement that begins as reading ones do.

    A second statement could end a read-only transaction and begin another, so that a semicolon stands at the end or
    nowhere, not even in a text: how texts are quoted differs between databases, and a check that gets it wrong is none.
    """
    found = _FIRST.match(query)
    if found is None or found.group(1).lower() not in _READS or ";" in query.rstrip().rstrip(";"):
        raise not_reading(where)


def not_reading(where: str) -> DataError:
    return DataError(
        f"{where}: query: expected one statement that reads (it begins with SELECT, WITH, VALUES, TABLE or FROM and "
        "has no semicolon inside), found another; nothing was run. A source only reads.",
        key="query",
    )

"""Records named on the command line: a CSV or Parquet file, a database file or a database's URL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from comity.data import Source

Table = Annotated[str | None, typer.Option(help="Read this table of a database.", show_default=False)]
Query = Annotated[
    str | None, typer.Option(help="Read what this SELECT returns; a CSV or Parquet file is its table `data`.")
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(help="File with the password of a database's URL, readable by you alone.", show_default=False),
]
Separator = Annotated[str | None, typer.Option(help="What separates the fields of a CSV file.", show_default="comma")]
Decimal = Annotated[str | None, typer.Option(help="The decimal mark of a CSV file.", show_default="point")]
Encoding = Annotated[str | None, typer.Option(help="How a CSV file is encoded.", show_default="utf-8")]


def dialect_of(separator: str | None, decimal: str | None, encoding: str | None) -> dict[str, str]:
    """What was said of a CSV file, by the keys of a source."""
    # A shell passes \t as two characters.
    named = {"separator": "\t" if separator == "\\t" else separator, "decimal": decimal, "encoding": encoding}
    return {key: value for key, value in named.items() if value is not None}


@dataclass(frozen=True)
class Reading:
    """How whatever is named as DATA is to be read."""

    table: str | None = None
    query: str | None = None
    password_file: Path | None = None
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None

    def open(self, data: str) -> Source:
        from comity.data import open_source

        sql: dict[str, Any] = {"table": self.table, "query": self.query, "password_file": self.password_file}
        csv = dialect_of(self.separator, self.decimal, self.encoding)
        named = {key: value for key, value in sql.items() if value is not None} | csv
        if "://" in data:
            return open_source({"source": "sql", "url": data, **named}, "DATA")
        if any(value is not None for value in sql.values()):
            return open_source({"source": "sql", "path": data, **named}, data)
        if csv:
            return open_source({"source": "csv", "path": data, **named}, data)
        return open_source(Path(data), data)

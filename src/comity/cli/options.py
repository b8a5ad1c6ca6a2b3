"""Options and arguments that several commands share, and the records that a command reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.untrusted.toml import BadToml, tables_of

if TYPE_CHECKING:
    from comity.data import Source

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study file, study.toml.", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key for a simulation: --set privacy.epsilon=0.5"),
]


def overrides(sets: Sequence[str] | None) -> dict[str, Any]:
    """`table.key=value` pairs; a value is read as TOML where it is TOML, and as text otherwise."""
    found: dict[str, Any] = {}
    for pair in sets or ():
        key, equals, value = pair.partition("=")
        if not equals or "." not in key:
            raise typer.BadParameter(f"--set expects TABLE.KEY=VALUE, as in privacy.epsilon=0.5; found {pair!r}.")
        found[key.strip()] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    try:
        table = tables_of(f"value = {text}")
    except BadToml:
        return text
    return table["value"] if set(table) == {"value"} else text


TableOption = Annotated[str | None, typer.Option(help="Read this table of a database.", show_default=False)]
QueryOption = Annotated[
    str | None, typer.Option(help="Read the result of this SELECT; a CSV or Parquet file is its table `data`.")
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(help="File with the password of a database's URL, readable by you alone.", show_default=False),
]
SeparatorOption = Annotated[
    str | None, typer.Option(help="What separates the fields of a CSV file.", show_default="comma")
]
DecimalOption = Annotated[str | None, typer.Option(help="The decimal mark of a CSV file.", show_default="point")]
EncodingOption = Annotated[str | None, typer.Option(help="The encoding of a CSV file.", show_default="utf-8")]


def dialect_of(separator: str | None, decimal: str | None, encoding: str | None) -> dict[str, str]:
    """The given options of a CSV file, by the keys of a source."""
    # A shell passes \t as two characters.
    named = {"separator": "\t" if separator == "\\t" else separator, "decimal": decimal, "encoding": encoding}
    return {key: value for key, value in named.items() if value is not None}


@dataclass(frozen=True)
class Reading:
    """How to read DATA: a CSV or Parquet file, a database file, or the URL of a database."""

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

"""Options, arguments and questions that several commands share, and the records that a command reads."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comity.privacy.unit import Neighbours, Unit
from comity.untrusted.text import escape_line
from comity.untrusted.toml import BadToml, read_tables

if TYPE_CHECKING:
    from comity.data import Source

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study file, study.toml.", show_default=False)]
ConsortiumFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The consortium's folder.", show_default=False)
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key for a simulation: --set privacy.epsilon=0.5"),
]
ProtectedUnit = Annotated[Unit, typer.Option(help="What is protected: a record, a person or a whole party.")]
Relation = Annotated[Neighbours, typer.Option(help="Whether neighbours replace a unit, or add and remove one.")]
RunsFolder = Annotated[Path, typer.Option(help="The folder of run folders.")]
RUNS = Path("runs")
InvitationFile = Annotated[Path, typer.Option("--invitation", help="The consortium's invitation.")]
INVITATION = Path("consortium.toml")
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress bar.")]
Yes = Annotated[bool, typer.Option("--yes", help="Answer yes to the question.")]


def make_group(about: str, *, example: str) -> typer.Typer:
    """A group of commands; without one of them it shows its help."""
    return typer.Typer(help=f"{about}\n\nExample: {example}", no_args_is_help=True, rich_markup_mode=None)


def confirm(question: str, *, yes: bool, as_json: bool) -> bool:
    """Ask at the terminal, unless --yes was given."""
    if yes:
        return True
    if as_json or not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} There is no terminal to ask at: give --yes.")
    return typer.confirm(escape_line(question))


def parse_overrides(sets: Sequence[str] | None) -> dict[str, Any]:
    """Parse `table.key=value` pairs. A value is read as TOML where it is TOML, and as text otherwise."""
    settings: dict[str, Any] = {}
    for pair in sets or ():
        key, equals, value = pair.partition("=")
        if not equals or "." not in key:
            raise typer.BadParameter(f"--set expects TABLE.KEY=VALUE, as in privacy.epsilon=0.5; found {pair!r}.")
        settings[key.strip()] = _value(value.strip())
    return settings


def parse_sweep(pair: str) -> tuple[str, list[Any]]:
    """Parse `table.key=a,b,c`: the key and its values, each read as --set reads one."""
    key, equals, listed = pair.partition("=")
    values = [one.strip() for one in listed.split(",")]
    if not equals or "." not in key or len(values) < 2 or not all(values) or len(set(values)) < len(values):
        raise typer.BadParameter(
            f"--sweep expects TABLE.KEY=A,B,... with two different values or more, as in privacy.epsilon=0.3,1,3; "
            f"found {pair!r}."
        )
    return key.strip(), [_value(one) for one in values]


def _value(text: str) -> Any:
    try:
        table = read_tables(f"value = {text}")
    except BadToml:
        return text
    return table["value"] if set(table) == {"value"} else text


@dataclass(frozen=True)
class Reading:
    """How to read DATA: a CSV or Parquet file, a database file, or the URL of a database. Each field is an option."""

    table: Annotated[str | None, typer.Option(help="Read this table of a database.", show_default=False)] = None
    query: Annotated[
        str | None, typer.Option(help="Read the result of this SELECT; a CSV or Parquet file is its table `data`.")
    ] = None
    password_file: Annotated[
        Path | None,
        typer.Option(help="File with the password of a database's URL, readable by you alone.", show_default=False),
    ] = None
    separator: Annotated[
        str | None, typer.Option(help="What separates the fields of a CSV file.", show_default="comma")
    ] = None
    decimal: Annotated[str | None, typer.Option(help="The decimal mark of a CSV file.", show_default="point")] = None
    encoding: Annotated[str | None, typer.Option(help="The encoding of a CSV file.", show_default="utf-8")] = None

    def source_table(self, data: str) -> dict[str, str]:
        """DATA as a site file has it under [data.NAME]."""
        from comity.data.tables.sources import kind_by_suffix

        password_file = None if self.password_file is None else str(self.password_file)
        sql = _given(table=self.table, query=self.query, password_file=password_file)
        # A shell passes \t as two characters.
        separator = "\t" if self.separator == "\\t" else self.separator
        csv = _given(separator=separator, decimal=self.decimal, encoding=self.encoding)
        if "://" in data:
            return {"source": "sql", "url": data, **sql, **csv}
        if sql:
            return {"source": "sql", "path": data, **sql, **csv}
        if csv:
            return {"source": "csv", "path": data, **csv}
        return {"source": kind_by_suffix(Path(data)) or "parquet", "path": data}

    def open(self, data: str) -> Source:
        from comity.data import open_source

        if self == BY_SUFFIX and "://" not in data:
            return open_source(Path(data), data)
        # A URL may contain a password, so messages call it DATA.
        return open_source(self.source_table(data), "DATA" if "://" in data else data)


BY_SUFFIX = Reading()
"""No option given: the suffix of the file says how to read it."""


def _given(**options: str | None) -> dict[str, str]:
    return {name: value for name, value in options.items() if value is not None}


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `Reading`, which it receives as its argument `reading`."""
    names = [field.name for field in fields(Reading)]

    @wraps(command)
    def with_options(**given: Any) -> None:
        reading = Reading(**{name: given.pop(name) for name in names})
        command(**given, reading=reading)

    options = inspect.signature(Reading, eval_str=True).parameters.values()
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command, eval_str=True).parameters.values():
        parameters += options if one.name == "reading" else [one]
    # Typer makes a command's options from its signature and annotations.
    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    with_options.__dict__["__signature__"] = inspect.Signature(keywords)
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options

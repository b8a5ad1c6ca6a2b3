"""Reference pages from the code that they describe: keys of study, schema and site files, commands, Python.

Sphinx writes docs/reference before it builds (`docs/conf.py`), so these pages can't be out of date, and they are not
committed. `python -m tools.reference` writes tables of keys into pages that are committed (`KEYS`); a test compares.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from datetime import date
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer.main

import comity
from comity.cli.app import app
from comity.cli.key_meanings import MEANINGS
from comity.data.schemas.columns import Bounded, Classes
from comity.data.schemas.schema import KINDS
from comity.methods import PROTOCOLS, method_of
from comity.methods.method import Method, Only
from comity.methods.tables import Table
from comity.site.site_file import SiteTables
from comity.study.tables import (
    CoordinatorTable,
    EvaluationTable,
    PartyTable,
    PredictionTable,
    PrivacyTable,
    SimulationTable,
    StudyTable,
)

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- Written by python -m tools.reference. -->", "<!-- End of what it writes. -->"

STUDY_TABLES = (
    ("[study]", StudyTable),
    ("[privacy]", PrivacyTable),
    ("[parties.NAME]", PartyTable),
    ("[coordinator]", CoordinatorTable),
    ("[evaluation]", EvaluationTable),
    ("[prediction]", PredictionTable),
    ("[simulation]", SimulationTable),
)
# Keys of a schema's tables. Their classes are dataclasses, whose docstrings describe them in sentences.
COLUMN_KEYS = {
    "low": "the lowest value; lower ones are clipped",
    "high": "the highest value; higher ones are clipped",
    "values": "the values, in order where the kind is ordinal",
    "classes": "the classes to predict",
    "other": "values that are not listed are one further category; without it they are an error",
    "missing": "what happens to a record without this value",
    "fill": "the value that stands for a missing one, where missing is fill",
    "edges": "where public bins begin",
    "bins": "how many public bins, instead of edges",
    "integer": "whole numbers: values drawn from a bin are whole too",
    "scale": "log: bins have equal lengths of sign(x) log(1 + |x|)",
    "step": "a date counts whole steps since low",
    "format": "how a text spells a day, as in strptime; ISO 8601 if left out",
    "follows": "the column that determines this one",
    "draft": "true: taken from records, so only simulations run; replace and delete it",
}


def write_reference(folder: Path) -> None:
    """Write every page into a folder."""
    folder.mkdir(exist_ok=True)
    pages = {
        "commands": _commands_page(),
        "python": _python_page(),
    }
    for name, lines in pages.items():
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def with_keys(name: str, page: str) -> str:
    """A page of `KEYS` with its tables made anew."""
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    return f"{before}{BEGIN}\n\n{chr(10).join(KEYS[name]())}\n{END}{after}"


def _study_keys() -> Iterator[str]:
    for title, table in STUDY_TABLES:
        yield from (f"### `{title}`", "", *_described(table), "")
    for name in PROTOCOLS:
        method = method_of(name)
        yield from (f"### `[{name}]`", "", (method.__doc__ or "").strip().split("\n")[0], "")
        yield from _table(("key", "value", "default", "meaning"), _rows_of(method))
        yield ""


def _schema_keys() -> Iterator[str]:
    for kind, column in KINDS.items():
        yield from (f'### kind = "{kind}"', "", *_column_keys(column), "")
    for title, target in (("of classes", Classes), ("of numbers", Bounded)):
        yield from (f"### `[target]` {title}", "")
        yield from _column_keys(target, names={"values": "classes"}, named=True)
        yield ""


def _site_keys() -> Iterator[str]:
    yield from ("## Top level", "", *_described(SiteTables), "")
    for key, field in _fields(SiteTables):
        inner = next((one for one in (field.annotation, *get_args(field.annotation)) if _is_table(one)), None)
        if inner is not None:
            yield from (f"## `[{key}]`", "", *_described(inner), "")


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Table)


def _described(table: Any) -> Iterator[str]:
    meanings = MEANINGS.get(table.__name__, {})
    rows = (
        (f"`{key}`", _value(field.annotation), _default(field), field.description or meanings.get(key, ""))
        for key, field in _fields(table)
    )
    yield from _table(("key", "value", "default", "meaning"), rows)


def _column_keys(column: Any, names: dict[str, str] | None = None, *, named: bool = False) -> Iterator[str]:
    hints = get_type_hints(column, include_extras=True)
    rows = [] if not named else [("`name`", "text", "required", "the column to predict")]
    for field in fields(column):
        if field.name != "name":
            key = (names or {}).get(field.name, field.name)
            default = "required" if field.default is MISSING else _toml(field.default)
            rows.append((f"`{key}`", _value(hints[field.name]), default, COLUMN_KEYS[key]))
    yield from _table(("key", "value", "default", "meaning"), rows)


def _rows_of(method: type[Method]) -> Iterator[Sequence[str]]:
    for key, field in _fields(method):
        only = next((one for one in field.metadata if isinstance(one, Only)), None)
        needs = [] if only is None else [_need(k, v) for k, v in only.needs.items()]
        meaning = re.sub(r"^published(?: only)?: ", "", field.description or "")
        default = _default(field)
        if key in method.paper and only is not None and only.needs.get("variant") == ("published",):
            default = _toml(method.paper[key].value)
        elif key in method.paper and _toml(method.paper[key].value) != default:
            default = f"{default}; published: {_toml(method.paper[key].value)}"
        yield (
            f"`{key}`",
            _value(field.annotation),
            default,
            meaning + (f". *Only if {', '.join(needs)}.*" if needs else ""),
        )


def _need(key: str, values: Sequence[str]) -> str:
    if key == "held":
        return "parties declare columns" if "columns" in values else "parties hold whole records"
    return f"{key} = {' or '.join(values)}"


def _fields(table: Any) -> Iterator[tuple[str, Any]]:
    for key, field in table.model_fields.items():
        yield field.alias or key, field


_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", date: "date", Any: "source"}


def _value(kind: Any) -> str:
    """What a TOML file may have there, in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{one.value}`" for one in kind)
    if origin is Annotated:
        return _value(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_value(one) for one in arguments if one is not type(None)))
    if origin in (tuple, list):
        return f"list of {_value(arguments[0])}" if arguments else "list"
    if origin is dict or kind is dict or not isinstance(kind, type):
        return _WORDS.get(kind, "table")
    return _WORDS.get(kind, "table")


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    return _toml(field.get_default(call_default_factory=True))


def _toml(value: Any) -> str:
    if value is None or value == {} or value == ():
        return "none"
    value = getattr(value, "value", value)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | list):
        return "`[" + ", ".join(f'"{one}"' if isinstance(one, str) else str(one) for one in value) + "]`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def _commands_page() -> Iterator[str]:
    yield from ("# Commands", "", "What `comity COMMAND --help` prints. Every command that prints has `--json`.", "")
    yield from ("## Exit codes", "")
    codes = ("done", "a defect of ours", "wrong usage", "bad input", "refused", "stopped, can be resumed")
    yield from _table(("code", "meaning"), ((str(code), meaning) for code, meaning in enumerate(codes)))
    yield ""
    yield from _commands(typer.main.get_command(app), "comity")


def _commands(command: Any, path: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, one in command.commands.items():
            yield from _commands(one, f"{path} {name}")
        return
    yield from (f"## `{path}`", "", *_plain(command.help or ""), "")
    rows = [(_invocation(one), getattr(one, "help", "") or "") for one in command.params]
    if rows:
        yield from _table(("argument or option", "meaning"), rows)
        yield ""


def _invocation(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    return ", ".join(f"`{name}`" for name in parameter.opts)


def _plain(text: str) -> Iterator[str]:
    for line in text.strip().split("\n"):
        yield re.sub(r"^Example: (.*)$", r"Example: `\1`", line.strip())


def _python_page() -> Iterator[str]:
    yield from ("# Python", "", "Everything below is in `comity`, in alphabetical order.", "")
    for name in sorted(one for one in comity.__all__ if not one.startswith("_")):
        found = getattr(comity, name)
        yield from (f"## `{name}`", "", "```py", _signature(name, found), "```", "", *_docstring(found), "")
        if isinstance(found, type):
            for member, value in vars(found).items():
                if not member.startswith("_") and inspect.getdoc(value) and _is_documented(value):
                    shown = f"{name}.{member}" if isinstance(value, property) else _signature(f"{name}.{member}", value)
                    yield from (f"### `{name}.{member}`", "", "```py", shown, "```", "", *_docstring(value), "")


def _is_documented(value: Any) -> bool:
    return isinstance(value, property | classmethod | staticmethod | cached_property) or inspect.isfunction(value)


def _signature(name: str, found: Any) -> str:
    if isinstance(found, cached_property):
        return name
    if isinstance(found, classmethod | staticmethod):
        found = found.__func__
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return name
    kept = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    return f"{name}{signature.replace(parameters=kept)}".replace("comity.", "")


_SECTION = re.compile(r"^-{3,}$")


def _docstring(found: Any) -> Iterator[str]:
    """A docstring as Markdown: indented examples become blocks of code, underlined words headings."""
    lines = (inspect.getdoc(found) or "").split("\n")
    coded = False
    for place, line in enumerate(lines):
        following = lines[place + 1] if place + 1 < len(lines) else ""
        if _SECTION.match(line):
            continue
        indented = line.startswith("    ")
        starts = indented and not coded and (place == 0 or not lines[place - 1])
        if starts:
            coded = True
            yield "```py"
        if coded and line and not indented:
            coded = False
            yield from ("```", "")
        if coded:
            yield line[4:]
        elif _SECTION.match(following):
            yield f"**{line}**"
            yield ""
        elif re.match(r"^\w+ : ", line):
            yield from ("", f"`{line.partition(' : ')[0]}`: {line.partition(' : ')[2]}.")
        else:
            yield line.strip()
    if coded:
        yield "```"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"


KEYS = {"study-file.md": _study_keys, "schema.md": _schema_keys, "site-file.md": _site_keys}
"""Pages with tables of keys between `BEGIN` and `END`, and what makes the tables."""


if __name__ == "__main__":
    for name in KEYS:
        (DOCS / name).write_text(with_keys(name, (DOCS / name).read_text("utf-8")), encoding="utf-8")

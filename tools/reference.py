"""Reference pages from the code that they describe: options of every method, keys of the site file, commands, Python.

Sphinx writes them before it builds (`docs/conf.py`), so they can't be out of date, and they are not committed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_origin

import typer.main

import comity
from comity.cli.app import app
from comity.methods import PROTOCOLS, method_of
from comity.methods.method import Method, Only
from comity.site.site_file import PolicyTable
from comity.study.tables import EvaluationTable, PrivacyTable, SimulationTable


def write_reference(folder: Path) -> None:
    """Write every page into a folder."""
    folder.mkdir(exist_ok=True)
    pages = {
        "options": _options_page(),
        "commands": _commands_page(),
        "python": _python_page(),
    }
    for name, lines in pages.items():
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _options_page() -> Iterator[str]:
    yield "# Keys of study and site files"
    yield ""
    yield "Every key with its type and default, from the classes that validate them."
    yield "[The study file](../study-file.md) explains how keys work together; [an owner's site](../site.md)"
    yield "explains the site file."
    yield ""
    for title, table in (
        ("[privacy]", PrivacyTable),
        ("[evaluation]", EvaluationTable),
        ("[simulation]", SimulationTable),
        ("[policy] of a site file", PolicyTable),
    ):
        yield from (f"## `{title}`" if title.endswith("]") else f"## {title}", "")
        yield from _table(("key", "type", "default"), ((f"`{k}`", _type(f), _default(f)) for k, f in _fields(table)))
        yield ""
    for name in PROTOCOLS:
        method = method_of(name)
        yield from (f"## `[{name}]`", "", (method.__doc__ or "").strip().split("\n")[0], "")
        yield from _table(("key", "type", "default", "as published", "meaning"), _rows_of(method))
        yield ""


def _rows_of(method: type[Method]) -> Iterator[Sequence[str]]:
    for key, field in _fields(method):
        only = next((one for one in field.metadata if isinstance(one, Only)), None)
        needs = "" if only is None else "; ".join(f"{k} = {' or '.join(v)}" for k, v in only.needs.items())
        meaning = field.description or ""
        printed = f"`{method.paper[key].value}`" if key in method.paper else ""
        yield (
            f"`{key}`",
            _type(field),
            _default(field),
            printed,
            f"{meaning} (only where {needs})" if needs else meaning,
        )


def _fields(table: Any) -> Iterator[tuple[str, Any]]:
    for key, field in table.model_fields.items():
        yield field.alias or key, field


def _type(field: Any) -> str:
    def shown(kind: Any) -> str:
        if get_args(kind) and get_origin(kind) is not dict:
            return " or ".join(dict.fromkeys(shown(one) for one in get_args(kind) if one is not Ellipsis))
        if isinstance(kind, str):
            return f'"{kind}"'
        return {"NoneType": "left out"}.get(getattr(kind, "__name__", ""), getattr(kind, "__name__", str(kind)))

    return shown(field.annotation)


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "none" if value is None else f"`{getattr(value, 'value', value)}`"


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

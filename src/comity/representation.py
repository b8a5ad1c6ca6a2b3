"""A `repr` of a few lines for values that hold arrays, tables or many parts: what they hold, not the numbers.

A notebook shows the value of its last line. The numbers are in the attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from datetime import date
from decimal import Decimal
from enum import Enum
from html import escape
from numbers import Number
from pathlib import Path
from typing import Any

_LONGEST = 60
_NAMES = 5
_ROWS = 10


def short_repr(value: Any) -> str:
    """`__repr__` of a dataclass: its fields, each in a few words, without those that are None or empty."""
    shown = [(field.name, getattr(value, field.name)) for field in fields(value) if field.repr]
    inside = ", ".join(f"{name}={in_brief(part)}" for name, part in shown if part is not None and not _is_empty(part))
    return f"{type(value).__name__}({inside})"


def in_brief(value: Any) -> str:
    """One value in a few words."""
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…")
    if value is None or isinstance(value, bool | Number | Decimal | Enum | date | Path):
        return _cut(repr(value))
    if isinstance(value, type):
        return value.__name__
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        if getattr(value, "ndim", 0) == 0:
            return _cut(repr(value))
        kind = f"{value.dtype} array" if hasattr(value, "dtype") else "table"
        return f"<{kind} of shape {shape}>"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, Mapping):
        return f"<{len(value)}: {_few(list(value))}>" if value else "{}"
    if isinstance(value, Sequence | Set):
        return _many(value)
    return f"<{type(value).__name__}>"


class NamedValues(dict[str, Any]):
    """Values by their names, as a dictionary whose `repr` says what they are."""

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name!r}: {in_brief(value)}" for name, value in self.items()) + "}"


def _many(value: Sequence[Any] | Set[Any]) -> str:
    if not len(value):
        return "()"
    if len(value) <= _NAMES and all(isinstance(one, str | Number) for one in value):
        return _cut(repr(value))
    kinds = {type(one).__name__ for one in value}
    return f"<{len(value)} {kinds.pop() if len(kinds) == 1 else 'values'}>"


def _few(names: list[Any]) -> str:
    return _cut(", ".join(map(_shown, names[:_NAMES])) + (", …" if len(names) > _NAMES else ""))


def _shown(name: Any) -> str:
    """A name without quotes, unless it has control characters."""
    return str(name) if str(name).isprintable() else repr(name)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _is_empty(value: Any) -> bool:
    return isinstance(value, str | bytes | Mapping | Sequence | Set) and not len(value)


def html_fields(value: Any) -> str:
    """`_repr_html_` of a dataclass: what `short_repr` says, as a table."""
    shown = [(field.name, getattr(value, field.name)) for field in fields(value) if field.repr]
    rows = [(name, in_brief(part)) for name, part in shown if part is not None and not _is_empty(part)]
    return html_table(type(value).__name__, ("", ""), rows)


def html_frame(caption: str, frame: Any) -> str:
    """The first rows of a DataFrame for `_repr_html_`; every part is escaped."""
    rows = [[in_brief(cell) if isinstance(cell, str) else cell for cell in row] for row in frame.head(_ROWS).values]
    more = [f"{len(frame) - _ROWS:,} more rows"] if len(frame) > _ROWS else []
    return html_table(caption, [str(head) for head in frame.columns], rows, more)


def html_table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], lines: Sequence[str] = ()) -> str:
    """A table for `_repr_html_`, with lines of text below it; every part is escaped."""
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    below = "".join(f"<p>{escape(line)}</p>" for line in lines)
    table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f"<div><p><strong>{escape(caption)}</strong></p><table>{table}</table>{below}</div>"

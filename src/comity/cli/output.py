"""What commands print: text for people, or one JSON document.

All text leaves through here or through `failure`. Names, keys and sentences in it may come from somebody else, and are
escaped (`comity.untrusted.text`): a list of lines stays as many lines as it has entries.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import typer

from comity.untrusted.text import escaped, json_text, one_line

Text = str | Sequence[str]
"""A text that may have several lines, or lines each of which is one."""


def show(text: Text, document: Any, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json_text(document, indent=2, default=_plain))
    else:
        say(text)


def say(text: Text, *, err: bool = False) -> None:
    """Text for people, without a document."""
    typer.echo(escaped(text) if isinstance(text, str) else "\n".join(map(one_line, text)), err=err)


def is_plain() -> bool:
    """Whether text goes out without colour or weight, as the reader's environment asks."""
    return bool(os.environ.get("NO_COLOR"))


def warn(text: str) -> None:
    """To stderr, bold on a terminal. Even `bold=False` would be an escape code."""
    typer.echo(escaped(text) if is_plain() else typer.style(escaped(text), bold=True), err=True)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "  ") -> str:
    """Columns under their heads, without lines, so that it reads the same in a pipe."""
    lines = [tuple(map(one_line, line)) for line in (heads, *rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    return "\n".join(
        indent + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if hasattr(value, "item"):
        return value.item()
    return str(value)

"""What commands print: text for people, or one JSON document."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import typer


def show(text: str, document: Any, *, as_json: bool) -> None:
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False, default=_plain) if as_json else text)


def is_plain() -> bool:
    """Whether text goes out without colour or weight, as the reader's environment asks."""
    return bool(os.environ.get("NO_COLOR"))


def warn(text: str) -> None:
    """To stderr, bold on a terminal. Even `bold=False` would be an escape code."""
    typer.echo(text if is_plain() else typer.style(text, bold=True), err=True)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "  ") -> str:
    """Columns under their heads, without lines, so that it reads the same in a pipe."""
    lines = [tuple(heads), *map(tuple, rows)]
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

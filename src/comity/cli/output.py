"""What commands print: text for people, one JSON document, or a progress bar.

All text leaves through here or through `failure`. It may quote what others wrote, so it is escaped
(`comity.untrusted.text`): a list of lines stays as many lines as it has entries.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import typer

from comity.untrusted.text import encode_json, escape_line, escape_lines

_MIN_WIDTH = 40
"""Characters of a wrapped sentence, however narrow the terminal is."""
Text = str | Sequence[str]
"""One text of any number of lines, or a list of single lines."""


def show(text: Text, document: Any, *, as_json: bool) -> None:
    if as_json:
        typer.echo(encode_json(document, indent=2, default=_plain))
    else:
        say(text)


def say(text: Text, *, err: bool = False) -> None:
    """Print text for people."""
    typer.echo(escape_lines(text) if isinstance(text, str) else "\n".join(map(escape_line, text)), err=err)


def is_plain() -> bool:
    """Whether NO_COLOR asks for text without colour and weight."""
    return bool(os.environ.get("NO_COLOR"))


def warn(text: str) -> None:
    """Print to stderr, bold on a terminal."""
    typer.echo(escape_lines(text) if is_plain() else typer.style(escape_lines(text), bold=True), err=True)


def fields(rows: Sequence[tuple[str, str]], *, label: int = 10) -> list[str]:
    """A line for each word with its sentence. On a terminal, sentences wrap at words and stay in their column; in a
    pipe each is one line."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    before = 3 + label
    lines = []
    for word, sentence in rows:
        start, sentence = f"  {word:<{label}} ", escape_line(sentence)
        room = max(_MIN_WIDTH, width - before)
        parts = textwrap.wrap(sentence, room, break_long_words=False, break_on_hyphens=False) if width else [sentence]
        lines += [(start if place == 0 else " " * before) + part for place, part in enumerate(parts or [""])]
    return lines


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "  ") -> str:
    """Columns under their heads, without rules, which reads the same in a pipe."""
    lines = [tuple(map(escape_line, line)) for line in (heads, *rows)]
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


_COUNTED = re.compile(r"^(?P<what>.*?)\s+(?P<done>\d+)/(?P<all>\d+)$")


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[Callable[[str], None] | None]:
    """Yields a function that reports progress: "step 3/10" moves the bar, other words are shown beside it.

    Yields None where stderr is no terminal, or with `quiet`.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from comity.compiled import report_compiling

    # `no_color` would keep bold text; no colour system drops it, too.
    console = Console(stderr=True, color_system=None if is_plain() else "auto")
    words = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), words, BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    title = escape_line(title)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)

        def report(words: str) -> None:
            words = escape_line(words)
            counted = _COUNTED.match(words)
            if counted is None:
                bar.update(task, description=f"{title} · {words}", total=None)
            else:
                what, done, whole = counted["what"], int(counted["done"]), int(counted["all"])
                bar.update(task, description=f"{title} · {what}", completed=done, total=whole)

        with report_compiling(lambda: report("compiling, once on this machine")):
            yield report

"""A progress bar on a terminal; nothing in a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_COUNTED = re.compile(r"^(?P<what>.*?)\s+(?P<done>\d+)/(?P<all>\d+)$")


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[Callable[[str], None] | None]:
    """What a run reports to: "step 3/10" moves the bar, other words are shown beside it. None where nobody looks."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from comity.cli.output import is_plain
    from comity.untrusted.text import one_line

    # Without a colour system there is no weight either, which `no_color` would leave.
    console = Console(stderr=True, color_system=None if is_plain() else "auto")
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    title = one_line(title)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)

        def report(words: str) -> None:
            words = one_line(words)
            counted = _COUNTED.match(words)
            if counted is None:
                bar.update(task, description=f"{title} · {words}", total=None)
            else:
                what, done, whole = counted["what"], int(counted["done"]), int(counted["all"])
                bar.update(task, description=f"{title} · {what}", completed=done, total=whole)

        yield report

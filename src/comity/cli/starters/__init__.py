"""Studies that run as they are, one file per method: what `comity new` writes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

NAMES = ("softlabel", "averaging", "vertical", "synthetic", "summary")


def starter(protocol: str) -> Callable[[Path], None]:
    """Writes a study for a method into an empty folder."""
    write: Callable[[Path], None] = import_module(f"comity.cli.starters.{protocol}").write
    return write

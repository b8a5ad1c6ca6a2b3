"""An experiment by name: what it computes, and where its function is."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any


@dataclass(frozen=True)
class Experiment:
    """Returns rows of figures: `case`, `ours` and what they are compared with.

    `home`     "package.module:function", imported when the experiment runs.
    `options`  which of `quick`, `out` and `rows` the function takes.
    """

    about: str
    home: str
    options: tuple[str, ...] = ()

    def run(self, **options: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = resolve_name(self.home)(**options)
        return rows

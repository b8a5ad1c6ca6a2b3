"""Tables and figures of papers by name, one file each. A module is imported when it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ["REPRODUCTIONS", "Reproduction"]


@dataclass(frozen=True)
class Reproduction:
    """`run(quick=..., out=...)` gives the rows; `out` is a folder for plots, or None."""

    name: str
    about: str
    run: Callable[..., list[dict[str, Any]]]


def _redo(module: str) -> Callable[..., list[dict[str, Any]]]:
    def run(**options: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = import_module(f"comity.reproduce.{module}").run(**options)
        return rows

    return run


REPRODUCTIONS = {
    reproduction.name: reproduction
    for reproduction in (
        Reproduction(
            "softlabel-har",
            "activity recognition of Hamm, Cao and Belkin (2016): accuracy against epsilon",
            _redo("softlabel_har"),
        ),
    )
}

"""What is known of a method before it is used: names of modules, none of which is imported until somebody needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

Home = str
"""Where something is found: "package.module:name"."""


def found(home: Home) -> Any:
    module, _, name = home.partition(":")
    return getattr(import_module(module), name)


@dataclass(frozen=True)
class Rows:
    """What makes rows of figures, in a word: a table or figure of a paper done again, or a measurement beside an
    anchor."""

    about: str
    home: Home

    def run(self, **options: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = found(self.home)(**options)
        return rows


@dataclass(frozen=True)
class Reproduction(Rows):
    """Takes `quick`, and `out`, a folder for plots or None."""


@dataclass(frozen=True)
class Measurement(Rows):
    """`plots` says that it takes a folder `out` for a plot, `options` what else of the command it takes."""

    plots: bool = False
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A method, for everything that lists methods.

    `parameters`     the model of its table in a study.
    `starter`        writes a study that runs as it is into an empty folder: `comity new`.
    `demo`           `demonstrate` of `comity demo`.
    `estimators`     its faces for scikit-learn, by their names in `comity.estimators`.
    `artefacts`      kinds of what it presents, by the name that a saved folder gives.
    `comparison`     `rows` of `comity reproduce generalisation`: its accuracy on public tables.
    `reproductions`  by the name that `comity reproduce` takes; `benches` by that of `comity bench`.
    """

    parameters: Home
    starter: Home
    demo: Home | None = None
    estimators: Mapping[str, Home] = field(default_factory=dict)
    comparison: Home | None = None
    artefacts: Mapping[str, Home] = field(default_factory=dict)
    reproductions: Mapping[str, Reproduction] = field(default_factory=dict)
    benches: Mapping[str, Measurement] = field(default_factory=dict)

"""What an artefact or an assessment says on a page, as plain values: the page draws them, `result.json` stores them.

A plot is described by its numbers and words. Another program can draw a page again from a folder, in another style.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from comity.representation import short_repr

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Bar:
    """`spread` is a standard deviation; `ours` marks the result among what it is compared with."""

    __repr__ = short_repr

    label: str
    value: float
    spread: float = 0.0
    ours: bool = False


@dataclass(frozen=True)
class Bars:
    """Quantities side by side; `axis` says what they measure."""

    __repr__ = short_repr

    about: str
    axis: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Dot:
    """`deviation` is the standard deviation of the value itself, where it is known."""

    __repr__ = short_repr

    label: str
    value: float
    deviation: float | None = None


@dataclass(frozen=True)
class Dots:
    """Signed quantities around zero; `deviation` is that of the noise in each, where it is known."""

    __repr__ = short_repr

    about: str
    axis: str
    dots: tuple[Dot, ...]
    deviation: float | None = None


@dataclass(frozen=True)
class Curve:
    """Points of one line; `spread` is a standard deviation around each, or empty."""

    __repr__ = short_repr

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()


@dataclass(frozen=True)
class Curves:
    """Lines over one axis, with `levels` for what does not depend on it."""

    __repr__ = short_repr

    about: str
    across: str
    up: str
    curves: tuple[Curve, ...]
    levels: tuple[Dot, ...] = ()
    logarithmic: bool = False


@dataclass(frozen=True)
class Panel:
    """Shares of one column's cells, by label, of two tables."""

    __repr__ = short_repr

    label: str
    cells: tuple[str, ...]
    first: tuple[float, ...]
    second: tuple[float, ...]


@dataclass(frozen=True)
class Panels:
    """Two tables side by side, column by column; `named` says which is which."""

    __repr__ = short_repr

    about: str
    named: tuple[str, str]
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Square:
    """A matrix of numbers between −1 and 1, with as many rows as columns."""

    __repr__ = short_repr

    label: str
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Matrices:
    """Matrices over the same names, side by side."""

    __repr__ = short_repr

    about: str
    names: tuple[str, ...]
    squares: tuple[Square, ...]


@dataclass(frozen=True)
class Pictures:
    """Small pictures, row by row of each, every number between 0 (white) and 1 (black)."""

    __repr__ = short_repr

    about: str
    tiles: tuple[tuple[tuple[float, ...], ...], ...]


@dataclass(frozen=True)
class Grid:
    """A table: a row has a cell for each head."""

    __repr__ = short_repr

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


Plot = Bars | Dots | Curves | Panels | Matrices | Pictures


@dataclass(frozen=True)
class Section:
    """One part of a page. Its first plot is beside the sentence that says what was released."""

    __repr__ = short_repr

    heading: str
    sentences: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    tables: tuple[Grid, ...] = ()


_PLOTS: Mapping[str, type] = {
    "bars": Bars,
    "dots": Dots,
    "curves": Curves,
    "panels": Panels,
    "matrices": Matrices,
    "pictures": Pictures,
}
_WITHIN: Mapping[str, type] = {
    "bars": Bar,
    "dots": Dot,
    "curves": Curve,
    "levels": Dot,
    "panels": Panel,
    "squares": Square,
}


def section_page(section: Section) -> dict[str, Any]:
    """As JSON can hold it."""
    names = {kind: name for name, kind in _PLOTS.items()}
    page = asdict(section)
    page["plots"] = [{"kind": names[type(plot)], **asdict(plot)} for plot in section.plots]
    return page


def read_section(page: Mapping[str, Any]) -> Section:
    """What `section_page` wrote; KeyError, TypeError or ValueError for anything else."""
    return Section(
        heading=_text(page["heading"]),
        sentences=tuple(map(_text, page["sentences"])),
        plots=tuple(_plot(plot) for plot in page["plots"]),
        tables=tuple(
            Grid(tuple(map(_text, one["heads"])), tuple(map(tuple, one["rows"])), _text(one["note"]))
            for one in page["tables"]
        ),
    )


def _plot(page: Mapping[str, Any]) -> Plot:
    kind = _PLOTS[page["kind"]]
    values: dict[str, Any] = {}
    for field in fields(kind):
        value = page[field.name]
        if field.name in _WITHIN:
            value = tuple(_part(_WITHIN[field.name], one) for one in value)
        elif field.name == "tiles":
            value = tuple(tuple(tuple(map(float, line)) for line in tile) for tile in value)
        elif isinstance(value, list):
            value = tuple(map(_text, value))
        values[field.name] = value
    made: Plot = kind(**values)
    return made


def _part(kind: type, page: Mapping[str, Any]) -> Any:
    return kind(**{key: _listed(key, value) if isinstance(value, list) else value for key, value in page.items()})


def _listed(key: str, value: list[Any]) -> tuple[Any, ...]:
    if key == "cells":
        return tuple(map(_text, value))
    if key == "values":
        return tuple(tuple(map(float, row)) for row in value)
    return tuple(map(float, value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, found {value!r}")
    return value

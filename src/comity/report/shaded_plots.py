"""Matrices and small pictures as SVG: squares whose shade shows a number."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from comity.artefacts.section import Matrices, Pictures, Square
from comity.report.plots import FONT, INK, SIZE, list_values, text_width
from comity.untrusted.text import escape_line

_SHORT = 14
"""Characters of a label."""
_MAX_WITH_FIGURES = 16
"""Columns of a matrix that still has its figures written in."""
_DARKEST = 1.4
"""The magnitude that would be black: figures stay readable on the strongest value, 1."""
_LIGHT_INK_FROM = 0.65
_SIDE, _GAP = 250.0, 22.0
_FIGURE_SIZE, _LABEL_SIZE = 7.0, 8.0
_ACROSS = 12
"""Pictures in a row."""
_PIXEL = 4.0


def draw_matrices(plot: Matrices) -> str:
    """Matrices side by side, dark for strong values, with the figures written in: the shade does not show the sign."""
    names = [_short(name) for name in plot.names]
    left = max((text_width(name) for name in names), default=0.0) * _LABEL_SIZE / SIZE + 8
    # Names below are turned by 60 degrees.
    top, below = 16.0, left * 0.87 + 10
    cell = _SIDE / max(1, len(names))
    parts = [_label(left - 4, top + (row + 0.5) * cell + 2.5, name) for row, name in enumerate(names)]
    for place, square in enumerate(plot.squares):
        start = left + place * (_SIDE + _GAP)
        title = f'<text x="{start:.2f}" y="{top - 5:.2f}" font-weight="bold">{escape(escape_line(square.label))}</text>'
        parts += [title, *_cells(square, start, top, cell, figures=len(names) <= _MAX_WITH_FIGURES)]
        parts += [
            _label(start + (column + 0.5) * cell + 2, top + _SIDE + 8, name, turn=-60)
            for column, name in enumerate(names)
        ]
    described = [
        (f"{square.label} {one} and {other}", square.values[i][j])
        for square in plot.squares
        for i, one in enumerate(plot.names)
        for j, other in enumerate(plot.names)
        if i < j
    ]
    width = left + len(plot.squares) * (_SIDE + _GAP)
    return _svg(parts, width, top + _SIDE + below, f"{plot.about}: {list_values(described)}")


def _cells(square: Square, left: float, top: float, cell: float, *, figures: bool) -> list[str]:
    parts = []
    for row, values in enumerate(square.values):
        for column, value in enumerate(values):
            x, y = left + column * cell, top + row * cell
            parts.append(_rectangle(x, y, cell, cell, abs(value) / _DARKEST))
            if figures:
                ink = "white" if abs(value) > _LIGHT_INK_FROM else INK
                parts.append(
                    f'<text x="{x + cell / 2:.2f}" y="{y + cell / 2 + 2:.2f}" text-anchor="middle" '
                    f'font-size="{_FIGURE_SIZE}" fill="{ink}">{value:.1f}</text>'
                )
    edge = f'<rect x="{left:.2f}" y="{top:.2f}" width="{_SIDE:.2f}" height="{_SIDE:.2f}" fill="none" stroke="{INK}"/>'
    return [*parts, edge]


def draw_pictures(plot: Pictures) -> str:
    """Pictures in rows of `_ACROSS`, one number apart."""
    high, wide = len(plot.tiles[0]), len(plot.tiles[0][0])
    across = min(_ACROSS, len(plot.tiles))
    down = -(-len(plot.tiles) // across)
    parts = [
        _rectangle(
            ((place % across) * (wide + 1) + column) * _PIXEL,
            ((place // across) * (high + 1) + row) * _PIXEL,
            _PIXEL,
            _PIXEL,
            value,
        )
        for place, tile in enumerate(plot.tiles)
        for row, line in enumerate(tile)
        for column, value in enumerate(line)
        if value > 0
    ]
    width, height = across * (wide + 1) * _PIXEL, down * (high + 1) * _PIXEL
    return _svg(parts, width, height, f"{plot.about}: {len(plot.tiles)} pictures")


def _rectangle(x: float, y: float, width: float, height: float, shade: float) -> str:
    """White at shade 0, black at 1."""
    grey = round(255 * (1 - min(1.0, max(0.0, shade))))
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
        f'fill="#{grey:02x}{grey:02x}{grey:02x}" shape-rendering="crispEdges"/>'
    )


def _label(x: float, y: float, words: str, *, turn: int = 0) -> str:
    turned = f' transform="rotate({turn} {x:.2f} {y:.2f})"' if turn else ""
    return (
        f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="end" font-size="{_LABEL_SIZE}"{turned}>'
        f"{escape(escape_line(words))}</text>"
    )


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def _svg(parts: Iterable[str], width: float, height: float, description: str) -> str:
    return (
        f'<svg role="img" aria-label="{escape(escape_line(description))}" viewBox="0 0 {width:.0f} {height:.0f}">'
        f'<g font-family="{FONT}" font-size="{SIZE}" fill="{INK}">{"".join(parts)}</g></svg>'
    )

"""Two drawings as SVG: packages by layer with their imports, and the path of a run through them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from tools.picture.packages import Architecture

_INK, _PALE, _LINE, _DARK = "#222222", "#e9edf0", "#9aa5ad", "#17415f"
_STYLE = "font: 11px system-ui, 'DejaVu Sans', Arial, sans-serif"
_ROW, _LEFT, _CELL = 26, 250, 42


def draw_packages(architecture: Architecture) -> str:
    """Draw a row for each package, the highest layer first, with a dot for each package that it imports: a larger one
    if more of its modules do. Every dot lies right of the diagonal, because imports point down."""
    names = [name for layer in architecture.layers for name in layer]
    place = {name: number for number, name in enumerate(names)}
    width, height = _LEFT + _CELL * len(names) + 10, _ROW * (len(names) + 1) + 64
    parts = []
    top = 64
    for layer in architecture.layers:
        bottom = top + _ROW * len(layer)
        parts.append(_line(4, top, width - 6, top))
        for name in layer:
            package = architecture.packages[name]
            middle = top + _ROW / 2 + 4
            parts.append(_text(10, middle, name, bold=True))
            parts.append(_text(_LEFT - 20, middle, package.size, anchor="end"))
            for other, number in place.items():
                count = architecture.imports.get((name, other), 0)
                x = _LEFT + _CELL * (number + 0.5)
                if other == name:
                    parts.append(f'<rect x="{x - 5:.0f}" y="{middle - 9:.0f}" width="10" height="10" fill="{_LINE}"/>')
                elif count:
                    radius = 2 + min(count, 64) ** 0.5
                    parts.append(f'<circle cx="{x:.0f}" cy="{middle - 4:.0f}" r="{radius:.1f}" fill="{_DARK}"/>')
            top += _ROW
        top = bottom
    parts.append(_line(4, top, width - 6, top))
    for name, number in place.items():
        x = _LEFT + _CELL * (number + 0.5)
        parts.append(f'<g transform="translate({x:.0f},56) rotate(-35)">{_text(0, 0, name)}</g>')
    return _drawing(width + 40, height, parts)


def draw_run(architecture: Architecture, visited: Sequence[str], title: str) -> str:
    """Draw a line over the packages: one step to the right for each function that a run calls for the first time."""
    names = [name for layer in architecture.layers for name in layer]
    met = [name for name in names if name in set(visited)]
    place = {name: number for number, name in enumerate(met)}
    seen = [place[name] for name in visited if name in place]
    changes = sum(a != b for a, b in pairwise(seen))
    width, left, top = 900, 110, 34
    height = top + _ROW * len(met) + 10
    parts = [_text(10, 18, f"{title}: {len(seen)} functions, {changes} changes of package", bold=True)]
    for name, number in place.items():
        y = top + _ROW * (number + 0.5)
        parts += [_text(10, y + 4, name), _line(left, y, width - 10, y, ink=_PALE)]
    step = (width - left - 20) / max(1, len(seen))
    # Only where the line bends: most functions are in the same package as the one before.
    bends = [
        at for at, number in enumerate(seen) if at in (0, len(seen) - 1) or not seen[at - 1] == number == seen[at + 1]
    ]
    points = " ".join(f"{left + step * at:.1f},{top + _ROW * (seen[at] + 0.5):.0f}" for at in bends)
    parts.append(f'<polyline points="{points}" fill="none" stroke="{_DARK}" stroke-width="1.2"/>')
    return _drawing(width, height, parts)


def _text(x: float, y: float, words: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{_INK}"{weight}>{escape(words)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, *, ink: str = _LINE) -> str:
    return f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{to_x:.0f}" y2="{to_y:.0f}" stroke="{ink}"/>'


def _drawing(width: float, height: float, parts: Sequence[str]) -> str:
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'style="{_STYLE}">\n<rect width="100%" height="100%" fill="white"/>\n{inside}\n</svg>\n'
    )

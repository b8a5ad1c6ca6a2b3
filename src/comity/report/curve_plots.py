"""Curves with their spread as SVG, and horizontal lines for what does not depend on the axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import inf

from comity.artefacts.section import Curve, Curves
from comity.report.plots import DARK, FONT, GREY, INK, SIZE, choose_ticks, format_ticks, list_values, text_width
from comity.untrusted.text import escape_line

_WIDTH, _HEIGHT, _TOP = 250.0, 190.0, 24.0
_LINE = 13.0
"""From one line of text to the next."""
_APART = 4.0
"""Points between curves at one place: their error bars would overlap."""
_INKS = (DARK, "#b3541e", "#2f7d4f", INK)
_DASHES = ("", "6 3", "8 3 1.5 3", "1.5 2.5")


def draw_curves(plot: Curves) -> str:
    """Curves differ by ink, dashes and marks, so that they can be told apart without colour. Their names are below the
    axis, where they cover neither title nor curves; the names of levels are behind the right edge."""
    axes = _Axes.of(plot)
    parts = [_text(axes.left, 12, plot.about, bold=True), *_draw_frame(plot, axes)]
    places = spread_apart([axes.bottom - axes.y(level.value) for level in plot.levels], _LINE)
    for level, place in zip(plot.levels, places):
        y = axes.y(level.value)
        parts.append(_line(axes.left, y, axes.right, y, ink=GREY, dashes="1.5 2.5"))
        parts.append(_text(axes.right + 5, axes.bottom - place + SIZE * 0.36, f"{level.label} {level.value:.3f}"))
    for number, curve in enumerate(plot.curves):
        parts += _draw_curve(curve, number, axes, (number - (len(plot.curves) - 1) / 2) * _APART)
    bottom = axes.bottom + 4 * _LINE
    for number, curve in enumerate(plot.curves):
        y = bottom + number * _LINE
        ink = _INKS[number % 4]
        parts.append(_line(axes.left, y - 3, axes.left + 26, y - 3, ink=ink, dashes=_DASHES[number % 4], width=1.6))
        parts += [_mark(number, axes.left + 13, y - 3, ink), _text(axes.left + 32, y, curve.label)]
    names = [f"{level.label} {level.value:.3f}" for level in plot.levels]
    width = axes.right + max((text_width(name) for name in names), default=0.0) + 12
    width = max(width, axes.left + text_width(plot.about, bold=True))
    height = bottom + len(plot.curves) * _LINE
    described = [(f"{curve.label} at {x:g}", y) for curve in plot.curves for x, y in zip(curve.x, curve.y)]
    said = f"{plot.about}, {plot.up} against {plot.across}: {list_values(described)}"
    return (
        f'<svg role="img" aria-label="{escape(escape_line(said))}" viewBox="0 0 {width:.0f} {height:.0f}">'
        f'<g font-family="{FONT}" font-size="{SIZE}" fill="{INK}">{"".join(parts)}</g></svg>'
    )


@dataclass(frozen=True)
class _Axes:
    low: float
    high: float
    most: float
    logarithmic: bool
    left: float
    bottom: float = _TOP + _HEIGHT

    @classmethod
    def of(cls, plot: Curves) -> _Axes:
        xs = [x for curve in plot.curves for x in curve.x]
        ends = [y + s for curve in plot.curves for y, s in zip(curve.y, curve.spread or (0.0,) * len(curve.y))]
        most = max([*ends, *(level.value for level in plot.levels)], default=0.0) * 1.05 or 1.0
        scale = math.log if plot.logarithmic else float
        low, high = (scale(min(xs)), scale(max(xs))) if xs else (0.0, 1.0)
        margin = 0.06 * (high - low) or 0.5
        figures = format_ticks(choose_ticks(0.0, most))
        return cls(low - margin, high + margin, most, plot.logarithmic, max(map(text_width, figures)) + 24)

    @property
    def right(self) -> float:
        return self.left + _WIDTH

    def x(self, value: float) -> float:
        place = math.log(value) if self.logarithmic else value
        return self.left + (place - self.low) / (self.high - self.low) * _WIDTH

    def y(self, value: float) -> float:
        return self.bottom - value / self.most * _HEIGHT


def _draw_frame(plot: Curves, axes: _Axes) -> list[str]:
    parts = [
        _line(axes.left, _TOP, axes.left, axes.bottom, ink=GREY),
        _line(axes.left, axes.bottom, axes.right, axes.bottom, ink=GREY),
    ]
    places = choose_ticks(0.0, axes.most)
    for place, figure in zip(places, format_ticks(places)):
        y = axes.y(place)
        parts.append(_line(axes.left - 3.5, y, axes.left, y, ink=GREY))
        parts.append(_text(axes.left - 6, y + SIZE * 0.36, figure, anchor="end"))
    for x in sorted({x for curve in plot.curves for x in curve.x}):
        parts.append(_line(axes.x(x), axes.bottom, axes.x(x), axes.bottom + 3.5, ink=GREY))
        parts.append(_text(axes.x(x), axes.bottom + _LINE, f"{x:g}", anchor="middle"))
    middle = _TOP + _HEIGHT / 2
    up = escape(escape_line(plot.up))
    parts.append(f'<text x="10" y="{middle}" text-anchor="middle" transform="rotate(-90 10 {middle})">{up}</text>')
    return [*parts, _text((axes.left + axes.right) / 2, axes.bottom + 2 * _LINE + 3, plot.across, anchor="middle")]


def _draw_curve(curve: Curve, number: int, axes: _Axes, moved: float) -> list[str]:
    ink, points = _INKS[number % 4], [(axes.x(x) + moved, axes.y(y)) for x, y in zip(curve.x, curve.y)]
    path = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
    dashes = f' stroke-dasharray="{_DASHES[number % 4]}"' if _DASHES[number % 4] else ""
    parts = [f'<polyline points="{path}" fill="none" stroke="{ink}" stroke-width="1.6"{dashes}/>']
    for (x, _), value, spread in zip(points, curve.y, curve.spread):
        low, high = axes.y(max(0.0, value - spread)), axes.y(value + spread)
        parts.append(_line(x, low, x, high, ink=ink))
        parts += [_line(x - 3, end, x + 3, end, ink=ink) for end in (low, high)]
    return [*parts, *(_mark(number, x, y, ink) for x, y in points)]


def _mark(number: int, x: float, y: float, ink: str) -> str:
    """A dot, a square, a triangle or a diamond."""
    shapes = ("", "-3,-3 3,-3 3,3 -3,3", "0,-3.6 3.4,2.6 -3.4,2.6", "0,-4 4,0 0,4 -4,0")
    if not shapes[number % 4]:
        return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="3" fill="{ink}"/>'
    return f'<polygon points="{shapes[number % 4]}" transform="translate({x:.2f} {y:.2f})" fill="{ink}"/>'


def _line(x: float, y: float, to_x: float, to_y: float, *, ink: str, dashes: str = "", width: float = 0.8) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x:.2f}" y1="{y:.2f}" x2="{to_x:.2f}" y2="{to_y:.2f}" stroke="{ink}" '
        f'stroke-width="{width}"{dashed}/>'
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}"{weight}>{escape(escape_line(words))}</text>'


def spread_apart(places: Sequence[float], apart: float) -> list[float]:
    """Each place moved up by as little as puts it `apart` from the next one below, in the given order."""
    moved = list(places)
    below = -inf
    for index in sorted(range(len(moved)), key=moved.__getitem__):
        moved[index] = below = max(moved[index], below + apart)
    return moved

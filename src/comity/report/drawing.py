"""A plot with one horizontal axis as SVG, written out: bars and dots need no library, whose import takes longer than
most studies.

Places are in points. The width of a text is estimated from the widths of letters in common sans-serif fonts, since
nobody knows which one a reader's machine has.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from html import escape

DARK, INK, PALE, GREY, LINE = "#17415f", "#222222", "#e9edf0", "#888888", "#9aa5ad"
FONT = "system-ui, 'DejaVu Sans', Arial, sans-serif"
SIZE = 9.5
_NARROW, _WIDE = set(" !'(),./:;[]fijlrtI|"), set("mwMW%@<=>+")
_TICKS = 6
_BELOW = 13.0
"""From the axis to the line of its figures, and from there to each line of its label."""


def width_of(text: str, *, bold: bool = False) -> float:
    """How wide a text is in points at most, in the widest of the common fonts (DejaVu Sans)."""
    return SIZE * sum(map(_ems, text)) * (1.12 if bold else 1.0)


def _ems(letter: str) -> float:
    if letter in _NARROW:
        return 0.42
    if letter in _WIDE or not letter.isascii():
        return 1.0
    return 0.79 if letter.isupper() else 0.66


def ticks(low: float, high: float, most: int = _TICKS) -> list[float]:
    """Round numbers from `low` to `high`, at most so many steps apart."""
    rough = (high - low) / most
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * scale for factor in (1, 2, 2.5, 5, 10) if factor * scale >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def figures(places: Sequence[float]) -> list[str]:
    """The numbers with as many decimals as the finest of them needs."""
    decimals = max((len(f"{place:.10f}".rstrip("0").partition(".")[2]) for place in places), default=0)
    return [f"{place or 0.0:.{decimals}f}".replace("-", "−") for place in places]


class Drawing:
    """Rows with a label each, the first one below, over an axis from `low` to `high`; `row` points lie between two."""

    def __init__(
        self, labels: Sequence[str], low: float, high: float, *, width: float, row: float, strong: Sequence[bool] = ()
    ) -> None:
        bold = list(strong) or [False] * len(labels)
        self._left = max((width_of(one, bold=b) for one, b in zip(labels, bold)), default=0.0) + 10
        self._right = max(width - 8, self._left + 80)
        self._low, self._high = low, high if high > low else low + 1
        self._row, self._bottom = row, row * len(labels) + 4
        self._parts: list[str] = []
        self._hatched: dict[str, str] = {}
        for place, (label, is_bold) in enumerate(zip(labels, bold)):
            self.text(self._left - 6, self.y(place) + SIZE * 0.36, label, anchor="end", bold=is_bold)

    def x(self, value: float) -> float:
        return self._left + (value - self._low) / (self._high - self._low) * (self._right - self._left)

    def y(self, place: float) -> float:
        """The middle of a row."""
        return self._bottom - 2 - self._row * (place + 0.5)

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", bold: bool = False) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self._parts.append(f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}"{weight}>{escape(words)}</text>')

    def line(self, x: tuple[float, float], y: tuple[float, float], *, ink: str = INK, width: float = 0.8) -> None:
        self._parts.append(
            f'<line x1="{x[0]:.2f}" y1="{y[0]:.2f}" x2="{x[1]:.2f}" y2="{y[1]:.2f}" stroke="{ink}" '
            f'stroke-width="{width}"/>'
        )

    def box(self, x: tuple[float, float], y: float, height: float, *, fill: str, edge: str = INK) -> None:
        left, right = sorted(x)
        self._parts.append(
            f'<rect x="{left:.2f}" y="{y - height / 2:.2f}" width="{right - left:.2f}" height="{height:.2f}" '
            f'fill="{fill}" stroke="{edge}" stroke-width="0.8"/>'
        )

    def dot(self, x: float, y: float, *, fill: str) -> None:
        self._parts.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="3" fill="{fill}" stroke="{DARK}"/>')

    def hatch(self, strokes: str, salt: str) -> str:
        """What fills a bar with a pattern of strokes on pale ground; the salt tells it from those of other plots."""
        name = "hatch-" + hashlib.sha256(f"{salt}/{strokes}".encode()).hexdigest()[:10]
        self._hatched[name] = (
            f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" '
            f'fill="{PALE}"/><path d="{strokes}" stroke="#6a7680" stroke-width="0.7"/></pattern>'
        )
        return f"url(#{name})"

    def svg(self, axis: str, description: str) -> str:
        """The whole, with the axis and what it counts; `description` is for whoever does not see it."""
        bottom, places = self._bottom, ticks(self._low, self._high)
        self.line((self._left, self._left), (2, bottom), ink=GREY)
        self.line((self._left, self._right), (bottom, bottom), ink=GREY)
        for place, figure in zip(places, figures(places)):
            self.line((self.x(place), self.x(place)), (bottom, bottom + 3.5), ink=GREY)
            self.text(self.x(place), bottom + _BELOW, figure, anchor="middle")
        lines = axis.split("\n")
        middle = (self._left + self._right) / 2
        for number, words in enumerate(lines, start=2):
            self.text(middle, bottom + _BELOW * number, words, anchor="middle")
        reach = max(width_of(words) for words in lines) / 2
        # A label that is longer than the axis may stick out on either side.
        start, end = min(0.0, middle - reach), max(self._right + 8, middle + reach)
        height = bottom + _BELOW * (len(lines) + 1) + 4
        patterns = f"<defs>{''.join(self._hatched.values())}</defs>" if self._hatched else ""
        view = f"{start:.2f} 0 {end - start:.2f} {height:.2f}"
        return (
            f'<svg role="img" aria-label="{escape(description)}" viewBox="{view}">'
            f'{patterns}<g font-family="{FONT}" font-size="{SIZE}" fill="{INK}">{"".join(self._parts)}</g></svg>'
        )

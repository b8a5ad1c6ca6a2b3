"""Plots as SVG for a page: readable in black and white, text as text, nothing fetched from anywhere.

Bars, dots and panels are written out here, curves in `curve_plots`, matrices and pictures in `shaded_plots`. They need
no library: the import of one takes longer than most studies, and it weighs 100 MB. Coordinates are in points. The width
of a text is estimated from the widths of letters in common sans-serif fonts, since the reader's font is not known.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from comity.artefacts.section import Bar, Bars, Curves, Dots, Matrices, Panel, Panels, Pictures, Plot
from comity.federation.evaluation.assessment import Baseline
from comity.untrusted.text import escape_line

DARK, INK, PALE, GREY, LINE = "#17415f", "#222222", "#e9edf0", "#888888", "#9aa5ad"
FONT = "system-ui, 'DejaVu Sans', Arial, sans-serif"
SIZE = 9.5
_NARROW, _WIDE = set(" !'(),./:;[]fijlrtI|"), set("mwMW%@<=>+")
_TICKS = 6
_BELOW = 13.0
"""From the axis to the line of its figures, and from there to each line of its label."""
_WIDTH = 345.0
# How lines across a plot are dashed, and what that is called.
_LEVELS = (("6 3", "dashes"), ("1.5 2.5", "dots"), ("8 3 1.5 3", "dashes and dots"))
# Bars that are not the result itself differ by hatch, not by colour: strokes in a square of six points.
_FALLING = "M0,0l6,6"
_HATCHES = {
    "constant": "",
    "own data": "M0,6l6,-6",
    "pooled": "M1.5,0v6M4.5,0v6",
    "without noise": "M0,6l6,-6M0,0l6,6",
}


def draw_plot(plot: Plot, salt: str) -> str:
    """A plot that a section describes. The salt makes its identifiers differ from those of other plots on the page."""
    if isinstance(plot, Bars):
        return draw_bars(plot, salt)
    if isinstance(plot, Dots):
        return draw_dots(plot)
    if isinstance(plot, Panels):
        return draw_panels(plot)
    # These modules draw with the functions of this one.
    from comity.report.curve_plots import draw_curves
    from comity.report.shaded_plots import draw_matrices, draw_pictures

    match plot:
        case Curves():
            return draw_curves(plot)
        case Matrices():
            return draw_matrices(plot)
        case Pictures():
            return draw_pictures(plot)


@dataclass(frozen=True)
class Amount:
    """A bar with its own words beside it; `ours` is what the plot is about."""

    label: str
    value: float
    words: str
    ours: bool = False


def draw_amounts(about: str, amounts: Sequence[Amount], *, most: float) -> str:
    """Bars from zero to `most`, the first on top. Their words are below them, so the plot fits a narrow screen."""
    left, right, row = 4.0, _WIDTH - 4, 36.0
    parts = []
    for place, amount in enumerate(amounts):
        y = place * row
        length = max(1.0, (right - left) * min(1.0, amount.value / most)) if most > 0 else 1.0
        weight, fill = (' font-weight="bold"', DARK) if amount.ours else ("", PALE)
        words = escape(escape_line(f"{amount.label}: {amount.words}"))
        parts.append(f'<text x="{left}" y="{y + 11:.2f}"{weight}>{words}</text>')
        parts.append(
            f'<rect x="{left}" y="{y + 16:.2f}" width="{length:.2f}" height="11" fill="{fill}" '
            f'stroke="{INK}" stroke-width="0.8"/>'
        )
    said = escape(f"{about}: " + ", ".join(f"{one.label} {one.words}" for one in amounts))
    return (
        f'<svg role="img" aria-label="{said}" viewBox="0 0 {_WIDTH:.0f} {row * len(amounts):.0f}">'
        f'<g font-family="{FONT}" font-size="{SIZE}" fill="{INK}">{"".join(parts)}</g></svg>'
    )


@dataclass(frozen=True)
class Mark:
    """A value with its interval, where it has one."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    faint: bool = False
    """Whether it says nothing new: it is drawn hollow and grey."""


def draw_marks(about: str, axis: str, marks: Sequence[Mark], levels: Mapping[str, float]) -> str:
    """Values with their intervals, the first on top, and `levels` as vertical lines that are named below the axis."""
    ends = [end for mark in marks for end in (mark.low, mark.high, mark.value) if end is not None] + [*levels.values()]
    low, high = min(ends), max(ends)
    margin = 0.08 * (high - low) or 0.05
    shown = list(reversed(marks))
    # Room for the figure behind the interval that ends last.
    right = high + margin + 0.1 * (high - low)
    drawing = Drawing([mark.label for mark in shown], max(0.0, low - margin), right, width=_WIDTH, row=24.0)
    for value, (dashes, _) in zip(levels.values(), _LEVELS):
        drawing.line((drawing.x(value),) * 2, (2, drawing.y(-0.5) + 2), ink=GREY, width=1.2, dashes=dashes)
    for place, mark in enumerate(shown):
        y = drawing.y(place)
        if mark.low is not None and mark.high is not None:
            drawing.line((drawing.x(mark.low), drawing.x(mark.high)), (y, y), ink=LINE, width=2.2)
        drawing.dot(drawing.x(mark.value), y, fill="white" if mark.faint else DARK, edge=GREY if mark.faint else DARK)
        end = mark.value if mark.high is None else mark.high
        drawing.text(drawing.x(end) + 5, y - 3, f"{mark.value:.3f}")
    named = "\n".join(f"{words}: {name} {value:.3f}" for (name, value), (_, words) in zip(levels.items(), _LEVELS))
    said = list_values([(mark.label, mark.value) for mark in marks] + list(levels.items()))
    return drawing.svg(axis + ("\n" + named if named else ""), f"{about}: {said}")


def draw_errors(error: float, baselines: Sequence[Baseline], measured: str) -> str:
    """The result's error among its baselines, the best at the bottom."""
    bars = [Bar(b.name, b.error, b.spread) for b in baselines] + [Bar("this result", error, ours=True)]
    bars.sort(key=lambda bar: (bar.value, not bar.ours))
    return draw_bars(Bars("Error of the result and of its baselines", measured, tuple(bars)), "errors")


def draw_bars(plot: Bars, salt: str) -> str:
    """Bars with their figures, the first at the bottom. The result stands out without colour too."""
    bars = plot.bars
    low = min(0.0, *(bar.value - bar.spread if bar.value < 0 else 0.0 for bar in bars))
    top = max(0.0, *(bar.value + bar.spread for bar in bars))
    # Room for the figure behind the longest bar.
    high = top + 0.16 * (top - low) or 1.0
    drawing = Drawing([bar.label for bar in bars], low, high, width=_WIDTH, row=24.5, strong=[bar.ours for bar in bars])
    for place, bar in enumerate(bars):
        x, y = drawing.x(bar.value), drawing.y(place)
        strokes = _HATCHES.get(bar.label, _FALLING)
        fill = DARK if bar.ours else drawing.hatch(strokes, salt) if strokes else PALE
        drawing.box((drawing.x(0), x), y, 16, fill=fill)
        end = x
        if bar.spread:
            start, end = drawing.x(bar.value - bar.spread), drawing.x(bar.value + bar.spread)
            drawing.line((start, end), (y, y), width=1.1)
            for cap in (start, end):
                drawing.line((cap, cap), (y - 3, y + 3), width=1.1)
        drawing.text(end + 6, y + SIZE * 0.36, f"{bar.value:.3f}", bold=bar.ours)
    return drawing.svg(plot.axis, f"{plot.about}: " + list_values([(bar.label, bar.value) for bar in bars]))


def draw_dots(plot: Dots) -> str:
    """Signed quantities. The line behind each spans two standard deviations to either side; where it covers zero, the
    mark is grey and hollow, because the sign may be chance."""
    shown = list(reversed(plot.dots))
    reaches = [2 * (dot.deviation if dot.deviation is not None else plot.deviation or 0.0) for dot in shown]
    low = min(0.0, *(dot.value - reach for dot, reach in zip(shown, reaches)), 0.0)
    high = max(0.0, *(dot.value + reach for dot, reach in zip(shown, reaches)), 0.0)
    margin = 0.05 * (high - low) or 0.5
    drawing = Drawing([dot.label for dot in shown], low - margin, high + margin, width=_WIDTH, row=17.5)
    drawing.line((drawing.x(0), drawing.x(0)), (2, drawing.y(-0.5) + 2))
    for place, (dot, reach) in enumerate(zip(shown, reaches)):
        x, y = drawing.x(dot.value), drawing.y(place)
        if reach:
            drawing.line((drawing.x(dot.value - reach), drawing.x(dot.value + reach)), (y, y), ink=LINE, width=2.2)
        if abs(dot.value) <= reach:
            drawing.dot(x, y, fill="white", edge=GREY)
        else:
            drawing.dot(x, y, fill=DARK)
    spread = ""
    if any(reaches):
        of = "of the added noise" if plot.deviation is not None else "of each"
        spread = f"\n(line: ± 2 standard deviations {of};\ngrey: it covers zero, the sign may be chance)"
    return drawing.svg(
        plot.axis + spread, f"{plot.about}: " + list_values([(dot.label, dot.value) for dot in plot.dots])
    )


def draw_panels(plot: Panels) -> str:
    """Shares of each column's cells of two tables, as pale and dark bars under each other, two columns across."""
    parts, top, half = list[str](), 18.0, _WIDTH / 2
    for dark, name in enumerate(plot.named):
        fill, x = DARK if dark else PALE, 4 + dark * half
        parts.append(f'<rect x="{x:.2f}" y="3" width="9" height="9" fill="{fill}" stroke="{INK}" stroke-width="0.6"/>')
        parts.append(f'<text x="{x + 13:.2f}" y="11">{escape(escape_line(name))}</text>')
    for start in range(0, len(plot.panels), 2):
        pair = plot.panels[start : start + 2]
        for side, panel in enumerate(pair):
            parts += _draw_panel(panel, left=side * half, top=top)
        top += _PANEL_HEAD + _CELL * max(len(panel.cells) for panel in pair)
    described = [
        (f"{panel.label} {cell} {name}", share)
        for panel in plot.panels
        for name, shares in zip(plot.named, (panel.first, panel.second))
        for cell, share in zip(panel.cells, shares)
    ]
    return (
        f'<svg role="img" aria-label="{escape(escape_line(f"{plot.about}: {list_values(described)}"))}" '
        f'viewBox="0 0 {_WIDTH:.0f} {top + 4:.0f}"><g font-family="{FONT}" font-size="{SIZE}" fill="{INK}">'
        f"{''.join(parts)}</g></svg>"
    )


_PANEL_HEAD, _CELL, _LABEL_WIDTH = 20.0, 13.0, 82.0


def _draw_panel(panel: Panel, *, left: float, top: float) -> list[str]:
    """A title, and for each cell its name and two bars; the longest bar of the panel fills the width."""
    parts = [f'<text x="{left + 4:.2f}" y="{top + 13:.2f}" font-weight="bold">{_fitted(panel.label, 150)}</text>']
    most = max((*panel.first, *panel.second), default=0.0) or 1.0
    room = _WIDTH / 2 - _LABEL_WIDTH - 14
    for place, (cell, first, second) in enumerate(zip(panel.cells, panel.first, panel.second)):
        y = top + _PANEL_HEAD + _CELL * place
        parts.append(
            f'<text x="{left + _LABEL_WIDTH:.2f}" y="{y + 8:.2f}" text-anchor="end" font-size="8">'
            f"{_fitted(cell, _LABEL_WIDTH - 4)}</text>"
        )
        for share, fill, down in ((first, PALE, 0.5), (second, DARK, 5.5)):
            width = max(0.4, room * max(0.0, share) / most)
            parts.append(
                f'<rect x="{left + _LABEL_WIDTH + 5:.2f}" y="{y + down:.2f}" width="{width:.2f}" height="5" '
                f'fill="{fill}" stroke="{INK}" stroke-width="0.5"/>'
            )
    return parts


def _fitted(words: str, width: float) -> str:
    """As much of a text as fits, escaped."""
    words = escape_line(words)
    cut = words
    while cut and text_width(cut) * 0.84 > width:
        cut = cut[:-1]
    return escape(cut if cut == words else f"{cut[:-1]}…")


def list_values(figures: Sequence[tuple[str, float]]) -> str:
    """Names and numbers in one line: the description for readers who do not see the plot."""
    return ", ".join(f"{name} {value:.3f}" for name, value in figures)


def text_width(text: str, *, bold: bool = False) -> float:
    """The largest width of a text in points, in the widest of the common fonts (DejaVu Sans)."""
    return SIZE * sum(map(_ems, text)) * (1.12 if bold else 1.0)


def _ems(letter: str) -> float:
    if letter in _NARROW:
        return 0.42
    if letter in _WIDE or not letter.isascii():
        return 1.0
    return 0.79 if letter.isupper() else 0.66


def choose_ticks(low: float, high: float, most: int = _TICKS) -> list[float]:
    """Round numbers from `low` to `high`, at most `most` steps."""
    rough = (high - low) / most
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * scale for factor in (1, 2, 2.5, 5, 10) if factor * scale >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def format_ticks(places: Sequence[float]) -> list[str]:
    """The numbers, with as many decimals as the finest of them needs."""
    decimals = max((len(f"{place:.10f}".rstrip("0").partition(".")[2]) for place in places), default=0)
    return [f"{place or 0.0:.{decimals}f}".replace("-", "−") for place in places]


class Drawing:
    """Labelled rows, the first at the bottom and `row` points apart, over an axis from `low` to `high`."""

    def __init__(
        self, labels: Sequence[str], low: float, high: float, *, width: float, row: float, strong: Sequence[bool] = ()
    ) -> None:
        bold = list(strong) or [False] * len(labels)
        self._left = max((text_width(one, bold=b) for one, b in zip(labels, bold)), default=0.0) + 10
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
        self._parts.append(
            f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}"{weight}>{escape(escape_line(words))}</text>'
        )

    def line(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        ink: str = INK,
        width: float = 0.8,
        dashes: str = "",
    ) -> None:
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(
            f'<line x1="{x[0]:.2f}" y1="{y[0]:.2f}" x2="{x[1]:.2f}" y2="{y[1]:.2f}" stroke="{ink}" '
            f'stroke-width="{width}"{dashed}/>'
        )

    def box(self, x: tuple[float, float], y: float, height: float, *, fill: str, edge: str = INK) -> None:
        left, right = sorted(x)
        self._parts.append(
            f'<rect x="{left:.2f}" y="{y - height / 2:.2f}" width="{right - left:.2f}" height="{height:.2f}" '
            f'fill="{fill}" stroke="{edge}" stroke-width="0.8"/>'
        )

    def dot(self, x: float, y: float, *, fill: str, edge: str = DARK) -> None:
        self._parts.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="3" fill="{fill}" stroke="{edge}"/>')

    def hatch(self, strokes: str, salt: str) -> str:
        """The fill of a bar: a pattern of strokes. The salt makes its name differ from those of other plots."""
        name = "hatch-" + hashlib.sha256(f"{salt}/{strokes}".encode()).hexdigest()[:10]
        self._hatched[name] = (
            f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" '
            f'fill="{PALE}"/><path d="{strokes}" stroke="#6a7680" stroke-width="0.7"/></pattern>'
        )
        return f"url(#{name})"

    def svg(self, axis: str, description: str) -> str:
        """The plot with its axis and the axis label; `description` is for readers who do not see it."""
        bottom, places = self._bottom, choose_ticks(self._low, self._high)
        self.line((self._left, self._left), (2, bottom), ink=GREY)
        self.line((self._left, self._right), (bottom, bottom), ink=GREY)
        for place, figure in zip(places, format_ticks(places)):
            self.line((self.x(place), self.x(place)), (bottom, bottom + 3.5), ink=GREY)
            self.text(self.x(place), bottom + _BELOW, figure, anchor="middle")
        lines = axis.split("\n")
        middle = (self._left + self._right) / 2
        for number, words in enumerate(lines, start=2):
            self.text(middle, bottom + _BELOW * number, words, anchor="middle")
        reach = max(text_width(words) for words in lines) / 2
        # A label that is longer than the axis may stick out on either side.
        start, end = min(0.0, middle - reach), max(self._right + 8, middle + reach)
        height = bottom + _BELOW * (len(lines) + 1) + 4
        patterns = f"<defs>{''.join(self._hatched.values())}</defs>" if self._hatched else ""
        view = f"{start:.2f} 0 {end - start:.2f} {height:.2f}"
        return (
            f'<svg role="img" aria-label="{escape(description)}" viewBox="{view}">'
            f'{patterns}<g font-family="{FONT}" font-size="{SIZE}" fill="{INK}">{"".join(self._parts)}</g></svg>'
        )

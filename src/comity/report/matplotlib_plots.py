"""Every kind of plot as a figure of matplotlib, for a notebook. Pages draw theirs without it (`plots`)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from comity.artefacts.section import Bars, Curves, Dot, Dots, Matrices, Panels, Pictures, Plot
from comity.report.curve_plots import spread_apart
from comity.report.plots import DARK, GREY, INK, LINE, PALE

# Characters of a label, and columns of a matrix that still has its figures written in.
_SHORT, _FIGURES = 14, 16
# Of the height of a plot of curves: a line of text.
_LEVEL_LABEL = 0.055
# Pictures in a row.
_ACROSS = 12
_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "text.color": INK,
}


class Shown(Figure):
    """A figure that a notebook shows without pyplot, which would keep every figure open."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with _styled():
            self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def make_figure(plot: Plot) -> Figure:
    """The figure of any plot that a section describes."""
    with _styled():
        match plot:
            case Bars():
                return _bars(plot)
            case Dots():
                return _dots(plot)
            case Panels():
                return _panels(plot)
            case Curves():
                return _curves(plot)
            case Matrices():
                return _matrices(plot)
            case Pictures():
                return _pictures(plot)


def _bars(plot: Bars) -> Figure:
    figure, axes = _axes(6.0, 1.2 + 0.32 * len(plot.bars))
    for place, bar in enumerate(plot.bars):
        axes.barh(
            place, bar.value, xerr=bar.spread or None, color=DARK if bar.ours else PALE, edgecolor=INK, linewidth=0.8
        )
        axes.annotate(
            f"{bar.value:.3f}",
            (bar.value + bar.spread, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontweight="bold" if bar.ours else "normal",
        )
    axes.set_yticks(range(len(plot.bars)), [bar.label for bar in plot.bars])
    axes.margins(x=0.15)
    axes.set_xlabel(plot.axis)
    axes.set_title(plot.about, loc="left", fontsize=10.5, fontweight="bold")
    return figure


def _dots(plot: Dots) -> Figure:
    """A line spans two standard deviations to either side; where it covers zero, the mark is hollow and grey."""
    figure, axes = _axes(6.0, 1.4 + 0.26 * len(plot.dots))
    shown = list(reversed(plot.dots))
    known = False
    for place, dot in enumerate(shown):
        deviation = dot.deviation if dot.deviation is not None else plot.deviation
        reach = 2 * (deviation or 0.0)
        known |= deviation is not None
        covers = abs(dot.value) <= reach
        axes.hlines(place, dot.value - reach, dot.value + reach, color=LINE, linewidth=2.2)
        ink, fill = (GREY, "none") if covers else (DARK, "full")
        axes.plot(dot.value, place, marker="o", markersize=6, color=ink, fillstyle=fill)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(shown)), [dot.label for dot in shown])
    told = "line: ± 2 standard deviations; hollow: the sign may be chance"
    axes.set_xlabel(f"{plot.axis}\n({told if known else 'how far noise moves each is not known'})")
    axes.set_title(plot.about, loc="left", fontsize=10.5, fontweight="bold")
    return figure


def _panels(plot: Panels) -> Figure:
    """Two tables side by side, a panel for each column."""
    across = min(2, len(plot.panels)) or 1
    down = -(-len(plot.panels) // across) or 1
    tallest = max((len(panel.cells) for panel in plot.panels), default=1)
    figure = Shown(figsize=(4.0 * across, down * (0.9 + 0.28 * tallest)), layout="constrained")
    FigureCanvasSVG(figure)
    for number, panel in enumerate(plot.panels, start=1):
        axes = figure.add_subplot(down, across, number)
        places = range(len(panel.cells))
        axes.barh([at - 0.2 for at in places], panel.first, 0.4, color=PALE, edgecolor=INK, linewidth=0.5)
        axes.barh([at + 0.2 for at in places], panel.second, 0.4, color=DARK, edgecolor=INK, linewidth=0.5)
        axes.set_yticks(list(places), [_short(cell) for cell in panel.cells], fontsize=8)
        axes.invert_yaxis()
        axes.set_title(panel.label, loc="left", fontsize=9.5, fontweight="bold")
    pale, dark = plot.named
    figure.suptitle(f"{plot.about}\n{pale} (pale), {dark} (dark)", fontsize=9.5, x=0.01, ha="left")
    return figure


def _curves(plot: Curves) -> Figure:
    markers, dashes = ("o", "s", "^", "D"), ("-", "--", "-.", (0, (1, 1)))
    curves = plot.curves
    figure, axes = _axes(4.9, 3.6)
    # Curves are moved apart a little: their error bars would overlap.
    for place, curve in enumerate(curves):
        apart = 1.03 ** (place - (len(curves) - 1) / 2) if plot.logarithmic else 1.0
        axes.errorbar(
            [x * apart for x in curve.x],
            curve.y,
            yerr=curve.spread or None,
            marker=markers[place % 4],
            linestyle=dashes[place % 4],
            color=(DARK, "#b3541e", "#2f7d4f", INK)[place % 4],
            capsize=3,
            linewidth=1.6,
            elinewidth=0.9,
            markersize=6,
            label=curve.label,
        )
    right = max(max(curve.x) for curve in curves) * 1.12
    if plot.logarithmic:
        axes.set_xscale("log")
    axes.set_xlim(right=right)
    ticks = sorted({x for curve in curves for x in curve.x})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    for level in plot.levels:
        axes.axhline(level.value, color="#777777", linewidth=1, linestyle=":")
    axes.set_ylim(bottom=0)
    _label_levels(axes, plot.levels, right)
    axes.set_xlabel(plot.across)
    axes.set_ylabel(plot.up)
    axes.set_title(plot.about, loc="left", fontsize=10.5, fontweight="bold")
    # Outside the axes, where it covers neither title nor curves.
    figure.legend(frameon=False, loc="outside lower center", ncols=len(curves), fontsize=9)
    return figure


def _label_levels(axes: Any, levels: Sequence[Dot], right: float) -> None:
    """Names behind the right edge, moved apart where two would overlap."""
    height = axes.get_ylim()[1]
    places = spread_apart([level.value / height for level in levels], _LEVEL_LABEL)
    for level, place in zip(levels, places):
        axes.annotate(
            f"{level.label} {level.value:.3f}",
            (right, place * height),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color="#444444",
        )


def _matrices(plot: Matrices) -> Figure:
    names = [_short(name) for name in plot.names]
    figure = Shown(figsize=(7.4, 3.9), layout="constrained")
    FigureCanvasSVG(figure)
    for place, square in enumerate(plot.squares, start=1):
        axes = figure.add_subplot(1, len(plot.squares), place)
        shades = [[abs(value) for value in row] for row in square.values]
        axes.imshow(shades, cmap="Greys", vmin=0, vmax=1.4)
        if len(names) <= _FIGURES:
            for row, values in enumerate(square.values):
                for column, value in enumerate(values):
                    ink = "white" if abs(value) > 0.8 else INK
                    axes.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=6, color=ink)
        axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=7)
        axes.set_yticks(range(len(names)), names if place == 1 else [""] * len(names), fontsize=7)
        axes.set_title(square.label, loc="left", fontsize=9, fontweight="bold")
    return figure


def _pictures(plot: Pictures) -> Figure:
    high, wide = len(plot.tiles[0]), len(plot.tiles[0][0])
    across = min(_ACROSS, len(plot.tiles))
    down = -(-len(plot.tiles) // across)
    # One number between pictures is a margin.
    sheet = [[0.0] * (across * (wide + 1)) for _ in range(down * (high + 1))]
    for place, tile in enumerate(plot.tiles):
        top, left = place // across * (high + 1), place % across * (wide + 1)
        for row, line in enumerate(tile):
            sheet[top + row][left : left + wide] = line
    figure, axes = _axes(7.4, 7.4 * len(sheet) / len(sheet[0]))
    axes.imshow(sheet, cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
    axes.set_axis_off()
    return figure


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def _styled() -> AbstractContextManager[None]:
    return matplotlib.rc_context(_STYLE)


def _axes(width: float, height: float) -> tuple[Figure, Any]:
    figure = Shown(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()

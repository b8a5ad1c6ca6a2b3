"""Plots as SVG to be put into a page: readable in black and white, text as text, nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Sequence

from comity.artefacts.section import Bar, Bars, Curves, Dots, Matrices, Panels, Pictures, Plot
from comity.federation.evaluation.assessment import Baseline
from comity.report.drawing import DARK, LINE, PALE, SIZE, Drawing

_WIDTH = 345.0
# Bars that are not the result itself differ by hatch, not by colour: strokes in a square of six points.
_FALLING = "M0,0l6,6"
_HATCHES = {
    "constant": "",
    "own data": "M0,6l6,-6",
    "pooled": "M1.5,0v6M4.5,0v6",
    "without noise": "M0,6l6,-6M0,0l6,6",
}


def plotted(plot: Plot, salt: str) -> str:
    """A plot that a section describes; the salt tells its identifiers from those of others on the page."""
    if isinstance(plot, Bars):
        return bars_plot(plot, salt)
    if isinstance(plot, Dots):
        return dots_plot(plot)
    # The library that draws the others takes longer to import than many a study to run.
    from comity.report.figures import curves_plot, matrices_plot, panels_plot, pictures_plot

    match plot:
        case Curves():
            return curves_plot(plot, salt)
        case Panels():
            return panels_plot(plot, salt)
        case Matrices():
            return matrices_plot(plot, salt)
        case Pictures():
            return pictures_plot(plot, salt)


def errors_plot(error: float, baselines: Sequence[Baseline], measured: str) -> str:
    """The result's error beside what it is compared with, best below."""
    bars = [Bar(b.name, b.error, b.spread) for b in baselines] + [Bar("this result", error, ours=True)]
    bars.sort(key=lambda bar: (bar.value, not bar.ours))
    return bars_plot(Bars("Error of the result and of its baselines", measured, tuple(bars)), "errors")


def bars_plot(plot: Bars, salt: str) -> str:
    """Bars with their figures, the first one below; what is ours stands out without colour too."""
    bars = plot.bars
    low = min(0.0, *(bar.value - bar.spread if bar.value < 0 else 0.0 for bar in bars))
    top = max(0.0, *(bar.value + bar.spread for bar in bars))
    # With room for the figure behind the longest.
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
    return drawing.svg(plot.axis, f"{plot.about}: " + said([(bar.label, bar.value) for bar in bars]))


def dots_plot(plot: Dots) -> str:
    """Signed quantities; the line behind each spans two deviations of its noise."""
    shown, reach = list(reversed(plot.dots)), 2 * (plot.deviation or 0.0)
    low = min(0.0, *(dot.value - reach for dot in shown), 0.0)
    high = max(0.0, *(dot.value + reach for dot in shown), 0.0)
    margin = 0.05 * (high - low) or 0.5
    drawing = Drawing([dot.label for dot in shown], low - margin, high + margin, width=_WIDTH, row=17.5)
    drawing.line((drawing.x(0), drawing.x(0)), (2, drawing.y(-0.5) + 2))
    for place, dot in enumerate(shown):
        x, y = drawing.x(dot.value), drawing.y(place)
        if reach:
            drawing.line((drawing.x(dot.value - reach), drawing.x(dot.value + reach)), (y, y), ink=LINE, width=2.2)
        if dot.value >= 0:
            drawing.dot(x, y, fill=DARK)
        else:
            drawing.box((x - 3, x + 3), y, 6, fill="white", edge=DARK)
    spread = "" if plot.deviation is None else "\n(line: ± 2 standard deviations of the added noise)"
    return drawing.svg(plot.axis + spread, f"{plot.about}: " + said([(dot.label, dot.value) for dot in plot.dots]))


def said(figures: Sequence[tuple[str, float]]) -> str:
    """Names and numbers in one line, for whoever reads a description in place of a plot."""
    return ", ".join(f"{name} {value:.3f}" for name, value in figures)

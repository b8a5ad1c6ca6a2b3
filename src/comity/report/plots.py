"""Plots as SVG to be put into a page: readable in black and white, text as text, nothing fetched from anywhere."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from comity.federation.baseline import Baseline

_DARK, _INK, _PALE = "#17415f", "#222222", "#e9edf0"
# Bars that are not the result itself differ by hatch, not by colour.
_HATCHES = {"constant": "", "own data": "////", "pooled": "||||", "without noise": "xxxx"}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "text.color": _INK,
    "hatch.linewidth": 0.7,
    "hatch.color": "#6a7680",
}


@dataclass(frozen=True)
class Weight:
    label: str
    value: float


@dataclass(frozen=True)
class Curve:
    """Mean error and its spread over repeats, at increasing ε."""

    label: str
    epsilon: Sequence[float]
    error: Sequence[float]
    spread: Sequence[float]


def errors_plot(error: float, baselines: Sequence[Baseline], measured: str) -> str:
    """The result's error beside what it is compared with, best below."""
    bars = [(b.name, b.error, b.spread) for b in baselines] + [("this result", error, 0.0)]
    bars.sort(key=lambda bar: (bar[1], bar[0] != "this result"))
    with _styled("errors"):
        figure, axes = _axes(4.8, 0.42 + 0.34 * len(bars))
        for place, (name, value, spread) in enumerate(bars):
            ours = name == "this result"
            axes.barh(
                place,
                value,
                height=0.66,
                color=_DARK if ours else _PALE,
                edgecolor=_INK,
                linewidth=0.8,
                hatch="" if ours else _HATCHES.get(name, "\\\\\\\\"),
                xerr=spread or None,
                error_kw={"elinewidth": 1.1, "capsize": 3, "ecolor": _INK},
            )
            axes.annotate(
                f"{value:.3f}",
                (value + spread, place),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontweight="bold" if ours else "normal",
            )
        axes.set_yticks(range(len(bars)), [name for name, _, _ in bars])
        for tick, (name, _, _) in zip(axes.get_yticklabels(), bars):
            tick.set_fontweight("bold" if name == "this result" else "normal")
        axes.set_xlim(0, max(value + spread for _, value, spread in bars) * 1.16 or 1)
        axes.set_xlabel(measured)
        axes.tick_params(axis="y", length=0)
        return _svg(figure, "Error of the result and of its baselines: " + _said(bars))


def weights_plot(weights: Sequence[Weight], noise: float | None, towards: str) -> str:
    """The strongest weights of a released linear model; the line behind each spans two deviations of its noise."""
    shown = list(reversed(weights))
    with _styled("weights"):
        figure, axes = _axes(4.8, 0.6 + 0.24 * len(shown))
        for place, weight in enumerate(shown):
            if noise is not None:
                reach = 2 * noise
                axes.plot([weight.value - reach, weight.value + reach], [place, place], color="#9aa5ad", linewidth=2.2)
            marker = "o" if weight.value >= 0 else "s"
            axes.plot(weight.value, place, marker, color=_DARK if weight.value >= 0 else "white", mec=_DARK, ms=6)
        axes.axvline(0, color=_INK, linewidth=0.8)
        axes.set_yticks(range(len(shown)), [weight.label for weight in shown])
        axes.set_ylim(-0.7, len(shown) - 0.3)
        spread = "" if noise is None else "\n(line: ± 2 standard deviations of the added noise)"
        axes.set_xlabel(towards + spread)
        axes.tick_params(axis="y", length=0)
        described = [(weight.label, weight.value, 0.0) for weight in weights]
        return _svg(figure, "Strongest weights of the model: " + _said(described))


def curves_plot(curves: Sequence[Curve], levels: Mapping[str, float], title: str, repeats: int) -> str:
    """Error against ε for several methods; horizontal lines for what does not depend on ε."""
    markers, dashes = ("o", "s", "^", "D"), ("-", "--", "-.", (0, (1, 1)))
    with _styled(title):
        figure, axes = _axes(4.9, 3.6)
        # Curves are moved apart a little, so that their whiskers can be told from each other.
        for place, curve in enumerate(curves):
            moved = [epsilon * 1.03 ** (place - (len(curves) - 1) / 2) for epsilon in curve.epsilon]
            axes.errorbar(
                moved,
                curve.error,
                yerr=curve.spread,
                marker=markers[place % 4],
                linestyle=dashes[place % 4],
                color=(_DARK, "#b3541e", "#2f7d4f", _INK)[place % 4],
                capsize=3,
                linewidth=1.6,
                elinewidth=0.9,
                markersize=6,
                label=curve.label,
            )
        right = max(max(curve.epsilon) for curve in curves) * 1.12
        for name, level in levels.items():
            axes.axhline(level, color="#777777", linewidth=1, linestyle=":")
            axes.annotate(
                f"{name} {level:.3f}",
                (right, level),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color="#444444",
            )
        axes.set_xscale("log")
        axes.set_xlim(right=right)
        ticks = sorted({epsilon for curve in curves for epsilon in curve.epsilon})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("epsilon spent by each party (more is less private)")
        axes.set_ylabel(f"test error, mean of {repeats} ± spread")
        axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
        # Outside of the axes, whose title and curves would meet it.
        figure.legend(frameon=False, loc="outside lower center", ncols=len(curves), fontsize=9)
        described = [(f"{c.label} at {e:g}", v, 0.0) for c in curves for e, v in zip(c.epsilon, c.error)]
        return _svg(figure, f"{title}, error against epsilon: {_said(described)}")


def _styled(salt: str) -> AbstractContextManager[None]:
    """The salt makes identifiers repeatable, and different between the plots of one page."""
    style: Any = _STYLE | {"svg.hashsalt": salt}
    return matplotlib.rc_context(style)


def _axes(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def _said(bars: Sequence[tuple[str, float, float]]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value, _ in bars)


def _svg(figure: Figure, description: str) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # Inside a page the prologue, the metadata and the namespaces, which look like addresses, have no use.
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r"'DejaVu Sans'", "system-ui, 'DejaVu Sans', Arial, sans-serif", text)
    label = description.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    text = re.sub(r'(<svg\b)([^>]*?)\s(?:width|height)="[^"]*"', r"\1\2", text)
    text = re.sub(r'(<svg\b)([^>]*?)\s(?:width|height)="[^"]*"', r"\1\2", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)

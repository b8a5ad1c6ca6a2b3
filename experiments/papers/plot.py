"""Curves of a reproduction as SVG and PNG, readable in black and white."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

try:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise SystemExit("figures of the papers need the extra plots; run: pip install 'comity[plots]'") from error

_MARKERS = "osD^vP*X"
_STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Curve:
    """Means with their standard deviations; `style` 0 to 3 is the kind of line, so that kinds differ without colour."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...]
    style: int = 0


@dataclass(frozen=True)
class Level:
    """A value that does not depend on the horizontal axis."""

    label: str
    y: float


@dataclass(frozen=True)
class Panel:
    """One pair of axes. Levels are named at the right edge, curves in a legend."""

    title: str
    curves: tuple[Curve, ...]
    levels: tuple[Level, ...] = ()


def draw(
    stem: Path,
    panels: Sequence[Panel],
    *,
    title: str,
    x: str,
    y: str,
    caption: str,
    y_range: tuple[float, float] = (0.0, 1.0),
    logarithmic: bool = True,
) -> list[Path]:
    """Write `stem`.svg and `stem`.png: panels side by side with one vertical axis, the horizontal one logarithmic, or
    with a tick at each of its places."""
    # Without a date, and with ids from a fixed salt, the same figures give the same file.
    with rc_context({"svg.hashsalt": stem.name, "font.size": 9}):
        figure = Figure(figsize=(4.6 * len(panels) + (0 if logarithmic else 1.2), 4.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, panel in zip(axes, panels):
            for number, curve in enumerate(panel.curves):
                axis.errorbar(
                    curve.x,
                    curve.y,
                    yerr=curve.spread,
                    label=curve.label,
                    linestyle=_STYLES[curve.style % len(_STYLES)],
                    marker=_MARKERS[number % len(_MARKERS)],
                    capsize=2,
                    linewidth=1.3,
                    markersize=5,
                )
            for level in panel.levels:
                axis.axhline(level.y, color="0.6", linewidth=0.8, zorder=0)
                axis.annotate(
                    level.label,
                    (1.0, level.y),
                    xycoords=("axes fraction", "data"),
                    xytext=(-3, 1.5),
                    textcoords="offset points",
                    ha="right",
                    fontsize=7.5,
                    color="0.3",
                )
            axis.set_ylim(*y_range)
            places = sorted({place for curve in panel.curves for place in curve.x})
            # Room at the right for the names of the levels.
            if logarithmic:
                axis.set_xscale("log")
                axis.set_xlim(min(places) / 1.5, max(places) * 7)
            else:
                length = max(places) - min(places)
                axis.set_xticks(places)
                axis.set_xlim(min(places) - 0.1 * length, max(places) + (0.5 if panel.levels else 0.1) * length)
            axis.set_title(panel.title, fontsize=9)
            axis.set_xlabel(x)
            axis.spines[["top", "right"]].set_visible(False)
            if logarithmic:
                axis.legend(fontsize=7.5, loc="upper right", bbox_to_anchor=(1.0, 0.88), frameon=False)
        if not logarithmic:
            figure.legend(*axes[0].get_legend_handles_labels(), fontsize=7.5, loc="outside right upper", frameon=False)
        axes[0].set_ylabel(y)
        figure.suptitle(title, fontsize=11)
        figure.supxlabel(caption, fontsize=7.5, color="0.3")
        written = [stem.with_suffix(suffix) for suffix in (".svg", ".png")]
        figure.savefig(written[0], metadata={"Date": None})
        figure.savefig(written[1], dpi=150)
    return written

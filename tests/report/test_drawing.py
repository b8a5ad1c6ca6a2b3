"""Plots that are written out: where marks lie, and that every text is inside."""

from __future__ import annotations

import re
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from comity.artefacts.section import Bar, Bars, Dot, Dots
from comity.report.plots import choose_ticks, draw_bars, draw_dots, format_ticks, text_width


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 0.48, ["0.0", "0.1", "0.2", "0.3", "0.4"]),
        (-2.1, 3.1, ["−2", "−1", "0", "1", "2", "3"]),
        (0, 0.013, ["0.0000", "0.0025", "0.0050", "0.0075", "0.0100", "0.0125"]),
        (0, 120_000, ["0", "20000", "40000", "60000", "80000", "100000", "120000"]),
    ],
)
def test_an_axis_has_few_round_figures(low: float, high: float, expected: Any) -> None:
    assert format_ticks(choose_ticks(low, high)) == expected


def texts(plot: str) -> list[tuple[float, float, str, bool]]:
    """Where each text begins and ends, what it says, and whether it is bold."""
    found = []
    for element in ElementTree.fromstring(plot).iter("text"):
        words, bold = element.text or "", element.get("font-weight") == "bold"
        x, wide = float(element.get("x", "nan")), text_width(words, bold=bold)
        start = x - {"start": 0.0, "middle": wide / 2, "end": wide}[element.get("text-anchor", "")]
        found.append((start, start + wide, words, bold))
    return found


PLOTS = {
    "bars": draw_bars(Bars("About", "errors", (Bar("pooled", 0.1), Bar("ours", 0.2, 0.05, ours=True))), "salt"),
    "long": draw_bars(Bars("About", "a very long label " * 6, (Bar("a label & more of <it> " * 2, 3.0),)), "salt"),
    "none": draw_bars(Bars("About", "errors", (Bar("pooled", 0.0),)), "salt"),
    "below": draw_bars(Bars("About", "gain", (Bar("pooled", -0.5), Bar("ours", 0.25))), "salt"),
    "dots": draw_dots(Dots("About", "weight", (Dot("age", 2.0), Dot("sex=f", -1.0)), 0.3)),
    "zero": draw_dots(Dots("About", "weight", (Dot("age", 0.0),))),
}


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_no_text_sticks_out_and_none_is_markup(plot: Any) -> None:
    left, _, wide, _ = map(float, cast(Any, re.search(r'viewBox="([^"]+)"', plot))[1].split())
    for start, end, words, _ in texts(plot):
        assert left - 0.5 <= start and end <= left + wide + 0.5, words


def test_bars_are_as_long_as_their_values_and_ours_stands_out() -> None:
    root: Any = ElementTree.fromstring(PLOTS["bars"])
    bars = root.findall("g/rect")
    pooled, ours = (float(one.get("width")) for one in bars)
    assert ours == pytest.approx(2 * pooled, abs=0.02)
    assert bars[0].get("fill").startswith("url(#hatch-") and bars[1].get("fill") == "#17415f"
    assert [words for *_, words, bold in texts(PLOTS["bars"]) if bold] == ["ours", "0.200"]
    none: Any = ElementTree.fromstring(PLOTS["none"])
    assert not float(none.find("g/rect").get("width"))


def test_dots_lie_on_either_side_of_zero_with_their_noise_behind_them() -> None:
    root: Any = ElementTree.fromstring(PLOTS["dots"])
    zero = float(root.find("g/line").get("x1"))
    below, above = sorted(float(one.get("cx")) for one in root.findall("g/circle"))
    right, left = above - zero, zero - below
    assert right == pytest.approx(2 * left, abs=0.05)
    noise = [one for one in root.findall("g/line") if one.get("stroke-width") == "2.2"]
    assert [float(one.get("x2")) - float(one.get("x1")) for one in noise] == [pytest.approx(0.6 * right, abs=0.05)] * 2
    # The line is drawn before its mark, which covers it.
    order = [one.tag for one in root.find("g")]
    assert order.index("circle") > order.index("line")

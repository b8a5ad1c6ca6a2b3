"""Pictures of docs/accuracy.md, drawn from the table on that page: `python -m experiments.accuracy.pictures docs`.

A panel has one table, with accuracy (R² of numbers) against epsilon. Pictures are SVG with text, white behind, two
panels wide to be read on a telephone, and readable without colour. `experiments.accuracy.comparison` draws them too
when it computes the table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

EPSILONS = ("0.1", "1", "10")
_CASE = re.compile(r"^([\w-]+) ([\w-]+) K=(\d+) t=(\d+) eps=([\d.]+)$")
_INK, _GREY, _PALE, _BLUE = "#222222", "#6b757c", "#dfe4e7", "#17415f"
_PANEL, _TALL, _LEFT, _TOP, _ACROSS = 236, 180, 42, 30, 2


@dataclass(frozen=True)
class Shown:
    """A row of the table, as far as pictures show it."""

    method: str
    table: str
    parties: int
    colluders: int
    epsilon: str
    ours: float
    spread: float
    pooled: float
    constant: float
    own: float


@dataclass(frozen=True)
class Series:
    """Rows that share a mark: a method over a number of parties."""

    label: str
    method: str
    parties: int


@dataclass(frozen=True)
class Picture:
    """A file with one panel for each table. The series `reference` gives pooled, own and constant."""

    file: str
    title: str
    series: tuple[Series, ...]
    reference: int = 0


PICTURES = (
    Picture(
        "accuracy-averaging.svg",
        "Averaging: accuracy against epsilon (cps: R²)",
        (Series("with a delta of 1e-6", "averaging", 5), Series("without a delta", "averaging-pure", 5)),
    ),
    Picture(
        "accuracy-vertical.svg",
        "Vertical regression: accuracy against epsilon (cps: R²)",
        (Series("two owners", "vertical", 2), Series("four owners", "vertical", 4)),
    ),
    Picture(
        "accuracy-softlabel.svg",
        "Soft labels: accuracy against epsilon",
        (
            Series("24 parties", "softlabel", 24),
            Series("100 parties", "softlabel", 100),
            Series("500 parties", "softlabel", 500),
        ),
        reference=1,
    ),
)


def read_rows(page: str) -> list[Shown]:
    """The rows of the table on a page, in its order."""
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in page.splitlines() if " K=" in line]
    heads = next(
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in page.splitlines() if "| case |" in line
    )
    return [_read(dict(zip(heads, cells))) for cells in lines if len(cells) == len(heads)]


def _read(row: Mapping[str, str]) -> Shown:
    found = _CASE.match(row["case"])
    if found is None:
        raise ValueError(f"expected a case such as 'averaging adult K=5 t=1 eps=1', found {row['case']!r}")
    figures = (float(row[key]) for key in ("ours", "spread", "pooled", "constant", "own"))
    return Shown(found[1], found[2], int(found[3]), int(found[4]), found[5], *figures)


def draw(picture: Picture, rows: Sequence[Shown]) -> str:
    """One picture of the rows as SVG."""
    kept = {
        (series, row.table, row.epsilon): row
        for series in picture.series
        for row in rows
        if (row.method, row.parties, row.colluders) == (series.method, series.parties, 1)
    }
    tables = list(dict.fromkeys(table for _, table, _ in kept))
    high = -(-(len(tables) + 1) // _ACROSS)
    width, height = _PANEL * _ACROSS + 8, _TALL * high + _TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(picture.title)}" font-family="system-ui, \'DejaVu Sans\', Arial, sans-serif" '
        f'font-size="12">',
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
        _text(10, 20, picture.title, bold=True),
    ]
    for place, table in enumerate(tables):
        x, y = _PANEL * (place % _ACROSS), _TOP + _TALL * (place // _ACROSS)
        cells = [
            [kept[series, table, epsilon] for epsilon in EPSILONS if (series, table, epsilon) in kept]
            for series in picture.series
        ]
        parts += _panel(x, y, table, cells, picture.reference)
    place = len(tables)
    parts += _legend(_PANEL * (place % _ACROSS), _TOP + _TALL * (place // _ACROSS), picture.series)
    return "\n".join([*parts, "</svg>", ""])


def _panel(x: float, y: float, table: str, cells: Sequence[Sequence[Shown]], reference: int) -> list[str]:
    shown = [row for series in cells for row in series]
    level = (cells[reference] or cells[0])[0]
    values = [value for row in shown for value in (row.ours, row.pooled, row.constant)] + [level.own]
    bottom, top = min(values), max(values)
    room = 0.06 * (top - bottom)
    bottom, top = bottom - room, top + room
    left, right, upper, lower = x + _LEFT, x + _PANEL - 6, y + 26, y + _TALL - 28

    def height(value: float) -> float:
        return lower - (lower - upper) * (min(max(value, bottom), top) - bottom) / (top - bottom)

    parts = [_text(left, y + 16, table, bold=True)]
    for tick in _ticks(bottom, top):
        parts.append(_line(left, height(tick), right, height(tick), _PALE))
        parts.append(_text(left - 5, height(tick) + 4, f"{tick:g}", anchor="end", ink=_GREY))
    for value, dashes in ((level.pooled, ""), (level.own, "6 3"), (level.constant, "1.5 3")):
        parts.append(_line(left, height(value), right, height(value), _GREY, dashes=dashes, wide=1.4))
    step = (right - left) / len(EPSILONS)
    for place, epsilon in enumerate(EPSILONS):
        parts.append(_text(left + step * (place + 0.5), lower + 16, epsilon, anchor="middle", ink=_GREY))
    for number, series in enumerate(cells):
        for row in series:
            at = left + step * (EPSILONS.index(row.epsilon) + 0.5) + 12 * (number - (len(cells) - 1) / 2)
            parts.append(_line(at, height(row.ours - row.spread), at, height(row.ours + row.spread), _BLUE))
            parts.append(_mark(at, height(row.ours), number))
    return parts


def _legend(x: float, y: float, series: Sequence[Series]) -> list[str]:
    parts = []
    for number, one in enumerate(series):
        parts += [_mark(x + 54, y + 22 + 20 * number, number), _text(x + 76, y + 26 + 20 * number, one.label)]
    lines = (("pooled", ""), ("a party alone", "6 3"), ("constant", "1.5 3"))
    for number, (label, dashes) in enumerate(lines, start=len(series)):
        at = y + 22 + 20 * number
        parts += [_line(x + 42, at, x + 66, at, _GREY, dashes=dashes, wide=1.4), _text(x + 76, at + 4, label)]
    return [*parts, _text(x + 42, y + 26 + 20 * (len(series) + 3), "bars: ± one deviation", ink=_GREY)]


def _ticks(bottom: float, top: float) -> list[float]:
    """Two to five round values between the ends."""
    for step in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01):
        first = -(-bottom // step)
        found = [round(step * (first + number), 4) for number in range(9) if step * (first + number) <= top]
        if len(found) >= 3:
            return found
    return [round(bottom, 3), round(top, 3)]


def _mark(x: float, y: float, number: int) -> str:
    if number == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{_BLUE}"/>'
    if number == 1:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#ffffff" stroke="{_BLUE}" stroke-width="1.6"/>'
    return f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7" fill="{_BLUE}"/>'


def _text(x: float, y: float, words: str, *, anchor: str = "start", bold: bool = False, ink: str = _INK) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{ink}"{weight}>{escape(words)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, ink: str, *, dashes: str = "", wide: float = 1) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {ends} stroke="{ink}" stroke-width="{wide:g}"{dashed}/>'


def draw_all(folder: Path) -> None:
    """Write the pictures of accuracy.md in a folder beside it."""
    rows = read_rows((folder / "accuracy.md").read_text("utf-8"))
    for picture in PICTURES:
        (folder / picture.file).write_text(draw(picture, rows), encoding="utf-8")


if __name__ == "__main__":
    draw_all(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))

"""The page of all tables and figures, as Markdown and as one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.papers.exhibit import Exhibit, Line, Measured, Trend
from experiments.papers.page import Figure, html_figure

if TYPE_CHECKING:
    from experiments.papers.all_papers import Chapter

TITLE = "The five papers, computed again"
ROUNDING = 1e-12  # of a figure: what adding equal figures in floating point leaves of their spread
HEADS = ("case", "paper", "as published, here", "our default", "constant", "no privacy", "note")
_STYLE = """
body{font:16px/1.5 sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}
h2{margin-top:3rem;border-top:2px solid #222;padding-top:.5rem}h3{margin-top:2rem}
figure{margin:1rem 0}img{max-width:100%;height:auto}figcaption,.unit{color:#555}
table{border-collapse:collapse;font-size:.85rem;width:100%}
td,th{padding:.2rem .6rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}
td.figure,th.figure{text-align:right;white-space:nowrap}.spread{color:#555}
.verdict{font-weight:bold;border:1px solid #222;border-radius:.2rem;padding:0 .4rem;white-space:nowrap}
.agrees{background:#fff}.reversed{background:#222;color:#fff}.differs{background:#ddd}
@media(max-width:700px){table.lines,table.lines tbody,table.lines tr,table.lines td{display:block;width:auto}
table.lines tr.head{display:none}table.lines tr{border-bottom:2px solid #999;padding:.4rem 0}
table.lines td{border:0;text-align:left;white-space:normal;padding:.1rem 0;overflow-wrap:anywhere}
table.lines td[data-head]:before{content:attr(data-head) ": ";color:#555}table.lines td.empty{display:none}
td,th{overflow-wrap:anywhere;padding:.2rem}table.overview{font-size:.75rem}}
""".replace("\n", "")


def write_markdown(path: Path, chapters: Sequence[Chapter], *, quick: bool) -> None:
    lines = [f"# {TITLE}", "", *_with_gaps(_introduction(quick))]
    lines += [f"## {_GLANCE}", "", *_with_gaps(_GLANCE_INTRODUCTION)]
    lines += [*_markdown_table(_GLANCE_HEADS, _glance(chapters)), ""]
    lines += ["## What agrees and what does not", "", _totals(chapters), ""]
    lines += _markdown_table(_OVERVIEW, _overview(chapters))
    for chapter in chapters:
        lines += ["", f"## {chapter.publication.citation}", ""]
        lines += [f"Method in Comity: `{chapter.publication.method}`."]
        for exhibit in chapter.exhibits:
            lines += ["", f"### {exhibit.name}: {exhibit.title}", "", *_with_gaps(_about(exhibit))]
            lines += [f"![{caption}]({file.name})" for file, caption in exhibit.pictures]
            lines += [""] if exhibit.pictures else []
            lines += _markdown_table(HEADS, [_cells(line) for line in exhibit.lines])
            if exhibit.trends:
                lines += ["", *_markdown_table(_VERDICTS, [_verdict(trend) for trend in exhibit.trends])]
    lines += ["", "## What it took", "", *_markdown_table(_TOOK, _took(chapters))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_html(path: Path, chapters: Sequence[Chapter], *, quick: bool) -> None:
    body = [f"<h1>{TITLE}</h1>", *(f"<p>{escape(one.replace('`', ''))}</p>" for one in _introduction(quick))]
    body += [f"<h2>{_GLANCE}</h2>", *(f"<p>{escape(one)}</p>" for one in _GLANCE_INTRODUCTION)]
    body += [_html_table(_GLANCE_HEADS, _glance(chapters), figures=range(2, 7))]
    body += ["<h2>What agrees and what does not</h2>", f"<p>{_totals(chapters)}</p>"]
    body += [_html_table(_OVERVIEW, _overview(chapters), name="overview")]
    for chapter in chapters:
        body.append(f"<h2>{escape(chapter.publication.citation)}</h2>")
        body.append(f"<p>Method in Comity: <code>{escape(chapter.publication.method)}</code>.</p>")
        for exhibit in chapter.exhibits:
            body.append(f"<h3>{escape(exhibit.name)}: {escape(exhibit.title)}</h3>")
            body += [f"<p>{escape(one)}</p>" for one in _about(exhibit)]
            body += [html_figure(Figure(file, caption)) for file, caption in exhibit.pictures]
            body.append(_html_table(HEADS, [_cells(line) for line in exhibit.lines], figures=range(1, 6)))
            body += [_html_trend(trend) for trend in exhibit.trends]
    body += ["<h2>What it took</h2>", _html_table(_TOOK, _took(chapters), name="overview")]
    path.write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{TITLE}</title><style>{_STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n",
        encoding="utf-8",
    )


_GLANCE = "At a glance"
_GLANCE_INTRODUCTION = ("One or two lines of each paper; all of them stand below, with what each figure is.",)
_GLANCE_HEADS = ("paper", "line", *HEADS[1:6], "figures are")
_OVERVIEW = ("method", "table or figure", "lines", "agrees", "reversed", "differs")
_VERDICTS = ("the paper says", "verdict", "figures of this run", "why")
_TOOK = ("method", "computation", "CPU seconds")


def _introduction(quick: bool) -> tuple[str, ...]:
    command = "make papers QUICK=1" if quick else "make papers"
    return (
        f"This page was written by `{command}`; every figure and every verdict on it was computed by that run"
        + (", with fewer repeats than the papers'." if quick else "."),
        "A line has the paper's figure, what the method as published gives here, what our default gives on the same "
        "task, and two levels to compare with: a constant prediction, and the same model without privacy. Our figures "
        "are means ± one standard deviation, with the number of repeats in brackets. Where the paper has no figure the "
        "cell says why.",
        "A verdict compares what a paper says about its table or figure with our figures: they agree, they show the "
        "reverse, or they differ.",
    )


def _glance(chapters: Iterable[Chapter]) -> list[tuple[str, ...]]:
    """The headlines of each paper that this run computed."""
    rows: list[tuple[str, ...]] = []
    for chapter in chapters:
        for headline in chapter.publication.headlines:
            for exhibit in (one for one in chapter.exhibits if one.name == headline.exhibit):
                for line in (one for one in exhibit.lines if one.case == headline.case):
                    case, *figures, _ = _cells(line)
                    rows.append((chapter.publication.method, f"{exhibit.name}: {case}", *figures, exhibit.unit))
    return rows


def _about(exhibit: Exhibit) -> list[str]:
    said = [f"{exhibit.unit[:1].upper()}{exhibit.unit[1:].rstrip('.')}. {exhibit.setting}"]
    return said + [f"Not to be had: {one}" for one in exhibit.missing]


def _cells(line: Line) -> tuple[str, ...]:
    paper = line.source if line.paper is None else f"{_number(line.paper)} ({line.source})"
    levels = ("" if one is None else _number(one) for one in (line.constant, line.non_private))
    return (line.case, paper, _measured(line.published), _measured(line.default), *levels, line.why)


def _measured(found: Measured | None) -> str:
    if found is None:
        return ""
    mean = _number(found.mean)
    if found.repeats == 1:
        return mean
    spread = found.spread if found.spread > ROUNDING * abs(found.mean) else 0.0
    return f"{mean} ± {spread:.2g} ({found.repeats})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def _verdict(trend: Trend) -> tuple[str, ...]:
    return (trend.claim, trend.verdict, trend.evidence, trend.why)


def _overview(chapters: Iterable[Chapter]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for chapter in chapters:
        for exhibit in chapter.exhibits:
            told = Counter(trend.verdict for trend in exhibit.trends)
            counts = (str(told["agrees"]), str(told["reversed"]), str(told["differs"]))
            rows.append((chapter.publication.method, exhibit.name, str(len(exhibit.lines)), *counts))
    return rows


def _totals(chapters: Iterable[Chapter]) -> str:
    every = [trend.verdict for chapter in chapters for exhibit in chapter.exhibits for trend in exhibit.trends]
    told = Counter(every)
    return (
        f"Of {len(every)} things that the papers say about their tables, figures and theorems, {told['agrees']} agree, "
        f"{told['reversed']} are reversed and {told['differs']} differ."
    )


def _took(chapters: Iterable[Chapter]) -> list[tuple[str, ...]]:
    return [
        (chapter.publication.method, one.name, f"{one.seconds:.0f}") for chapter in chapters for one in chapter.computed
    ]


def _with_gaps(paragraphs: Iterable[str]) -> list[str]:
    return [line for paragraph in paragraphs for line in (paragraph, "")]


def _markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def _html_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, figures: Iterable[int] = (), name: str = "lines"
) -> str:
    """On narrow screens the rows of a table named "lines" are shown one below the other, with the heads."""
    right = set(figures)
    lines = ["".join(f"<th{_class(place, right)}>{escape(head)}</th>" for place, head in enumerate(heads))]
    cells = [
        "".join(
            f'<td{_class(place, right, empty=not cell)} data-head="{escape(heads[place])}">{escape(cell)}</td>'
            for place, cell in enumerate(row)
        )
        for row in rows
    ]
    whole = "".join(f"<tr>{line}</tr>" for line in cells)
    return f'<table class="{name}"><tr class="head">{lines[0]}</tr>{whole}</table>'


def _class(place: int, right: set[int], *, empty: bool = False) -> str:
    names = [name for name, holds in (("figure", place in right), ("empty", empty)) if holds]
    return f' class="{" ".join(names)}"' if names else ""


def _html_trend(trend: Trend) -> str:
    why = f" {escape(trend.why)}" if trend.why else ""
    return (
        f'<p><span class="verdict {trend.verdict}">{trend.verdict}</span> {escape(trend.claim)} '
        f'<span class="unit">Here: {escape(trend.evidence.rstrip("."))}.</span>{why}</p>'
    )

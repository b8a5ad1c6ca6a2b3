"""One page of every table and figure: verdicts follow the figures, cells have their reasons, no line is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest

from comity.errors import BadInput
from experiments.papers.all_papers import Chapter, Computed, as_rows, as_verdicts, write_pages
from experiments.papers.exhibit import Exhibit, Line, Measured, Trend, judge_between, judge_near, judge_order
from experiments.papers.exhibit_page import write_markdown
from experiments.papers.publications import PUBLICATIONS, Headline, Publication

LINES = (
    Line(
        "eps 1 | <b>",
        0.212,
        "Table 2",
        published=Measured.of([0.2, 0.3]),
        default=Measured(0.16),
        constant=0.24,
        non_private=0.15,
        why="noise",
    ),
    Line("malicious URLs", None, "plotted only", why="the dataset can't be had; digits stand in"),
)


def exhibit(out: Path) -> Exhibit:
    picture = out / "drawn.svg"
    picture.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    trends = (
        Trend("errors fall with epsilon", judge_order([0.3, 0.2], expected="falling"), "0.3, 0.2"),
        Trend("trees beat a constant", "reversed", "0.25 against 0.24", "leaf noise exceeds leaf counts"),
    )
    return Exhibit(
        "Table 2", "errors", "test error, lower is better", "Two agents.", LINES, trends, ("IPUMS",), ((picture, "a"),)
    )


def compute(*, quick: bool, out: Path) -> tuple[Exhibit, ...]:
    return (exhibit(out),)


EXHIBITS = (compute,)
HERE = Publication("averaging", "A. Author, <A Title>, 2010", __name__, (Headline("Table 2", "eps 1 | <b>"),))
PAGE = Path(__file__).parents[3] / "docs/papers/papers.md"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Chapter, ...]]:
    out = tmp_path_factory.mktemp("papers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMITY_DATA", str(out))
        chapters = write_pages(quick=True, out=out, workers=1, publications=[HERE])
    return out, chapters


@pytest.mark.parametrize(
    ("values", "expected", "verdict"),
    [
        ([3, 2, 1], "falling", "agrees"),
        ([1, 2, 3], "falling", "reversed"),
        ([1, 3, 2], "falling", "differs"),
        ([1, 1.04, 1.08], "rising", "differs"),
        ([3, 3.05, 1], "falling", "agrees"),
    ],
)
def test_an_order_is_judged_by_its_steps_and_ends(
    values: list[float], expected: Literal["falling", "rising"], verdict: str
) -> None:
    assert judge_order(values, expected=expected, tolerance=0.1) == verdict


def test_pairs_are_judged_by_their_difference() -> None:
    assert judge_between(0.1, 0.2, lower_is_better=True) == "agrees"
    assert judge_between(0.1, 0.2, lower_is_better=False) == "reversed"
    assert judge_between(0.19, 0.2, lower_is_better=True, tolerance=0.05) == "differs"
    assert judge_near(0.21, 0.2, tolerance=0.02) == "agrees"
    assert judge_near(0.25, 0.2, tolerance=0.02) == "differs"


def test_a_line_without_the_papers_figure_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="say where the paper has this figure"):
        Line("eps 1", None, "", default=Measured(0.1))
    with pytest.raises(ValueError, match="nothing was measured"):
        Line("eps 1", 0.2, "Table 2")
    with pytest.raises(ValueError, match="say why it reversed"):
        Trend("errors fall", "reversed", "0.1, 0.2")


def test_pages_have_every_line_and_verdict_escaped(pages: tuple[Path, tuple[Chapter, ...]]) -> None:
    out, _ = pages
    html, markdown = (out / "papers.html").read_text("utf-8"), (out / "papers.md").read_text("utf-8")
    for text in (html, markdown):
        for piece in ("0.212 (Table 2)", "0.25 ± 0.05 (2)", "plotted only", "reversed", "Not to be had: IPUMS"):
            assert piece in text
    assert "eps 1 | &lt;b&gt;" in html and "<b>" not in html and "<A Title>" not in html
    assert "eps 1 \\| <b>" in markdown
    assert not re.search(r"""(src|href)=["']?https?:|<script|@import""", html)


def test_the_summary_has_each_headline_with_its_figures(pages: tuple[Path, tuple[Chapter, ...]]) -> None:
    out, _ = pages
    glance = (out / "papers.md").read_text("utf-8").split("## At a glance")[1].split("## ")[0]
    row = "| averaging | Table 2: eps 1 \\| <b> | 0.212 (Table 2) | 0.25 ± 0.05 (2) | 0.16 | 0.24 | 0.15 |"
    assert row in glance and "test error, lower is better" in glance


@pytest.mark.parametrize("publication", PUBLICATIONS, ids=lambda one: one.method)
def test_the_committed_page_has_a_headline_of_each_paper_with_figures_of_ours(publication: Publication) -> None:
    glance = PAGE.read_text("utf-8").split("## At a glance")[1].split("## What agrees")[0]
    assert publication.headlines
    for headline in publication.headlines:
        (row,) = [one for one in glance.splitlines() if f"| {headline.exhibit}: {headline.case} |" in one]
        published, default = row.split(" | ")[3:5]
        assert published and default, row


def test_equal_figures_have_no_spread(tmp_path: Path) -> None:
    figures = Measured.of([0.1 + 0.2, 0.3, 0.3])
    assert figures.spread > 0
    line = Line("eps 1", 0.2, "Table 2", published=figures)
    shown = Exhibit("Table 1", "errors", "test error", "Here.", (line,), ())
    write_markdown(tmp_path / "page.md", [Chapter(HERE, (Computed("one", (shown,), 0.0),))], quick=True)
    assert "| 0.3 ± 0 (3) |" in (tmp_path / "page.md").read_text("utf-8")


def test_documents_for_programs_have_every_line_and_verdict(pages: tuple[Path, tuple[Chapter, ...]]) -> None:
    _, chapters = pages
    first, second = as_rows(chapters)
    assert first["paper"] == 0.212 and first["published"] == 0.25 and first["default repeats"] == 1
    assert second["paper"] is None and second["source"] == "plotted only"
    assert [one["verdict"] for one in as_verdicts(chapters)] == ["agrees", "reversed"]


def test_without_data_one_sentence_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMITY_DATA", raising=False)
    with pytest.raises(BadInput, match="COMITY_DATA is not set"):
        write_pages(quick=True, out=tmp_path, publications=[HERE])


@pytest.mark.parametrize("publication", PUBLICATIONS, ids=lambda one: one.method)
def test_every_paper_has_its_tables_and_figures(publication: Publication) -> None:
    names = [one.__name__ for one in publication.computations()]
    assert names and len(set(names)) == len(names)

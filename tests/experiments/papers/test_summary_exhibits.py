"""Exhibits of the summary paper: every line has a source and figures of the run, and verdicts can go both ways."""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import Any

import pytest

from comity.methods.summary import Measured as Choice
from experiments.papers.exhibit import Exhibit
from experiments.papers.summary import figures, published_runs, section4, section_f, theorem2
from experiments.papers.summary.exhibits import EXHIBITS
from experiments.papers.summary.figures import (
    CORRECTED,
    DEFAULT,
    GREEDY,
    PRINTED,
    UNIFORM,
    Point,
    Size,
    accuracy_trends,
    discrepancy_lines,
    discrepancy_trends,
    judge_all,
    judge_gain,
)
from experiments.papers.summary.section4 import Totals, hash_trend, laplace_delta, section_4_totals, totals_trends
from experiments.papers.summary.section_f import hash_model_trend
from experiments.papers.summary.tasks import SOURCES
from experiments.papers.summary.theorem2 import parsimony_trend

from .test_summary import clouds


def point(count: int, **values: tuple[float, float]) -> Point:
    """MMD² and accuracy by algorithm, two equal splits."""
    names = {"printed": PRINTED, "default": DEFAULT, "greedy": GREEDY, "uniform": UNIFORM, "corrected": CORRECTED}
    found = Point(count, majority=[0.5])
    for key, (discrepancy, accuracy) in values.items():
        for _ in range(2):
            found.add(names[key], Choice(key, discrepancy, accuracy))
    return found


GOOD = {"printed": (0.02, 0.88), "default": (0.03, 0.87), "greedy": (0.01, 0.89), "uniform": (0.1, 0.8)}
BAD = {**GOOD, "printed": (0.4, 0.5)}


def verdicts(points: list[Point]) -> list[str]:
    return [trend.verdict for trend in (*discrepancy_trends(points), *accuracy_trends(points))]


def test_verdicts_of_the_figures_follow_from_the_figures() -> None:
    assert verdicts([point(50, **GOOD), point(100, **GOOD)]) == ["agrees"] * 4
    assert verdicts([point(50, **BAD), point(100, **BAD)]) == ["reversed", "reversed", "reversed", "differs"]
    assert verdicts([point(50, **GOOD), point(100, **BAD)]) == ["differs"] * 4
    assert judge_all(["agrees", "agrees"]) == "agrees" and judge_all(["agrees", "reversed"]) == "differs"
    assert judge_gain([0.07, 0.2], least=0.06, most=0.1) == "differs"
    evidence = discrepancy_trends([point(50, **BAD)])[0].evidence
    assert "p = 50: 0.4, 0.1, 0.01" in evidence


def test_the_increase_is_the_papers_and_the_plain_ratio_stands_beside_it() -> None:
    """(MMD² − greedy's)/MMD²: at most 100 percent, however far off."""
    lines = discrepancy_lines(point(50, **BAD, corrected=(0.02, 0.8)))
    assert lines[0].published is not None and lines[0].published.mean == pytest.approx(97.5)
    assert lines[0].default is not None and lines[0].default.mean == pytest.approx(200 / 3)
    assert "as published 40, default 3, uniform 10" in lines[0].why
    assert [line.case.split(",")[0] for line in lines] == ["private greedy", "uniform sampling", "private greedy"]


def test_totals_are_those_of_the_paper_and_claims_are_judged_by_a_lower_bound() -> None:
    totals = section_4_totals()
    assert [trend.verdict for trend in totals_trends(totals)] == ["agrees", "agrees", "reversed", "reversed"]
    honest = Totals(1.5, 0.05, 1.3, 0.04, 0.009, 0.00009)
    assert [trend.verdict for trend in totals_trends(honest)] == ["differs", "differs", "agrees", "agrees"]


def test_the_delta_of_measurements_is_a_lower_bound_that_is_nearly_reached() -> None:
    for each, epsilon in ((1.0, 0.5), (0.3, 0.1)):
        exact = 1 - exp((epsilon - each) / 2)
        assert 0.97 * exact < laplace_delta(each, 1, epsilon) <= exact
    assert laplace_delta(0.1, 4, 0.45) == 0
    # Two measurements at the sum of their losses need none; many at less than that do.
    assert laplace_delta(0.1, 100, 0.5) > laplace_delta(0.1, 50, 0.5) > 0


def test_other_verdicts_can_go_both_ways() -> None:
    assert hash_trend([0.01], [0.6]).verdict == "agrees" and hash_trend([0.3], [0.6]).verdict == "reversed"
    assert parsimony_trend((4, 16, 48), (1.5, 2.5, 3.6)).verdict == "agrees"
    assert parsimony_trend((4, 16, 48), (2.0, 4.0, 9.0)).verdict == "reversed"
    assert hash_model_trend(0.8, 0.81).verdict == "agrees" and hash_model_trend(0.6, 0.81).verdict == "reversed"


def check_shape(found: tuple[Exhibit, ...], names: list[str]) -> None:
    assert [one.name for one in found] == names
    for one in found:
        assert one.lines and one.trends and one.setting and one.missing
        assert all(line.source and line.why for line in one.lines)
        assert all(file.exists() and file.suffix == ".svg" and caption for file, caption in one.pictures)


def test_exhibits_run_on_small_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("cps", "mnist"):
        monkeypatch.setitem(SOURCES, name, clouds)
    monkeypatch.setattr(figures, "QUICK", Size((4, 6), 1, (6,), 1))
    published = published_runs.run_published

    def shorter(one: Any, count: int, **more: Any) -> Any:
        return published(one, min(count, 6), **{"t_init": 60, **more})

    def of_both_classes(one: Any, count: int, **more: Any) -> Any:
        # Six records may have one class, and a classifier of them needs two.
        return published(one, min(count, 40), **{"t_init": 60, **more})

    for module in (figures, theorem2):
        monkeypatch.setattr(module, "run_published", shorter)
    monkeypatch.setattr(section_f, "run_published", of_both_classes)
    monkeypatch.setattr(theorem2, "measure_parsimony", lambda owners, rounds, tau: owners / tau)
    assert len(EXHIBITS) == 5
    check_shape(figures.figure_1(quick=True, out=tmp_path), ["Figure 1, top", "Figure 1, bottom"])
    check_shape(section4.section_4(quick=True, out=tmp_path), ["Section 4, constants"])
    evaluated = theorem2.theorem_2(quick=True, out=tmp_path)
    check_shape(evaluated, ["Theorem 2"])
    assert evaluated[0].trends[1].verdict == "reversed"
    check_shape(section_f.section_f(quick=True, out=tmp_path), ["Section F"])
    assert len(list(tmp_path.glob("*.svg"))) == 2


def test_parsimony_is_measured_in_runs() -> None:
    assert 1 <= theorem2.measure_parsimony(3, 4, 5) <= 3
    assert theorem2.measure_parsimony(3, 4, 1) == 3

"""Exhibits of Hamm, Cao and Belkin (2016) on small generated records: their form, and verdicts that go both ways."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.errors import DataError
from experiments.papers.exhibit import Exhibit, Measured
from experiments.papers.plot import Panel
from experiments.papers.publications import PUBLICATIONS
from experiments.papers.softlabel import exhibits, har, mnist
from experiments.papers.softlabel.error_bound import best_bound, error_bound, log_slope, noise_radius
from experiments.papers.softlabel.exhibits import (
    EXHIBITS,
    WRONG,
    Figure,
    StandIn,
    exhibit_activities,
    exhibit_bound,
    exhibit_intrusions,
    exhibit_urls,
    falls,
    judge_all,
    lines_of,
    worse_than_indiv,
)
from experiments.papers.softlabel.kdd import Size, trial
from experiments.papers.softlabel.scores import (
    METHODS,
    Effort,
    Point,
    Scores,
    published,
    votes_and_means,
    without_constant,
)
from tests.softlabel.consortia import make_cohort

from .test_softlabel_default import stand_in_kdd

EFFORT = Effort(draws=2, default_draws=1, pooled=500, sampled=5)


def digits() -> mnist.Digits:
    generator = np.random.default_rng(6)
    labels = np.arange(900) % 10
    ink = generator.integers(0, 200, (10, 20))
    pixels = np.clip(ink[labels] + generator.normal(0, 20, (900, 20)), 0, 255).astype(np.uint8)
    return mnist.Digits(pixels, labels, np.arange(900) < 700)


def activities() -> har.Activities:
    generator = np.random.default_rng(3)
    labels = np.arange(300) % 6
    centres = generator.normal(size=(6, 12)) + 1.0
    features = centres[labels] + 0.4 * generator.normal(size=(300, 12))
    return har.Activities(features, labels, tuple("abcdef"), np.arange(300) < 220)


drawn: dict[str, list[Panel]] = {}


def draw_quickly(stem: Path, panels: list[Panel], **_: Any) -> list[Path]:
    """Panels as they would be drawn: a real drawing takes seconds, and other tests make them."""
    drawn[stem.name] = panels
    stem.with_suffix(".svg").write_text("<svg/>")
    return [stem.with_suffix(".svg")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Exhibit]]:
    out = tmp_path_factory.mktemp("pictures")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exhibits, "draw", draw_quickly)
        yield make_all(out)


def make_all(out: Path) -> dict[str, Exhibit]:
    small = har.Size(
        parties=20,
        records=5,
        auxiliary=40,
        dimensions=6,
        splits=1,
        draws=2,
        random_splits=0,
        hosts=(),
        default_hosts=(),
    )
    stand_in = StandIn(parties=40, records=5, auxiliary=150, dimensions=8, compared=(20, 10))
    found = (
        exhibit_activities(activities(), small, 1, out),
        exhibit_intrusions(stand_in_kdd(), Size(parties=(40, 20), records=8, auxiliary=150, splits=1), EFFORT, out),
        exhibit_urls(digits(), stand_in, EFFORT, out),
        exhibit_bound(digits(), stand_in, (20, 40), 5),
    )
    return {one.name: one for one in found}


def test_every_figure_of_the_paper_has_an_exhibit_and_every_line_a_source(made: dict[str, Exhibit]) -> None:
    assert list(made) == ["Figure 2", "Figure 3", "Figure 4", "Theorem 4"]
    for exhibit in made.values():
        assert exhibit.lines and exhibit.trends and exhibit.setting
        assert len({line.case for line in exhibit.lines}) == len(exhibit.lines)
        for line in exhibit.lines:
            assert line.source and line.why
    assert any("Figure 1" in one for one in made["Figure 2"].missing)
    assert any("can't be had" in one for one in made["Figure 4"].missing)


def test_both_radii_are_lines_and_the_wrong_one_says_so(made: dict[str, Exhibit]) -> None:
    for name, counts in (("Figure 2", [20]), ("Figure 3", [20, 40]), ("Figure 4", [40])):
        lines = {line.case: line for line in made[name].lines}
        assert {"batch", "indiv"} <= set(lines)
        for count in counts:
            for method in METHODS:
                assert lines[f"{method} M={count} 1/eps=0"].published is not None
                right, wrong = (lines[f"{method}{kind} M={count} 1/eps=1"] for kind in ("", " wrong radius"))
                assert right.published is not None and right.default is not None and right.constant is not None
                assert wrong.why == WRONG and wrong.published is not None
        printed, wrong_one = made[name].pictures
        assert WRONG in wrong_one[1] and WRONG not in printed[1]
        for picture, word in ((printed, "printed noise"), (wrong_one, "NOT PRIVATE")):
            panels = drawn[picture[0].stem]
            assert picture[0].is_file() and [panel.title for panel in panels] == [f"M = {count}" for count in counts]
            labels = {curve.label for panel in panels for curve in panel.curves}
            assert labels == {"default", *(f"{method}, {word}" for method in METHODS)}


def test_values_that_the_text_states_stand_beside_ours(made: dict[str, Exhibit]) -> None:
    stated = {line.case: line.paper for line in made["Figure 2"].lines if line.paper is not None}
    assert stated == {
        "batch": 0.90,
        "indiv": 0.47,
        "vote M=20 1/eps=0": 0.79,
        "soft M=20 1/eps=0": 0.76,
        "avg M=20 1/eps=0": 0.67,
    }
    assert all(line.paper is None for name in ("Figure 3", "Figure 4") for line in made[name].lines)


def figure(**changed: float) -> Figure:
    """Curves of three methods that fall from 0.8 to 0.3 over an indiv of 0.5; by name of a method, its last value."""
    scores = Scores(constants=[0.3])
    scores.add(Point("batch", 0), 0.9)
    scores.add(Point("indiv", 0), 0.5)
    for method in METHODS:
        scores.add(Point(method, 7), 0.8)
        for kind in ("published", "wrong radius"):
            for epsilon, value in ((10.0, 0.7), (1.0, changed.get(method, 0.3))):
                scores.add(Point(method, 7, epsilon, kind), value)
    return Figure(scores, (7,), (10.0, 1.0), "plotted", {}, "")


@pytest.mark.parametrize(("last", "verdict"), [(0.3, "agrees"), (0.9, "differs")])
def test_a_curve_that_rises_again_does_not_fall(last: float, verdict: str) -> None:
    printed, wrong = falls(figure(soft=last), 7)
    assert printed.verdict == wrong.verdict == verdict
    assert f"{last:.3f} at 1/eps = 1" in printed.evidence and bool(printed.why) == (verdict != "agrees")


@pytest.mark.parametrize(("last", "verdict"), [(0.3, "agrees"), (0.51, "differs"), (0.7, "reversed")])
def test_uselessness_is_judged_from_the_figures(last: float, verdict: str) -> None:
    for found in worse_than_indiv(figure(vote=last), ("vote",), 7, 1.0, "vote is useless"):
        assert found.verdict == verdict and f"vote {last:.3f}, indiv 0.500" in found.evidence


def test_verdicts_are_joined_without_losing_a_disagreement() -> None:
    assert judge_all(["agrees", "agrees"]) == "agrees" and judge_all(["reversed", "reversed"]) == "reversed"
    assert judge_all(["agrees", "reversed"]) == "differs"


def test_a_point_that_was_not_measured_is_none_and_has_no_line() -> None:
    found = figure()
    assert found.scores.get("default", 7, 1.0, "default") is None
    assert not any(line.case.startswith("default") for line in lines_of(found))
    assert found.scores.get("soft", 7, inf) == Measured(0.8, 0.0, 1)


def test_means_and_votes_are_those_of_the_protocol() -> None:
    """The quick way over distinct rows gives what the steps of the protocol send."""
    one = trial(stand_in_kdd(), Size(parties=(12,), records=8, auxiliary=60), 0)
    rows = without_constant(one)
    assert np.linalg.norm(rows.auxiliary, axis=1) == pytest.approx(1.0)
    ((count, shares, mean),) = votes_and_means(rows, (12,))
    from comity.data import Records

    records = [Records(x, y) for x, y in zip(rows.features, rows.labels)]
    soft, avg = published(rows, "soft"), published(rows, "avg")
    votes, models = make_cohort_of(soft, records).sum(soft.vote), make_cohort_of(avg, records).sum(avg.train)
    assert count == 12
    np.testing.assert_allclose(votes.value / 12, shares, atol=1e-12)
    np.testing.assert_allclose(models.value[0] / 12, mean, atol=2e-3)


def make_cohort_of(protocol: Any, records: Any) -> Any:
    return make_cohort(protocol, records, most=12)


# The bound.

SETTING: dict[str, Any] = {"dimensions": 4, "weight": 10, "epsilon": 2.0, "rows": 100, "norm": 3.0}


def test_the_bound_is_equation_18() -> None:
    found = error_bound(**SETTING, l2=0.1, delta_p=0.05, delta_s=0.02)
    assert found.noise == pytest.approx(4 * 16 * (0.25 + 0.1) * log(4 / 0.05) ** 2 / (0.01 * 100 * 4))
    assert found.sample == pytest.approx(16 * (32 + log(1 / 0.02)) / (0.1 * 100))
    assert found.penalty == pytest.approx(0.1 / 2 * 9) and found.total == found.noise + found.sample + found.penalty


def test_at_a_fixed_penalty_the_noise_falls_with_the_square_and_the_best_bound_more_slowly() -> None:
    given: dict[str, Any] = {"delta_p": 0.05, "delta_s": 0.05}
    few, many = (error_bound(**{**SETTING, "weight": weight}, l2=0.1, **given) for weight in (10, 20))
    assert few.noise / many.noise == pytest.approx(4)
    asked = [{**SETTING, "weight": weight, "rows": 10**15, "epsilon": 1.0} for weight in (10**8, 10**9)]
    least = [best_bound(**one, **given)[0] for one in asked]
    assert log_slope(least[0], least[1], 10) == pytest.approx(-2 / 3, abs=0.02)


@pytest.mark.parametrize("dimensions", [1, 4])
def test_radii_exceed_the_bound_no_more_often_than_said(dimensions: int) -> None:
    """In one dimension exactly as often."""
    radii = np.random.default_rng(1).gamma(dimensions, size=200_000)
    share = float(np.mean(radii > noise_radius(dimensions, 0.05)))
    assert share <= 0.05 + 6 * np.sqrt(0.05 * 0.95 / 200_000)
    assert dimensions > 1 or share == pytest.approx(0.05, abs=0.003)


def test_the_exhibit_of_the_bound_judges_what_it_measured(made: dict[str, Exhibit]) -> None:
    lines = made["Theorem 4"].lines
    assert {line.case for line in lines} == {
        f"{method} M={count} 1/eps={place}"
        for method in ("vote", "soft")
        for count in (20, 40)
        for place in ("0.1", "1")
    }
    for line in lines:
        assert line.paper is not None and line.published is not None and "equation" in line.source
    first = made["Theorem 4"].trends[0]
    assert first.verdict == "agrees" and "1.00 of the settings" in first.evidence


def test_noise_beyond_the_theorem_breaks_the_first_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhibits, "spherical", lambda scale, dimensions, _: np.full(dimensions, 1e12))
    size = StandIn(parties=40, records=5, auxiliary=150, dimensions=8, compared=(20, 10))
    assert exhibit_bound(digits(), size, (20, 40), 2).trends[0].verdict == "differs"


@pytest.mark.parametrize("compute", EXHIBITS, ids=lambda one: one.__name__)
def test_without_data_one_sentence_names_the_variable(
    compute: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COMITY_DATA", raising=False)
    with pytest.raises(DataError, match="COMITY_DATA"):
        compute(quick=True, out=tmp_path)


def test_the_list_of_papers_finds_the_exhibits() -> None:
    (paper,) = [one for one in PUBLICATIONS if one.method == "softlabel"]
    assert paper.computations() == EXHIBITS

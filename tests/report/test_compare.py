"""Runs side by side: only what differs, intervals first, and no comparison of errors on different records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comity.errors import BadInput
from comity.federation.evaluation.assessment import Assessment, Baseline, wilson_interval
from comity.report.compare import compare_results, render_comparison
from comity.report.sentences import describe_quality
from comity.study.results.result import Result
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from tests.support.html import check_page
from tests.support.study_folder import write_study

SHARE = "share of test records that is predicted wrongly"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    path = write_study(tmp_path_factory.mktemp("compared"))
    return {
        f"run-{epsilon:g}": run_study(Study.load(path, overrides={"privacy.epsilon": epsilon}), seed=5)
        for epsilon in (0.5, 8.0)
    }


def test_only_what_differs_is_listed_and_intervals_come_first(results: dict[str, Result]) -> None:
    found = compare_results(results)
    assert found.heads == ("run", "privacy.epsilon", "error", "constant", "own data", "pooled", "cost a party")
    first = found.runs[0]
    assert first.error is not None and first.low is not None and first.high is not None
    assert first.low <= first.error <= first.high
    assert found.rows[0][2] == f"{first.low:.3f} to {first.high:.3f} ({first.error:.3f})"
    assert [row[1] for row in found.rows] == ["0.5", "8.0"]
    assert found.rows[0][-1] == "epsilon 0.50, delta 1e-6"
    assert found.same_records and any("same test records" in note for note in found.notes)


def test_the_page_has_one_plot_and_one_table(results: dict[str, Result]) -> None:
    page = check_page(render_comparison(compare_results(results)))
    assert page.tags.count("svg") == 1 and page.tags.count("table") == 1
    assert "epsilon 0.5" in page.text and "constant" in page.text


@pytest.mark.parametrize("change", ["split_seed", "folder", "constant", "tested"])
def test_errors_on_other_records_are_not_compared(results: dict[str, Result], change: str) -> None:
    (one, first), (two, second) = results.items()
    folders = {one: "here", two: "here"}
    if change == "split_seed":
        second = replace(second, settings={**second.settings, "simulation.split_seed": 3})
    elif change == "folder":
        folders[two] = "elsewhere"
    elif change == "constant":
        other = tuple(replace(b, error=b.error + 0.01) if b.name == "constant" else b for b in second.baselines)
        second = replace(second, assessment=replace(second.assessment, baselines=other))
    else:
        second = replace(second, assessment=replace(second.assessment, tested=99))
    found = compare_results({one: first, two: second}, folders=folders)
    assert not found.same_records and any("different records" in note for note in found.notes)
    assert "Different test records" in check_page(render_comparison(found)).text


def test_one_run_is_no_comparison(results: dict[str, Result]) -> None:
    with pytest.raises(BadInput, match="two runs"):
        compare_results(dict(list(results.items())[:1]))


def test_a_run_without_an_error_is_listed_and_not_drawn(results: dict[str, Result]) -> None:
    (one, first), (two, second) = results.items()
    found = compare_results({one: first, two: replace(second, assessment=Assessment())})
    assert found.runs[1].interval == "not measured" and any("a score is a release" in note for note in found.notes)
    both = compare_results({name: replace(r, assessment=Assessment()) for name, r in results.items()})
    assert not both.draw()


@pytest.mark.parametrize(("share", "records"), [(0.0, 10), (0.2, 50), (0.5, 1000), (1.0, 4)])
def test_an_interval_holds_the_share_and_shrinks_with_records(share: float, records: int) -> None:
    low, high = wilson_interval(share, records)
    assert 0 <= low <= share <= high <= 1
    narrower = wilson_interval(share, 100 * records)
    assert narrower[1] - narrower[0] < high - low


def test_intervals_cover_a_true_share_about_as_often_as_they_say() -> None:
    from math import comb

    records, true = 40, 0.15
    covered = sum(
        comb(records, wrong) * true**wrong * (1 - true) ** (records - wrong)
        for wrong in range(records + 1)
        if wilson_interval(wrong / records, records)[0] <= true <= wilson_interval(wrong / records, records)[1]
    )
    assert 0.92 < covered < 0.99


def told(result: Any, error: float, constant: float, tested: int) -> str:
    found = Assessment(error, SHARE, (Baseline("constant", constant),), tested=tested)
    return describe_quality(replace(result, assessment=found))


def test_too_few_records_are_said_and_a_useless_result_still_is(results: dict[str, Result]) -> None:
    result = results["run-8"]
    assert told(result, 0.30, 0.32, 100).startswith("Too few records to tell")
    assert "Too few" not in told(result, 0.20, 0.40, 1000)
    assert "Too few" not in told(result, 0.30, 0.32, 0)
    assert told(result, 0.33, 0.32, 100).startswith("No better than a constant")


def test_the_number_of_test_records_is_saved(results: dict[str, Result], tmp_path: Path) -> None:
    from comity.report.result import load_result

    result = results["run-8"]
    assert result.assessment.tested == 100
    assert load_result(result.save(tmp_path / "run")).assessment.tested == 100

"""`comity run --sweep`, `comity compare`, and what `comity runs` and `comity report` say without a run's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.html import check_page


def test_a_sweep_runs_each_value_and_compares_them(comity: Any, study: Path) -> None:
    ended = comity("run", "study.toml", "--sweep", "privacy.epsilon=0.5,4", "--seed", 3, "--json")
    assert ended.code == 0, ended.err
    page = ended.document
    assert [one["settings"] for one in page["runs"]] == [{"privacy.epsilon": "0.5"}, {"privacy.epsilon": "4.0"}]
    assert page["same_records"] and check_page(Path(page["page"]).read_text("utf-8"))
    again = comity("compare", "--json").document
    assert [(one["name"], one["error"]) for one in again["runs"]] == [
        (one["name"], one["error"]) for one in page["runs"]
    ]
    listed = comity("runs", "--json").document["runs"]
    assert {one["error"] for one in listed} == {one["error"] for one in page["runs"]}
    assert sorted(round(one["epsilon"], 6) for one in listed) == [0.5, 4.0]
    shown = comity("runs").out
    assert "eps 0.50" in shown and "eps 4.00" in shown and f"{page['runs'][0]['error']:.3f}" in shown
    latest = comity("report", "--no-open")
    assert latest.code == 0 and latest.out.strip().endswith(f"{page['runs'][1]['name']}/report.html")
    # What a shell makes of runs/*: the pages of sweeps stand beside the runs.
    everything = comity("compare", *sorted(Path("runs").iterdir()), "--json")
    assert everything.code == 0 and len(everything.document["runs"]) == 2, everything.err
    text = comity("compare", *(f"runs/{one['name']}" for one in page["runs"]), "--html", "two.html").out
    assert "same test records" in text and "page: two.html" in text and check_page(Path("two.html").read_text("utf-8"))


@pytest.mark.parametrize(
    "sweep", ["privacy.epsilon", "privacy.epsilon=1", "epsilon=1,2", "privacy.epsilon=1,,2", "a.b=1,1"]
)
def test_a_sweep_needs_a_key_and_two_values(comity: Any, study: Path, sweep: str) -> None:
    assert comity("run", "study.toml", "--sweep", sweep).code == 2
    assert not Path("runs").exists()


def test_a_sweep_with_an_impossible_value_runs_nothing(comity: Any, study: Path) -> None:
    ended = comity("run", "study.toml", "--sweep", "privacy.epsilon=1,-1")
    assert ended.code == 3 and "privacy.epsilon" in ended.err and not Path("runs").exists()
    assert comity("run", "--resume", "runs/x", "--sweep", "privacy.epsilon=1,2").code == 2


def test_nothing_to_compare_or_report_is_said(comity: Any, study: Path) -> None:
    assert comity("compare").code == 3
    ended = comity("report", "--no-open")
    assert ended.code == 3 and "no run has ended" in ended.err

"""`comity new NAME --protocol softlabel --variant published`: the study plans, runs and reports as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from comity.cli import main
from comity.study.study import Study


def test_a_study_of_the_paper_plans_runs_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "baseline", "--protocol", "softlabel", "--variant", "published"]) == 0
    monkeypatch.chdir(tmp_path / "baseline")
    capsys.readouterr()
    assert main(["plan", "study.toml"]) == 0
    planned = " ".join(capsys.readouterr().out.split())
    assert "to anyone who sees the model: at most eps 5.00" in planned and "the paper claims eps 10.00" in planned
    assert "the coordinator is trusted and sees each party's votes" in planned
    study = Study.load("study.toml")
    assert all(constant.is_papers for constant in study.method.constants.values())
    # Stacks of parties and no baselines: the same run in a second.
    quick = ("--set", "simulation.hosts=false", "--set", "simulation.baselines=false")
    assert main(["run", "study.toml", "--seed", "7", *quick]) == 0
    assert "1000 parties" in capsys.readouterr().out
    assert list((tmp_path / "baseline" / "runs").glob("*/report.html"))

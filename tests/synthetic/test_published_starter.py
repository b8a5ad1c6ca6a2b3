"""The starter of the published method, from the command line: as written, it plans, runs and reports."""

from __future__ import annotations

from pathlib import Path

import pytest

import comity
from comity.cli import main
from comity.data import Bounded, Classes, Numeric, Schema
from comity.errors import ComityError
from comity.methods import entry_of
from comity.report.result import load_result

SCHEMA = Schema((Numeric("x", 0, 1),), Classes("y", ("a", "b")))


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    said = capsys.readouterr()
    return code, said.out + said.err


def test_the_published_starter_plans_runs_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "new", "baseline", "--protocol", "synthetic", "--variant", "published")[0] == 0
    monkeypatch.chdir(tmp_path / "baseline")
    code, plan = call(capsys, "plan", "study.toml", "--all")
    assert code == 0 and "exponential mechanism" in plan
    assert "at most eps 0.7813; the paper claims eps 1.00" in " ".join(plan.split())
    code, said = call(capsys, "run", "study.toml", "--seed", "7", "--json")
    assert code == 0, said
    (folder,) = (tmp_path / "baseline" / "runs").iterdir()
    assert (folder / "report.html").is_file()
    found = load_result(folder)
    assert "each owner's own logistic model" in found.assessment.measure and found.error is not None
    assert {one.name for one in found.baselines} == {"constant", "own data", "pooled"}


def test_the_entry_names_the_starter() -> None:
    assert entry_of("synthetic").published_starter.endswith(":write_published")


# Constants of the paper.


def test_constants_are_the_papers_and_say_where_one_was_changed() -> None:
    found = comity.Synthetic(SCHEMA, variant="published").constants
    assert {name: found[name].value for name in ("depth", "candidates", "levels", "choice", "labelling", "losses")} == {
        "depth": 8,
        "candidates": 10,
        "levels": 4,
        "choice": "exponential",
        "labelling": "vote",
        "losses": "printed",
    }
    assert all(one.is_papers and one.source and one.meaning for one in found.values())
    changed = comity.Synthetic(SCHEMA, variant="published", depth=5).constants["depth"]
    assert (changed.in_use, changed.value, changed.is_papers) == (5, 8, False)
    assert not comity.Synthetic(SCHEMA).constants


def test_smooth_losses_belong_to_the_learners_that_they_change() -> None:
    number = Schema(SCHEMA.columns, Bounded("y", 0, 1))
    assert comity.Synthetic(number, variant="published", losses="smooth").plan(["ash"], epsilon=1)
    assert comity.Synthetic(SCHEMA, variant="published", learner="svm", losses="smooth").plan(["ash"], epsilon=1)
    with pytest.raises(ComityError, match=r"synthetic\.losses belongs to synthetic\.learner"):
        comity.Synthetic(SCHEMA, variant="published", losses="smooth").plan(["ash"], epsilon=1)

"""`comity new --protocol summary --variant published`: a study that plans, runs and reports as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import comity as package
from comity.cli import main
from comity.methods.summary.artefact import BoughtRecords
from comity.methods.summary.published.constants import PAPER
from comity.study.study import Study

Call = Callable[..., str]


@pytest.fixture
def comity(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))

    def call(*arguments: object) -> str:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    return call


@pytest.fixture
def folder(tmp_path: Path, comity: Call) -> Path:
    comity("new", "baseline", "--protocol", "summary", "--variant", "published")
    return tmp_path / "baseline"


def test_the_starter_has_the_papers_constants_and_says_what_holds(folder: Path, comity: Call) -> None:
    study = Study.load(folder / "study.toml")
    constants = study.method.constants
    assert constants and all(one.is_papers for one in constants.values())
    planned = comity("plan", folder / "study.toml", "--all")
    for words in ("not private as claimed", "the paper claims (eps 1.402, delta 1e-2)", "at most (eps 6.089"):
        assert words in planned
    assert "bids as printed" in planned and "its width as in the paper" in planned


def test_the_starter_runs_and_its_page_shows_the_value_by_winning_bids(folder: Path, comity: Call) -> None:
    fewer = ("--set", "summary.records=4", "--set", "simulation.baselines=false")
    ran = comity("run", folder / "study.toml", "--seed", "7", "--quiet", "--out", folder / "runs", *fewer)
    assert "not private as claimed" in ran
    (run,) = [path.parent for path in (folder / "runs").glob("*/result.json")]
    page = (run / "report.html").read_text("utf-8")
    assert "winning bids, added up" in page and "Shares are those of winning bids" in page
    bought = json.loads((run / "data" / "bought.json").read_text("utf-8"))
    assert sum(bought["quotas"]) == 4 and bought["basis"] == "bids" and bought["seen"] >= 4
    positive = [max(0.0, bid) for bid in bought["bids"]]
    assert bought["shares"] == pytest.approx([bid / sum(positive) for bid in positive])
    loaded = package.load_artefact(run / "data")
    assert isinstance(loaded, BoughtRecords) and loaded.bought.bids == tuple(bought["bids"])


def test_every_constant_of_the_paper_has_a_place_and_an_option_takes_its_value() -> None:
    method = package.Summary(variant="published")
    assert set(PAPER) == set(method.constants) and all(one.source and one.meaning for one in PAPER.values())
    taken = {key: getattr(method, key) for key in PAPER if key in type(method).model_fields}
    assert taken == {key: PAPER[key].value for key in taken} and len(taken) == 12
    # A repair is off until a study asks for it, and then shows as another value than the paper's.
    repaired = package.Summary(variant="published", bid_sign="corrected", gamma="auto").constants
    assert {key for key, one in repaired.items() if not one.is_papers} == {"bid_sign", "gamma"}
    assert package.Summary().bid_sign == "corrected" and package.Summary().gamma is None
    assert not package.Summary().constants

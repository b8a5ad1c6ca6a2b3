"""`comity new NAME --protocol vertical --variant published`: a study that plans, runs and reports as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from comity.cli import main
from comity.errors import Refused
from comity.federation.declare.policy import Policy
from comity.study.study import Study


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "paper"
    assert main(["new", str(folder), "--protocol", "vertical", "--variant", "published"]) == 0
    return folder / "study.toml"


def test_it_plans_with_the_claim_and_the_truth(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(made)]) == 0
    said = capsys.readouterr().out
    assert "not private as claimed" in said and "infinite: no epsilon holds; the paper claims eps 1.00" in said
    method: Any = Study.load(made).method
    assert all(one.is_papers for name, one in method.constants.items() if name in type(method).model_fields)


def test_it_runs_and_writes_a_page(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--set", "simulation.baselines=false", "--seed", "1", "--out", str(tmp_path / "out"), "--json"]
    assert main(["run", str(made), *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    (folder,) = (tmp_path / "out").iterdir()
    assert "not private as claimed" in (folder / "report.html").read_text("utf-8").lower()
    assert 0 < document["error"] < 0.6


def test_a_site_refuses_it_unless_its_policy_runs_unproven_methods(made: Path) -> None:
    study = Study.load(made)
    declared = study.protocol.declare(study.consortium).accept(study.consortium)
    terms: dict[str, Any] = {"study": "0", "runs": 0, "protocol": "vertical", "consortium": study.consortium}
    may = frozenset({"sizes_may_leave", "records_may_leave"})
    with pytest.raises(Refused, match="not private as claimed"):
        Policy(approved=None, disclosures=may).check(declaration=declared, party="surgery", **terms)
    Policy(approved=None, disclosures=may, unproven=True).check(declaration=declared, party="surgery", **terms)


def test_the_options_that_it_names_are_accepted(made: Path) -> None:
    """Each line that is commented out may be turned on."""
    text = made.read_text("utf-8")
    tried = re.sub(r'(?m)^# (\w+ = ("\w+"|true) )', r"\1", text)
    for line in ("[vertical.block_epsilon]", "hospital = 0.3", "surgery = 0.3", '"hospital+surgery" = 0.4'):
        assert f"# {line}" in text
        tried = tried.replace(f"# {line}", line)
    (made.parent / "tried.toml").write_text(tried, encoding="utf-8")
    method: Any = Study.load(made.parent / "tried.toml").method
    assert (method.repair, method.sensitivity, method.intercept) == ("zhang", "tight", True)
    assert sum(method.block_epsilon.values()) == pytest.approx(1)

"""`comity audit`: a table, one JSON document, a page, and an exit code that a failed audit changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comity.audit.row import Audit, Claim, Control
from comity.cli import main

SCHEMA = """
[columns.age]
kind = "numeric"
low = 0
high = 100

[target]
name = "sick"
classes = ["no", "yes"]
"""
STUDY = """
[study]
name = "wards"
protocol = "synthetic"
schema = "schema.toml"

[privacy]
epsilon = 1.0
delta = 1e-6

[parties.ash]
[parties.birch]
[parties.cedar]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "schema.toml").write_text(SCHEMA, "utf-8")
    (tmp_path / "study.toml").write_text(STUDY, "utf-8")
    return tmp_path / "study.toml"


def test_a_study_is_audited_without_any_records(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = study.with_name("audit.html")
    assert main(["audit", str(study), "--quick", "--json", "--out", str(page)]) == 0
    document = json.loads(capsys.readouterr().out)
    claim, *others = document["rows"]
    assert document["passed"] and claim["case"] == "claim wards" and claim["held"] == 1
    assert 0.9 < claim["measured"] <= claim["claimed"] <= 1.0 and claim["design"] >= claim["measured"]
    assert {row["case"].partition(" ")[0] for row in others} == {"check", "control", "illustration"}
    assert all(row.get("caught", 1) and row.get("held", 1) for row in others)
    assert document["page"] == str(page) and "wards" in page.read_text("utf-8")


def test_a_table_for_people(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(study), "--quick"]) == 0
    said = capsys.readouterr().out
    assert "audit of wards: passed" in said and "held" in said and "3 of 3 broken twins caught" in said


def test_a_control_that_is_not_caught_fails_the_command(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = Claim("wards", 1.0, 0.9, 0.95, 1e-6, "a reader", "a pair")
    blind = Audit("wards", 0.999, (claim,), (), (Control("half the noise", False, 0.4, 1.0),))

    def audited(*_: Any, **__: Any) -> Audit:
        return blind

    monkeypatch.setattr("comity.audit.study.audit_study", audited)
    assert main(["audit", str(study)]) == 4
    assert "NOT CAUGHT: half the noise" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["study.toml", "--all"]])
def test_a_study_or_all_of_them(arguments: list[str]) -> None:
    assert main(["audit", *arguments]) == 2

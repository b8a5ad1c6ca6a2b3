"""Exit codes, and the one sentence that each failure ends in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from comity.cli.failure import report_failure
from comity.errors import BudgetExceeded, DataError, Refused, SiteLost


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DataError("records.csv is wrong"), 3),
        (Refused("no"), 4),
        (SiteLost("gone"), 5),
        (KeyboardInterrupt(), 5),
        (typer.Abort(), 5),
        (typer.BadParameter("wrong"), 2),
        (typer.Exit(3), 3),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert report_failure(error, as_json=False) == code


def test_a_refusal_says_its_figures_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = BudgetExceeded("refused: too much", requested="2.00", remaining="1.75", difference="0.25")
    assert report_failure(refusal, as_json=True) == 4
    found = json.loads(capsys.readouterr().err)["error"]
    assert found == {
        "code": "budget",
        "exit_code": 4,
        "sentence": "refused: too much",
        "requested": "2.00",
        "remaining": "1.75",
        "difference": "0.25",
    }


def test_a_defect_keeps_its_traceback_in_a_private_log_and_its_values_off_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        raise KeyError("Mrs Smith")
    except KeyError as error:
        assert report_failure(error, as_json=True) == 1
    said = capsys.readouterr().err
    log = Path(json.loads(said)["error"]["log"])
    try:
        assert "Mrs Smith" not in said
        assert "Traceback" in log.read_text() and "Mrs Smith" in log.read_text()
        assert log.stat().st_mode & 0o077 == 0
    finally:
        log.unlink()


def test_wrong_usage_ends_with_2_and_names_the_help(comity: Any, study: Any) -> None:
    for arguments in (["plan"], ["nonsense"], ["plan", "study.toml", "--wat"], ["run"]):
        ended = comity(*arguments)
        assert (ended.code, ended.out) == (2, "")
        assert "--help" in ended.err
        assert "Invalid value:" not in ended.err and ". See: comity" in ended.err.replace(") See", "). See")
    assert comity("plan", "study.toml", "--set", "epsilon=1").code == 2


def test_a_grant_of_delta_alone_is_possible_and_the_remedy_of_a_refusal_runs(tmp_path: Path, comity: Any) -> None:
    path = tmp_path / "pure.ledger"
    assert comity("ledger", "init", path, "--dataset", "t", "--epsilon", "1").code == 0
    assert comity("ledger", "grant", path, "--dataset", "t", "--why", "...", "--delta", "1e-6").code == 0
    assert comity("ledger", "grant", path, "--why", "...", "--epsilon", "0.25").code == 0
    assert comity("ledger", "grant", path, "--why", "nothing").code == 3


def test_a_test_file_without_records_is_found_before_anything_is_spent(study: Any, comity: Any) -> None:
    lines = (study.parent / "test.csv").read_text().splitlines()
    (study.parent / "empty.csv").write_text(lines[0] + "\n")
    ended = comity("run", study, "--set", "simulation.test=empty.csv")
    assert ended.code == 3 and "simulation.test" in ended.err and "holds no records" in ended.err
    assert not (study.parent / "runs").exists()


@pytest.mark.parametrize("lines", [0, 1])
def test_parties_without_any_records_take_part_neutrally(study: Any, comity: Any, lines: int) -> None:
    head = (study.parent / "records.csv").read_text().splitlines(keepends=True)[:lines]
    (study.parent / "none.csv").write_text("".join(head))
    names = [f"p{k}" for k in range(3)]
    text = study.read_text().replace("[parties]\ncount = 5\n", "".join(f"[parties.{n}]\n" for n in names))
    files = ", ".join(f'{n} = "none.csv"' for n in names)
    text = text.replace('data = "records.csv"\nsplit = "by-column"\ncolumn = "clinic"', f"data = {{ {files} }}")
    study.write_text(text)
    ended = comity("run", study, "--json")
    assert ended.code == 0, ended.err
    assert any("none.csv: holds no records" in sentence for sentence in ended.document["findings"])


@pytest.mark.parametrize("keys", ['{ sign = "zz" }', '{ sign = "00" }'])
def test_pinned_keys_that_are_none_are_named(study: Any, comity: Any, keys: str) -> None:
    study.write_text(
        study.read_text().replace("[parties]\ncount = 5\n", f"[parties.ash]\nkeys = {keys}\n[parties.elm]\n")
    )
    ended = comity("plan", study)
    assert ended.code == 3 and "parties.ash.keys" in ended.err


def test_a_study_that_is_no_table_and_a_seed_that_is_too_long(study: Any, comity: Any) -> None:
    assert comity("run", study, "--seed", str(2**127)).code == 2
    study.write_text("study = 3\n")
    assert comity("plan", study).code == 3

"""Exit codes, and the one sentence that each failure ends in."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_wrong_usage_ends_with_2_and_names_the_help(comity, study) -> None:  # type: ignore[no-untyped-def]
    for arguments in (["plan"], ["nonsense"], ["plan", "study.toml", "--wat"], ["run"], ["bench", "nothing"]):
        ended = comity(*arguments)
        assert (ended.code, ended.out) == (2, "")
        assert "--help" in ended.err
    assert comity("plan", "study.toml", "--set", "epsilon=1").code == 2

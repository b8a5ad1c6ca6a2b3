"""Run folders and ledgers that version 0.2.0 wrote are read with the same content by every later version.

`v0_2_0` was written by the released 0.2.0: one seeded run of each starter without its journal and ledgers, and a ledger
with one fit and a second grant. `expected.json` and `patients.json` are what 0.2.0 itself read from them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import comity
from comity.cli.app import app
from comity.report.page import render_result

HERE = Path(__file__).parent / "v0_2_0"
EXPECTED: dict[str, dict[str, Any]] = json.loads((HERE / "expected.json").read_text("utf-8"))


@pytest.mark.parametrize("method", EXPECTED)
def test_results_load_with_their_figures(method: str) -> None:
    expected, result = EXPECTED[method], comity.load_result(HERE / method)
    assert result.study_hash == expected["study_hash"]
    assert result.guarantee.epsilon == expected["epsilon"]
    assert result.guarantee.delta == expected["delta"]
    assert result.assessment.error == expected["error"]
    assert sorted(result.released) == expected["released"]
    assert result.study in render_result(result)


@pytest.mark.parametrize("method", [name for name, said in EXPECTED.items() if "proba" in said])
def test_models_predict_as_they_did(method: str) -> None:
    model, records = comity.load_result(HERE / method).model, pd.read_csv(HERE / method / "records.csv")
    np.testing.assert_allclose(model.predict_proba(records), EXPECTED[method]["proba"], rtol=1e-9)


def test_a_dataset_has_its_records() -> None:
    assert len(comity.load_result(HERE / "synthetic").presented.frame) == EXPECTED["synthetic"]["rows"]


def test_a_ledger_opens_with_its_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    path = Path(shutil.copy(HERE / "patients.sqlite", tmp_path / "patients.ledger"))
    shown = CliRunner().invoke(app, ["ledger", "show", str(path), "--json"])
    assert shown.exit_code == 0, shown.output
    (account,), (before,) = (
        json.loads(shown.stdout)["accounts"],
        json.loads((HERE / "patients.json").read_text("utf-8"))["accounts"],
    )
    for figure in ("dataset", "unit", "neighbours", "granted", "currency", "spent_epsilon", "left_epsilon"):
        assert account[figure] == before[figure], figure
    assert CliRunner().invoke(app, ["ledger", "verify", str(path)]).exit_code == 0

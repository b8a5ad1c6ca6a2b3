"""The demo's table on the terminal, and the progress bar that only a terminal sees."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from comity.cli.output import progress_bar


def test_demo_prints_its_table_and_where_the_report_is(
    comity: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = ModuleType("comity.demo")
    rows = [{"protocol": "softlabel", "dataset": "clinics", "epsilon": 1.0, "error": 0.25, "own_data": 0.31}]
    fake.run_demo = lambda out, progress: {"tables": {"softlabel": rows}, "report": str(out / "report.html")}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "comity.demo", fake)
    shown = comity("demo", "--out", tmp_path).out
    assert (
        "softlabel" in shown
        and "error 0.250" in shown
        and "own data 0.310" in shown
        and str(tmp_path / "report.html") in shown
    )
    assert comity("demo", "--out", tmp_path, "--json").document["tables"] == {"softlabel": rows}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_bar("triage") as progress:
        assert progress is None
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bar("triage", quiet=True) as progress:
        assert progress is None
    assert terminal.getvalue() == ""
    with progress_bar("triage") as progress:
        assert progress is not None
        progress("reading [data]")
        progress("votes[0] 512/2000")
    assert "votes[0]" in terminal.getvalue()

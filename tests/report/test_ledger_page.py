"""The page of a ledger explains how losses add up, and draws what was left after each event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from comity.privacy.loss import GDP, Approx, Pure
from comity.report.ledger_page import MAX_DRAWN, explain_arithmetic, render_ledger
from tests.support.html import check_page
from tests.support.ledgers import create_ledger, reserve


def test_the_page_draws_sums_and_course(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Approx(3, "1e-6"))
    for run in ("r1", "r2"):
        reserve(ledger, run, GDP("0.2"), study="<b>triage")
    account = ledger.summary()[0]
    page = check_page(render_ledger("north.ledger", [account], ledger.history()))
    assert page.tags.count("svg") == 2 and "left 3.00" in page.text
    assert "losses add as squares" in page.text.lower() and "cost 1.46, not 2.00" in page.text
    assert "run open, <b>triage" in page.text and "b" not in page.tags


def test_pure_losses_add_up_and_are_said_to(tmp_path: Path) -> None:
    said = explain_arithmetic(create_ledger(tmp_path, Pure(1)).summary()[0])
    assert "cost 2.00" in said and "squares" not in said


def test_a_long_history_is_cut_and_says_so(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Pure(100))
    for run in range(MAX_DRAWN + 4):
        reserve(ledger, f"r{run}", 1)
    page = check_page(render_ledger("north.ledger", ledger.summary(), ledger.history()))
    assert "5 earlier events are left out" in page.text


def test_the_command_writes_it(tmp_path: Path, capsys: Any) -> None:
    from comity.cli import main

    create_ledger(tmp_path, Approx(3, "1e-6"))
    assert main(["ledger", "show", str(tmp_path / "north.ledger"), "--html", str(tmp_path / "l.html")]) == 0
    assert "page: " in capsys.readouterr().out
    check_page((tmp_path / "l.html").read_text("utf-8"))

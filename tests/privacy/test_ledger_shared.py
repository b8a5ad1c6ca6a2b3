"""Ledgers of simulated parties in one file: each its own budget, all of them there after the process ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from comity.errors import BadInput, BudgetExceeded, Refused, StudyError
from comity.privacy.ledger import Draw, Ledger, SharedFile
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours, Unit

TERMS: dict[str, Any] = {"unit": Unit.PARTY, "neighbours": Neighbours.REPLACE}


def shared_ledgers(path: Any, count: int = 3) -> list[Any]:
    file = SharedFile(path)
    return [
        Ledger.in_shared_file(file, number, dataset=f"p{number}", grant=Pure(1), **TERMS)
        for number in range(1, count + 1)
    ]


def spend(ledger: Any, run: Any, epsilon: float = 0.75) -> None:
    ledger.reserve(study="s", run=run, draws=[Draw("x", 0, Pure(epsilon), "Laplace", 1.0)], **TERMS)
    ledger.draw(run=run, release="x", index=0, step="x[0]")


def test_each_seat_has_its_own_budget(tmp_path: Path) -> None:
    first, second, _ = shared_ledgers(tmp_path / "sites.sqlite")
    spend(first, "r")
    with pytest.raises(BudgetExceeded):
        spend(first, "again")
    spend(second, "r")
    assert [entry.kind for entry in second.entries()].count("draw") == 1
    for ledger in (first, second):
        ledger.verify()


def test_what_was_spent_is_spent_after_the_process_has_died(tmp_path: Path) -> None:
    path = tmp_path / "sites.sqlite"
    code = (
        "import os, sys; from pathlib import Path; from tests.privacy.test_ledger_shared import shared_ledgers, spend; "
        "spend(shared_ledgers(Path(sys.argv[1]))[1], 'r'); os._exit(9)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert ended.returncode == 9, ended.stderr
    first, second, _ = shared_ledgers(path)
    assert second.summary()[0].dataset == "p2"
    with pytest.raises(BudgetExceeded):
        spend(second, "again")
    spend(first, "r")
    assert [entry.kind for entry in second.entries()].count("create") == 1


def test_the_file_is_its_owners_alone_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "sites.sqlite"
    spend(shared_ledgers(path)[0], "r")
    assert {p.stat().st_mode & 0o077 for p in tmp_path.iterdir()} == {0}
    with pytest.raises(StudyError, match="can't be stored here"):
        SharedFile(tmp_path / "none" / "sites.sqlite")
    (tmp_path / "other").write_text("no database" * 100)
    with pytest.raises((StudyError, BadInput, Refused), match="other"):
        SharedFile(tmp_path / "other")

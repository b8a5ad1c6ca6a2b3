"""What was left over time follows from the entries, event by event, and ends at the ledger's own sums."""

from __future__ import annotations

from pathlib import Path

from tests.support.ledgers import RECORD, create_ledger, reserve

from comity.privacy.ledger import Ledger
from comity.privacy.loss import GDP, Approx, Pure


def test_each_event_is_one_moment_and_the_last_is_the_summary(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Pure(3))
    reserve(ledger, "r1", 0.5, 0.5)
    for index in range(2):
        ledger.draw(run="r1", release="votes", index=index, step="vote")
    ledger.close("r1")
    ledger.grant_more(Pure(1), "board")
    reserve(ledger, "r2", 2)
    found = ledger.history()
    assert [one.what for one in found] == ["granted", "run ended", "granted more", "run open"]
    assert [one.left for one in found] == [3, 2, 3, 1] and [one.granted for one in found] == [3, 3, 4, 4]
    assert [one.committed for one in found] == [0, 1, 1, 3] and found[1].study == "readmission"
    account = ledger.summary()[0]
    assert found[-1].left == account.left
    assert found[-1].committed == account.spent_epsilon + account.reserved_epsilon


def test_what_an_abandoned_run_reserved_is_left_again(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Approx(3, "1e-6"))
    reserve(ledger, "r1", GDP("0.2"))
    assert (ledger.history()[-1].left or 0) < 3
    ledger.void("r1")
    assert ledger.history()[-1].left == ledger.summary()[0].left


def test_datasets_have_moments_of_their_own(tmp_path: Path) -> None:
    ledger = create_ledger(tmp_path, Pure(1))
    ledger.add_dataset(dataset="visits", grant=Pure(2), **RECORD)
    reserve(ledger, "r1", 1, dataset="visits")
    found = [(one.dataset, int(one.left or 0)) for one in ledger.history()]
    assert found == [("patients", 1), ("visits", 2), ("visits", 1)]
    assert Ledger(tmp_path / "north.ledger").history() == ledger.history()

"""A ledger followed from the last verified entry on."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from comity.errors import Refused
from comity.privacy.ledger import Draw, Ledger, LedgerFollower
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours, Unit


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    made = Ledger.create(
        tmp_path / "one.ledger", dataset="a", grant=Pure(3), unit=Unit.RECORD, neighbours=Neighbours.REPLACE
    )
    draws = [Draw("mean", index, Pure("0.5"), "laplace", 1) for index in range(2)]
    made.reserve(study="s", run="r", draws=draws, unit=Unit.RECORD, neighbours=Neighbours.REPLACE)
    return made


def test_only_new_entries_are_read_and_moments_are_the_ledgers(ledger: Ledger) -> None:
    follower = LedgerFollower(ledger)
    first = follower.follow()
    assert first.new == first.entries == len(ledger.entries())
    ledger.draw(run="r", release="mean", index=0, step="s")
    second = follower.follow()
    assert (second.new, second.head) == (1, ledger.head()) and second.moments == ledger.history()
    assert str(follower.taken_by("r")) == "0.5" and follower.taken_by("another") == 0


def test_sums_that_do_not_follow_are_refused(ledger: Ledger) -> None:
    follower = LedgerFollower(ledger)
    follower.follow()
    assert ledger.path is not None
    with sqlite3.connect(ledger.path) as connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        columns = {name: [row[1] for row in connection.execute(f"pragma table_info({name})")] for name in tables}
        table = next(name for name, found in columns.items() if "reserved" in found)
        connection.execute(f"update {table} set reserved = spent")
    with pytest.raises(Refused, match="do not follow"):
        follower.follow()


def test_a_last_entry_that_changed_is_refused(ledger: Ledger) -> None:
    follower = LedgerFollower(ledger)
    follower.follow()
    assert ledger.path is not None
    with sqlite3.connect(ledger.path) as connection:
        for (name,) in connection.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            connection.execute(f"drop trigger {name}")
        connection.execute("update entries set head = ? where seq = (select max(seq) from entries)", ("0" * 64,))
    with pytest.raises(Refused):
        follower.follow()

"""Every commit of the file counts: its number and head, what a machine and peers remember, and what growth costs."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.support.ledgers import RECORD, back_up, create_ledger, make_draws, restore, spend

from comity.errors import Malformed, Refused
from comity.privacy.ledger import CommitHead, Draw, Ledger
from comity.privacy.ledger.chain import commit_head, notes_digest
from comity.privacy.loss import Pure


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return create_ledger(tmp_path, Pure(300))


def answer(ledger: Ledger, body: bytes, *, note: bool = True) -> CommitHead | None:
    """A step that draws nothing, as the store commits it."""
    with ledger.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE IF NOT EXISTS replies (owner TEXT, body BLOB)")
        transaction.connection.execute("INSERT INTO replies VALUES (?, ?)", (transaction.owner, body))
        if note:
            transaction.note(body)
            return transaction.commit_head()
    return None


def both(ledger: Ledger) -> list[Ledger]:
    return [ledger, Ledger.in_memory(grant=Pure(300), **RECORD)]


def test_every_change_is_a_commit_and_a_look_is_none(ledger: Ledger) -> None:
    for one in both(ledger):
        with one.transaction():
            pass
        first = one.commit_head()
        assert first.count == 1
        answer(one, b"a", note=False)
        spend(one, "r1")
        assert one.commit_head().count == 4
        with one.transaction() as transaction:
            transaction.connection.execute("CREATE TABLE IF NOT EXISTS replies (owner TEXT, body BLOB)")
            transaction.reserve(study="s", run="r1", draws=make_draws("0.1"), **RECORD)
        one.summary()
        one.verify()
        assert one.commit_head().count == 4
        with pytest.raises(KeyError), one.transaction() as transaction:
            transaction.note(b"x")
            raise KeyError
        assert one.commit_head().count == 4
        assert one.knows_commit(1, first.head) and not one.knows_commit(2, first.head)
        assert not one.knows_commit(5, first.head)
        assert one.commit_head().ledger == first.ledger == one.entries()[0].note


def test_the_head_is_known_before_the_commit_and_nothing_is_added_behind_it(ledger: Ledger) -> None:
    for one in both(ledger):
        with one.transaction() as transaction:
            transaction.note(b"reply")
            told = transaction.commit_head()
            assert transaction.commit_head() == told
            attempts: tuple[Callable[[], Any], ...] = (
                lambda: transaction.note(b"more"),
                lambda: transaction.grant_more(Pure(1), "late"),
                lambda: transaction.reserve(study="s", run="late", draws=[], **RECORD),
            )
            for late in attempts:
                with pytest.raises(Refused, match="ask for the head last"):
                    late()
            # The reply that carries it may be written behind it.
            transaction.connection.execute("CREATE TABLE IF NOT EXISTS replies (owner TEXT, body BLOB)")
            transaction.connection.execute("INSERT INTO replies VALUES (?, ?)", (transaction.owner, told.head))
        assert one.commit_head() == told and one.knows_commit(told.count, told.head)
        one.verify()


def test_a_head_covers_what_was_noted_and_in_what_order() -> None:
    heads = {
        commit_head(b"", 1, "ab" * 32, b"s" * 32, notes_digest(notes))
        for notes in ([], [b"a"], [b"b"], [b"a", b"b"], [b"b", b"a"], [b"ab"], [b"a", b"", b"b"])
    }
    assert len(heads) == 7
    one = Ledger.in_memory(**RECORD)
    with one.transaction() as transaction:
        for bad in (b"", b"x" * 65, "text", None):
            with pytest.raises(Malformed):
                transaction.note(bad)  # type: ignore[arg-type]


def test_a_restore_between_two_answers_without_a_debit_is_noticed(ledger: Ledger, tmp_path: Path) -> None:
    """The second survivor list after a restore would open both shares of a party."""
    path = ledger.path
    assert path is not None
    spend(ledger, "r1", count=2)
    back_up(path, tmp_path / "backup")
    answer(ledger, b"the first survivor list")
    del ledger
    restore(tmp_path / "backup", path)
    with pytest.raises(Refused, match=r"is frozen: .*rolled back or restored"):
        Ledger(path).draw(run="r1", release="votes", index=1, step="vote")


def test_a_ledger_that_this_machine_never_saw_is_frozen(
    ledger: Ledger, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ledger.path
    assert path is not None
    # Even one that was backed up as soon as it was made: the other copy may have spent all of it.
    back_up(path, tmp_path / "early")
    spend(ledger, "r1")
    back_up(path, tmp_path / "backup")
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "new machine"))
    for name in ("early", "backup"):
        moved = Ledger(tmp_path / name)
        assert "FROZEN" in str(moved.summary()[0])
        with pytest.raises(
            Refused, match=r"has no witness of this ledger.*copy its witness.*write-off.*--epsilon 0"
        ) as no:
            spend(moved, "r9")
        assert no.value.code == "frozen"
        # Neither use nor a further grant makes a witness.
        moved.grant_more(Pure(1), "more")
        with pytest.raises(Refused, match="is frozen"):
            spend(Ledger(tmp_path / name), "r9")
    # Its witness, brought along, thaws the copy that it saw.
    target = tmp_path / "new machine" / "heads"
    [witness] = (home / "heads").glob("*.json")
    target.mkdir(parents=True, exist_ok=True)
    (target / witness.name).write_bytes(witness.read_bytes())
    spend(Ledger(tmp_path / "backup"), "r9")
    with pytest.raises(Refused, match="is frozen"):
        spend(Ledger(tmp_path / "early"), "r9")


def test_an_owner_may_vouch_that_nothing_is_missing(ledger: Ledger, home: Path) -> None:
    spend(ledger, "r1")
    [witness] = (home / "heads").glob("*.json")
    witness.unlink()
    again = Ledger(ledger.path or "")
    again.write_off(Pure(0), "moved to another machine")
    spend(again, "r2")
    [account] = again.summary()
    assert (account.spent.pure, account.frozen) == (Decimal("0.2"), "")
    assert [entry.kind for entry in again.entries()][-5:] == ["freeze", "forfeit", "write-off", "reserve", "draw"]
    again.verify()


def test_ledgers_of_simulations_have_no_witness_and_need_none(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Ledger.create(tmp_path / "a", dataset="x", grant=Pure(3), simulated=True, **RECORD)
    spend(one, "r1")
    spend(Ledger.in_memory(**RECORD), "r1")
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "elsewhere"))
    spend(Ledger(tmp_path / "a"), "r2")
    assert not home.exists() and not (tmp_path / "elsewhere").exists()
    assert str(one.summary()[0]).endswith("simulated")
    one.verify()


def test_a_failed_founding_leaves_no_witness(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("comity.privacy.ledger.witness.Witness.set", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Ledger.create(tmp_path / "a", dataset="x", grant=Pure(3), **RECORD)
    assert not (tmp_path / "a").exists()
    assert list((home / "heads").glob("*")) == []


# Peers


def test_peers_remember_commits_of_this_ledger_alone(ledger: Ledger, tmp_path: Path, home: Path) -> None:
    path = ledger.path
    assert path is not None
    other = Ledger.create(tmp_path / "other", dataset="x", grant=Pure(3), **RECORD)
    back_up(path, tmp_path / "backup")
    witness = home / "heads" / f"{ledger.commit_head().ledger}.json"
    before = witness.read_bytes()
    told = answer(ledger, b"reply")
    assert told is not None
    ledger.remember_commit(told.ledger, told.count, told.head)
    assert ledger.verify().frozen == ""
    restore(tmp_path / "backup", path)
    witness.write_bytes(before)
    rolled = Ledger(path)
    spend(rolled, "r1")
    # An owner of two ledgers isn't frozen by the head of the other one.
    rolled.remember_commit(other.commit_head().ledger, 99, "cd" * 32)
    other.remember_commit(told.ledger, told.count, told.head)
    assert rolled.verify().frozen == "" == other.verify().frozen
    for count, head in ((told.count, told.head), (99, "ef" * 32)):
        twin = Ledger(path)
        twin.remember_commit(told.ledger, count, head)
        assert twin.verify().frozen == head
        with pytest.raises(Refused, match="is frozen"):
            spend(twin, "r9")
        twin.write_off(Pure(0), "the gap is known")
        twin.remember_commit(told.ledger, count, head)
        assert twin.verify().frozen == ""


ID = "ab" * 32


@pytest.mark.parametrize("bad", [("x", 1, ID), (ID, "1", ID), (ID, True, ID), (ID, 1, "")])
def test_what_is_no_commit_freezes_nothing(ledger: Ledger, bad: tuple[str, int, str]) -> None:
    with pytest.raises(Malformed):
        ledger.remember_commit(*bad)
    assert ledger.verify().frozen == ""


# Abandoned runs


def test_an_abandoned_run_frees_what_it_never_drew_for_good(ledger: Ledger) -> None:
    spend(ledger, "r1", count=3)
    for _ in range(2):
        ledger.abandon("r1")
    [account] = ledger.summary()
    assert (account.spent.pure, account.reserved.pure) == (Decimal("0.1"), Decimal(0))
    assert [entry.kind for entry in ledger.entries()].count("abandon") == 1
    acts: tuple[Callable[[], object], ...] = (
        lambda: ledger.draw(run="r1", release="votes", index=1, step="vote"),
        lambda: spend(ledger, "r1", count=3),
    )
    for act in acts:
        with pytest.raises(Refused, match="abandoned; its id can't draw again"):
            act()
    with pytest.raises(Refused, match="nothing is reserved for run typo"):
        ledger.abandon("typo")
    spend(ledger, "r2")
    ledger.close("r2")
    ledger.abandon("r2")
    assert ledger.verify().frozen == ""


# Deleted bytes


def test_deleted_rows_leave_neither_file_nor_log(ledger: Ledger) -> None:
    path = ledger.path
    assert path is not None
    secret = os.urandom(16).hex().encode() * 400
    with ledger.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE secrets (body BLOB)")
        transaction.connection.execute("INSERT INTO secrets VALUES (?)", (secret,))
    spend(ledger, "r1")
    with ledger.transaction() as transaction:
        transaction.connection.execute("DELETE FROM secrets")
    assert ledger.truncate_log()
    assert not any(secret[:32] in file.read_bytes() for file in path.parent.glob("north.ledger*"))


def test_every_connection_overwrites_what_it_deletes(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where SQLite was built to leave deleted bytes where they are."""
    connect = sqlite3.connect

    def careless(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    monkeypatch.setattr(sqlite3, "connect", careless)
    opened = Ledger(ledger.path or "")

    def secure() -> int:
        with opened.reading() as connection:
            found: int = connection.execute("PRAGMA secure_delete").fetchone()[0]
        return found

    found: list[int] = [secure()]
    thread = threading.Thread(target=lambda: found.append(secure()))
    thread.start()
    thread.join()
    assert found == [1, 1]


def test_a_log_that_is_being_read_is_not_truncated(ledger: Ledger) -> None:
    assert ledger.path is not None
    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as reader:
        spend(ledger, "r1")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        spend(ledger, "r2")
        with ledger.reading() as connection:
            connection.execute("PRAGMA busy_timeout = 10")
        assert not ledger.truncate_log()
        reader.execute("COMMIT")
        assert ledger.truncate_log()
    with ledger.transaction(), pytest.raises(Refused):
        ledger.truncate_log()


# Growth


def steps_of(ledger: Ledger, act: Callable[[], object]) -> int:
    """Steps of SQLite's machine: what an act costs, on any computer."""
    count = [0]

    def counted() -> int:
        count[0] += 1
        return 0

    with ledger.reading() as connection:
        connection.set_progress_handler(counted, 1)
    try:
        act()
    finally:
        with ledger.reading() as connection:
            connection.set_progress_handler(None, 0)
    return count[0]


def test_reserving_drawing_and_closing_cost_the_same_in_a_long_ledger(ledger: Ledger) -> None:
    def costs(run: str) -> dict[str, int]:
        draws = [Draw("votes", i, Pure("0.001"), "discrete laplace", 1) for i in range(20)]
        told = ledger.commit_head()
        return {
            "reserve": steps_of(ledger, lambda: ledger.reserve(study="s", run=run, draws=draws, **RECORD)),
            "draw": steps_of(ledger, lambda: ledger.draw(run=run, release="votes", index=7, step="vote")),
            "repeat": steps_of(ledger, lambda: ledger.reserve(study="s", run=run, draws=draws, **RECORD)),
            "close": steps_of(ledger, lambda: ledger.close(run)),
            "note": steps_of(ledger, lambda: answer(ledger, b"note")),
            "remember": steps_of(ledger, lambda: ledger.remember_commit(told.ledger, told.count, told.head)),
        }

    short = costs("early")
    for run in range(30):
        with ledger.transaction() as transaction:
            draws = [Draw("votes", i, Pure("0.001"), "discrete laplace", 1) for i in range(100)]
            transaction.reserve(study="s", run=f"run {run}", draws=draws, **RECORD)
            for i in range(100):
                transaction.draw(run=f"run {run}", release="votes", index=i, step="vote")
            if run % 2:
                transaction.close(f"run {run}")
    long = costs("late")
    assert len(ledger.entries()) > 6000
    for name, cost in short.items():
        assert long[name] <= 1.1 * cost, (name, cost, long[name])


def test_one_small_row_for_each_commit(ledger: Ledger) -> None:
    with ledger.reading() as connection:
        before = connection.execute("SELECT count(*) FROM commits").fetchone()[0]
    for i in range(5):
        answer(ledger, b"%d" % i)
    with ledger.reading() as connection:
        rows = connection.execute("SELECT length(state) + length(notes) + length(head) FROM commits").fetchall()
    assert len(rows) == before + 5 and max(size for (size,) in rows) <= 96


def test_the_witness_follows_commits_without_debits(ledger: Ledger, home: Path) -> None:
    told = answer(ledger, b"reply")
    assert told is not None
    [file] = (home / "heads").glob("*.json")
    assert json.loads(file.read_text()) == {"count": told.count, "head": told.head}

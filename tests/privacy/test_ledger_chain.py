"""The hash chain, and what happens when a ledger is edited, rolled back or restored from a backup."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support import ledgers
from tests.support.ledgers import RECORD, back_up, export_document, restore

from comity.errors import BadInput, BudgetExceeded, ComityError, Malformed, Refused
from comity.privacy.accounting import gdp_epsilon, gdp_square
from comity.privacy.ledger import Draw, Ledger, verify_export
from comity.privacy.ledger.chain import FIELDS, next_head
from comity.privacy.ledger.witness import Seen, Witness, heads_folder
from comity.privacy.loss import GDP, Approx, Pure

spend = partial(ledgers.spend, count=2, dataset="patients")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with every kind of entry but freezes, closed."""
    path = tmp_path / "north.ledger"
    ledger = Ledger.create(path, dataset="patients", grant=Pure(9), **RECORD)
    ledger.add_dataset(dataset="staff", grant=Pure(1), **RECORD)
    for run in ("r1", "r2", "r3"):
        spend(ledger, run)
    ledger.close("r1")
    ledger.void("r2")
    ledger.grant_more(Pure(1), "approved", dataset="patients")
    return path


def edit(path: Path, *statements: str) -> None:
    """What somebody with a database tool can do."""
    connection = sqlite3.connect(path)
    for action in ("UPDATE", "DELETE"):
        connection.execute(f"DROP TRIGGER entries_stay_for_{action}")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def forget(home: Path) -> None:
    shutil.rmtree(home)


def test_the_head_is_a_hash_over_stored_texts_alone(path: Path) -> None:
    entries = Ledger(path).entries()
    head = entries[0].note
    for entry in entries:
        head = next_head(head, tuple(getattr(entry, name) for name in FIELDS[:-1]))
        assert entry.head == head
    assert Ledger(path).head() == head
    # A value that never changes: stored ledgers must stay readable.
    fixed = "bf3b32a530a3ed1a82f5c91e50bee39d8804bedcbb70bd1b3ce13ea06b5f3184"
    assert next_head("00" * 32, (1, "create", "é", None)) == fixed


def test_every_changed_field_is_noticed(path: Path, home: Path, tmp_path: Path) -> None:
    forget(home)
    values: dict[str, object] = {"seq": 1000, "index": 5, "head": "ab" * 32, "loss": "pure:0"}
    for column in FIELDS:
        for seq in (1, 4, 7):
            copy = tmp_path / f"{column}-{seq}"
            shutil.copy(path, copy)
            edit(copy, f'UPDATE entries SET "{column}" = {values.get(column, "x")!r} WHERE seq = {seq}')
            with pytest.raises(Refused) as refusal:
                Ledger(copy).verify()
            assert refusal.value.code == "chain"


def test_every_deleted_row_is_noticed(path: Path, home: Path, tmp_path: Path) -> None:
    forget(home)
    count = Ledger(path).verify().entries
    for seq in range(1, count + 1):
        copy = tmp_path / f"without-{seq}"
        shutil.copy(path, copy)
        edit(copy, f"DELETE FROM entries WHERE seq = {seq}")
        with pytest.raises(Refused, match=r"chain|sums"):
            Ledger(copy).verify()


@pytest.mark.parametrize(
    "statements",
    [
        # two entries change places
        ["UPDATE entries SET seq = 100 WHERE seq = 3", "UPDATE entries SET seq = 3 WHERE seq = 4",
         "UPDATE entries SET seq = 4 WHERE seq = 100"],
        ["UPDATE accounts SET spent = reserved WHERE dataset = 'patients'"],
        ["UPDATE accounts SET granted = 'pure:99' WHERE dataset = 'staff'"],
        ["UPDATE runs SET state = 'open' WHERE run = 'r1'"],
        ["DELETE FROM runs WHERE run = 'r2'"],
        ["DELETE FROM accounts WHERE dataset = 'staff'"],
        ["UPDATE ledgers SET frozen = 'x'"],
        ["DELETE FROM entries"],
    ],
)  # fmt: skip
def test_reordering_and_changed_sums_are_noticed(path: Path, home: Path, statements: list[str]) -> None:
    forget(home)
    edit(path, *statements)
    with pytest.raises(Refused, match=r"chain|sums"):
        Ledger(path).verify()


def test_a_recomputed_chain_still_has_to_follow_the_rules(path: Path) -> None:
    exported = export_document(Ledger(path))
    entries: list[Any] = [entry for entry in exported["entries"] if entry["kind"] != "reserve"]
    head = entries[0]["note"]
    for seq, entry in enumerate(entries, start=1):
        entry["seq"] = seq
        entry["head"] = head = next_head(head, tuple(entry[name] for name in FIELDS[:-1]))
    with pytest.raises(Refused, match="does not follow"):
        verify_export({**exported, "entries": entries, "head": head})


def test_an_export_verifies_anywhere(path: Path, tmp_path: Path) -> None:
    ledger = Ledger(path)
    assert ledger.export(tmp_path / "out.json") == ledger.verify()
    exported, stored = export_document(ledger), json.loads((tmp_path / "out.json").read_text())
    assert stored == exported
    assert verify_export(stored) == ledger.verify()
    stored["entries"][3]["loss"] = "pure:0"
    with pytest.raises(Refused, match="breaks at entry 4"):
        verify_export(stored)
    with pytest.raises(Refused, match="missing at the end"):
        verify_export({**exported, "entries": exported["entries"][:-1]})
    first = exported["entries"][0]
    for entry in ({"seq": 1}, {**first, "loss": 1}, {**first, "seq": True}):
        with pytest.raises(Malformed):
            verify_export({**exported, "entries": [entry]})
    junk: Any
    for junk in ({}, [], None, 7, "x", {**exported, "format": []}, {**exported, "entries": {}}):
        with pytest.raises(BadInput):
            verify_export(junk)
    entries: list[Any]
    for entries in ([7], [None], [[]], [{**first, "index": 2.5}], [{**first, "note": "x"}], [first, first], []):
        with pytest.raises(Refused):
            verify_export({**exported, "entries": entries})
    with pytest.raises(ComityError, match="can't be written"):
        ledger.export(tmp_path / "none" / "out.json")


# Backups


def test_a_restored_backup_opens_frozen(path: Path, tmp_path: Path) -> None:
    back_up(path, tmp_path / "backup")
    spend(Ledger(path), "r9")
    lost = Ledger(path).commit_head()
    restore(tmp_path / "backup", path)
    restored = Ledger(path)
    assert restored.verify().frozen == lost.head
    assert "FROZEN" in str(restored.summary()[0])
    with pytest.raises(Refused, match=r"is frozen: .*restored from a backup.*comity ledger write-off") as refusal:
        spend(restored, "r10")
    assert refusal.value.code == "frozen"
    with pytest.raises(Refused, match="is frozen"):
        restored.draw(run="r3", release="votes", index=1, step="vote")

    # Growing past the forgotten entries does not thaw it.
    for _ in range(8):
        restored.grant_more(Pure("0.001"), "more", dataset="patients")
    with pytest.raises(Refused, match="is frozen"):
        spend(Ledger(path), "r10")

    restored.write_off(Pure(1), "the week of the restore")
    [account, staff] = Ledger(path).summary()
    # Three draws of 0.1, the undrawn reservation of r3, and the gap.
    assert (account.spent.pure, account.reserved.pure, account.frozen) == (Pure("1.4").epsilon, Decimal(0), "")
    assert staff.left == 0
    with pytest.raises(Refused, match="written off"):
        restored.draw(run="r3", release="votes", index=1, step="vote")
    spend(Ledger(path), "r10")
    assert Ledger(path).verify().frozen == ""
    # The gap is settled also for peers who show the same head.
    Ledger(path).remember_commit(lost.ledger, lost.count, lost.head)
    assert Ledger(path).verify().frozen == ""


def test_the_copy_that_was_given_up_freezes_in_turn(path: Path, tmp_path: Path) -> None:
    back_up(path, tmp_path / "backup")
    spend(Ledger(path), "r9")
    Ledger(tmp_path / "backup").write_off("all", "lost")
    with pytest.raises(Refused, match="is frozen"):
        spend(Ledger(path), "r10")


def test_two_copies_in_use_at_once_do_not_both_spend(path: Path, tmp_path: Path) -> None:
    back_up(path, tmp_path / "twin")
    one, twin = Ledger(path), Ledger(tmp_path / "twin")
    spend(one, "r9")
    with pytest.raises(Refused, match="is frozen"):
        spend(twin, "r9")
    spend(one, "r10")


def test_a_replaced_file_is_noticed_by_open_ledgers(path: Path, tmp_path: Path) -> None:
    back_up(path, tmp_path / "backup")
    ledger = Ledger(path)
    spend(ledger, "r9")
    shutil.move(path, tmp_path / "old")
    with pytest.raises(ComityError, match="there is no such ledger"):
        spend(ledger, "r10")
    restore(tmp_path / "backup", path)
    with pytest.raises(Refused, match="is frozen"):
        spend(ledger, "r10")


@pytest.mark.parametrize("some", [0, 1])
def test_writing_off_all_leaves_nothing(tmp_path: Path, some: int) -> None:
    ledger = Ledger.create(tmp_path / "a", dataset="patients", grant=Approx(9, "1e-6"), **RECORD)
    if some:
        draw = Draw("sum", 0, GDP("0.4"), "rounded gaussian", 1)
        ledger.reserve(study="s", run="r0", draws=[draw], **RECORD)
    ledger.write_off("all", "lost the disk")
    for loss in (Pure("1e-9"), GDP("1e-9")):
        with pytest.raises(BudgetExceeded):
            ledger.reserve(study="s", run="r1", draws=[Draw("v", 0, loss, "m", 1)], **RECORD)
    [account] = ledger.summary()
    assert account.left is not None and account.left < Pure("1e-12").epsilon
    ledger.grant_more(Approx(1, "1e-6"), "a new year", dataset="patients")
    spend(ledger, "r1")
    ledger.verify()


def test_an_epsilon_written_off_with_a_delta_is_the_noise_that_the_two_buy(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a", dataset="patients", grant=Approx(3, "1e-5"), **RECORD)
    ledger.write_off(Approx(1, "1e-5"), "a study of eps 1 may have run")
    [account] = ledger.summary()
    assert account.spent.gaussian >= Approx(gdp_square(1, 1e-5), 0).epsilon
    assert 1 <= float(account.spent_epsilon) < 1.0001
    assert account.left is not None
    assert float(account.left) == pytest.approx(gdp_epsilon(gdp_square(3, 1e-5) - gdp_square(1, 1e-5), 1e-5), rel=1e-6)
    ledger.verify()


def test_a_write_off_may_exceed_the_grant(path: Path) -> None:
    ledger = Ledger(path)
    ledger.write_off(Approx(100, "1e-3"), "everything was published")
    assert [account.left for account in ledger.summary()] == [0, 0]
    with pytest.raises(BudgetExceeded):
        spend(ledger, "r9")
    ledger.verify()


# Peers


def test_a_peer_notices_a_roll_back(path: Path, tmp_path: Path, home: Path) -> None:
    back_up(path, tmp_path / "backup")
    [witness] = (home / "heads").glob("*.json")
    before = witness.read_text()
    spend(Ledger(path), "r9")
    seen = Ledger(path).commit_head()
    restore(tmp_path / "backup", path)
    witness.write_text(before)
    ledger = Ledger(path)
    spend(ledger, "r10", 0.01)
    known = ledger.commit_head()
    ledger.remember_commit(known.ledger, known.count, known.head)
    assert ledger.verify().frozen == ""
    ledger.remember_commit(seen.ledger, seen.count, seen.head)
    ledger.remember_commit(seen.ledger, seen.count, seen.head)
    again = Ledger(path)
    assert [entry.note for entry in again.entries() if entry.kind == "freeze"] == [seen.head]
    assert again.verify().frozen == seen.head
    with pytest.raises(Refused, match="is frozen"):
        spend(again, "r11")
    again.write_off("all", "rolled back")
    assert again.verify().frozen == ""


@pytest.mark.parametrize("bad", ["", "ab" * 31, "AB" * 32, "zz" * 32, 7])
def test_what_is_no_head_freezes_nothing(path: Path, bad: object) -> None:
    with pytest.raises(Malformed):
        Ledger(path).remember_commit(Ledger(path).commit_head().ledger, 1, bad)  # type: ignore[arg-type]
    assert Ledger(path).verify().frozen == ""


# The witness


def test_the_witness_follows_every_commit(path: Path, home: Path) -> None:
    ledger = Ledger(path)
    spend(ledger, "r9")
    [file] = (home / "heads").glob("*.json")
    seen = json.loads(file.read_text())
    assert (seen["count"], seen["head"]) == (ledger.commit_head().count, ledger.commit_head().head)
    assert file.stem == ledger.entries()[0].note


def test_a_witness_behind_is_no_roll_back(path: Path, home: Path) -> None:
    [file] = (home / "heads").glob("*.json")
    before = file.read_text()
    spend(Ledger(path), "r9")
    file.write_text(before)
    spend(Ledger(path), "after")
    assert json.loads(file.read_text())["head"] == Ledger(path).commit_head().head


@pytest.mark.parametrize("left", ["", "\n", "\0" * 96], ids=["empty", "blank", "zeros"])
def test_an_empty_witness_freezes_until_the_owner_writes_off(path: Path, home: Path, left: str) -> None:
    """An emptied file says nothing about what was seen, and does not move on by itself either."""
    [file] = (home / "heads").glob("*.json")
    file.write_text(left)
    ledger = Ledger(path)
    for run in ("r9", "r10"):
        with pytest.raises(Refused, match=r"is frozen.*write-off") as refusal:
            spend(ledger, run)
        assert refusal.value.code == "frozen" and file.read_text() == left
    assert ledger.verify().frozen
    ledger.write_off(Pure(0), "the witness was lost in a power cut, the ledger is the newest")
    assert not Ledger(path).verify().frozen and json.loads(file.read_text())["head"] == ledger.commit_head().head
    spend(Ledger(path), "r11")


def test_a_rolled_back_ledger_does_not_hide_behind_an_emptied_witness(path: Path, home: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.ledger"
    back_up(path, old)
    spend(Ledger(path), "r9")
    [file] = (home / "heads").glob("*.json")
    file.write_bytes(b"")
    restore(old, path)
    with pytest.raises(Refused, match="is frozen"):
        spend(Ledger(path), "r9")


def test_a_witness_is_on_the_disk_before_it_has_its_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut finds the old witness or the new one: the file is flushed, renamed, then its folder is flushed."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flushed(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        done.append(f"flush {kind} of {os.fstat(descriptor).st_size if kind == 'file' else 'all'}")
        fsync(descriptor)

    def renamed(source: str, target: str) -> None:
        done.append("rename")
        replace(source, target)

    witness = Witness("aa" * 32)
    witness.prepare()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", flushed)
        patched.setattr(os, "replace", renamed)
        witness.set(Seen(9, "ab" * 32))
    assert done == [f"flush file of {witness.path.stat().st_size}", "rename", "flush folder of all"]
    assert witness.path.stat().st_mode & 0o777 == 0o600


def test_a_spoilt_witness_freezes(path: Path, home: Path) -> None:
    [file] = (home / "heads").glob("*.json")
    for text in ("{", "[]", "[" * 100_000, '{"count": "7", "head": "x"}', '{"count": 1}'):
        file.write_text(text)
        with pytest.raises(Refused, match="expected the last number and head"):
            spend(Ledger(path), "r9")


def test_the_witness_never_moves_backwards(home: Path) -> None:
    witness = Witness("aa" * 32)
    witness.prepare()
    newer, older, foreign = Seen(9, "ab" * 32), Seen(8, "cd" * 32), Seen(10, "ef" * 32)
    witness.advance(newer, contains=lambda seen: True)
    assert witness.read() is None
    witness.set(newer)
    witness.advance(older, contains=lambda seen: True)
    assert witness.read() == newer
    witness.advance(foreign, contains=lambda seen: False)
    assert witness.read() == newer
    witness.set(older)
    assert witness.read() == older


def test_home_is_looked_up_at_each_use(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(path)
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(Refused, match="this machine has no witness"):
        spend(ledger, "r9")
    monkeypatch.delenv("COMITY_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert heads_folder() == tmp_path / "me" / ".comity" / "heads"

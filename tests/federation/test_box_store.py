"""Boxes beside a database: durable before they are named, the same bytes after a crash, and gone with the run."""

from __future__ import annotations

import sqlite3
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from comity.errors import StudyError
from comity.federation.messages.box_store import LARGE_BYTES, SUFFIX, BoxStore
from comity.federation.messages.letters import Head
from comity.federation.messages.signatures import sign_ask
from comity.federation.owner.store import Store
from comity.privacy.unit import Neighbours, Unit
from tests.federation import test_letters

from .test_letters import Shout, told

BOX = bytes(range(256)) * 300
DIGEST = sha256(BOX).digest()


@pytest.mark.parametrize("in_file", [True, False])
def test_what_is_read_is_what_was_added_and_nothing_after_the_run(tmp_path: Path, in_file: bool) -> None:
    boxes = BoxStore(tmp_path / "journal" if in_file else None)
    assert boxes.get("run", DIGEST) is None
    boxes.add("run", {DIGEST: BOX})
    boxes.add("run", {DIGEST: BOX})
    assert boxes.get("run", DIGEST) == BOX and boxes.get("other", DIGEST) is None
    boxes.delete("other")
    assert boxes.get("run", DIGEST) == BOX
    boxes.delete("run")
    assert boxes.get("run", DIGEST) is None
    assert list(tmp_path.iterdir()) == []


def test_a_store_without_boxes_opens_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a process with thousands of owners would run out of descriptors")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    for path in (None, tmp_path / "journal"):
        boxes = BoxStore(path)
        boxes.add("run", {})
        assert boxes.get("run", DIGEST) is None
        boxes.delete("run")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(AssertionError, match="descriptors"):
        BoxStore(None).add("run", {DIGEST: BOX})


def test_only_the_owner_reads_the_files_and_an_altered_one_counts_as_missing(tmp_path: Path) -> None:
    boxes = BoxStore(tmp_path / "journal")
    boxes.add("run/../x", {DIGEST: BOX})
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert file.stat().st_mode & 0o777 == 0o600 and all(one.stat().st_mode & 0o77 == 0 for one in folders)
    file.write_bytes(BOX[:-1])
    assert BoxStore(tmp_path / "journal").get("run/../x", DIGEST) is None


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_letters, "SIZE", LARGE_BYTES // 4)


def kept(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and SUFFIX in path.parent.parent.name]


def test_large_letters_are_in_no_database_and_gone_after_the_end(large: None, tmp_path: Path) -> None:
    parties, hosts = told(tmp_path)
    found = kept(tmp_path)
    # Three at the coordinator, and each at its sender.
    assert len(found) == 6 and all(path.stat().st_size > 2 * LARGE_BYTES for path in found)
    pieces = [path.read_bytes()[1000:1032] for path in found]
    databases = [path.read_bytes() for path in tmp_path.iterdir() if path.is_file()]
    assert databases and not any(piece in database for piece in pieces for database in databases)
    parties.ask(Shout.hear)
    for host in hosts.values():
        host.store.abandon(parties.run)
    parties.journal.settle(parties.study, parties.run)
    assert not kept(tmp_path) and not list(tmp_path.glob(f"*{SUFFIX}"))


def test_a_reply_with_large_letters_has_the_same_bytes_again(large: None, tmp_path: Path) -> None:
    parties, hosts = told(tmp_path)
    ask = dict(parties.journal.exchanges(parties.study, parties.run, "tell[0]"))
    for party, exchange in ask.items():
        signed, _ = sign_ask(parties.keys, party, exchange.message)
        again = hosts[party].answer(signed)
        assert again.refusal is None and exchange.reply is not None
        assert again.reply[: len(exchange.reply)] == exchange.reply


def test_a_missing_file_stops_the_run_and_is_not_sent_as_something_else(large: None, tmp_path: Path) -> None:
    parties, hosts = told(tmp_path)
    ask = dict(parties.journal.exchanges(parties.study, parties.run, "tell[0]"))
    for path in kept(tmp_path):
        path.write_bytes(b"x")
    party, exchange = next(iter(ask.items()))
    signed, _ = sign_ask(parties.keys, party, exchange.message)
    refusal = hosts[party].answer(signed).refusal
    assert refusal is not None and refusal.code == "ledger"
    with pytest.raises(StudyError, match="lacks a box"):
        parties.ask(Shout.hear)


def test_a_step_that_is_not_committed_leaves_files_that_nothing_names(
    large: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, hosts = told(tmp_path)
    host = next(iter(hosts.values()))
    before = set(kept(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(Store, "_with_head", _fail)
        with pytest.raises(Exception, match="tell"):
            parties.ask(Shout.tell, label=1)
    assert len(set(kept(tmp_path)) - before) == len(hosts)
    got = parties.ask(Shout.tell, label=1)
    assert len(got) == len(hosts) and host.store.state("run-1", "in:word:ash") is None


def _fail(*_: Any, **__: Any) -> Any:
    raise sqlite3.OperationalError("killed here")


def test_files_of_a_run_that_ended_under_a_kill_go_when_the_store_is_opened(large: None, tmp_path: Path) -> None:
    parties, hosts = told(tmp_path)
    host = next(iter(hosts.values()))
    ledger = host.store.ledger
    parties.ask(Shout.hear)
    stale = [path for path in kept(tmp_path) if path.parent.parent.name.startswith(ledger.path.name)]
    assert stale
    Store(ledger, unit=Unit.RECORD, neighbours=Neighbours.REPLACE)
    assert all(path.exists() for path in stale), "the run is open"
    with ledger.transaction() as transaction:
        transaction.connection.execute("update reply set body = null")
    Store(ledger, unit=Unit.RECORD, neighbours=Neighbours.REPLACE)
    assert not any(path.exists() for path in stale)


def test_a_letter_says_where_it_belongs_however_large_it_is(large: None, tmp_path: Path) -> None:
    parties, _ = told(tmp_path)
    for to, letters in parties._memory.mail.items():
        assert all(Head.of(letter).to == to and "bulk" in letter for letter in letters)

"""One row for each transaction that changed anything in a ledger's file, and a chain of heads over them.

The chain of entries follows debits alone. What else is in the file (replies, secrets of a run) matters as much when a
backup is restored: a site that has forgotten an answer would give a second one. So every commit has a number and a
head, over the commit before it, the last entry, the state of all accounts, and what the caller noted of its own
tables. The witness of this machine and the peers remember (ledger, number, head); a file that lacks one was rolled
back. The state in the last row is compared with the accounts at the start of every transaction, so sums that were
edited by something else are found before they are used.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from comity.errors import Refused
from comity.privacy.ledger.schema import damaged

_ACCOUNTS = """SELECT dataset, unit, neighbours, currency, granted, ceiling, spent, reserved
               FROM accounts WHERE owner = ? ORDER BY dataset"""
_ROWS = """SELECT one.count, one.seq, one.state, one.notes, one.head, entry.head FROM commits AS one
           LEFT JOIN entries AS entry ON entry.owner = one.owner AND entry.seq = one.seq
           WHERE one.owner = ? AND one.count > ? ORDER BY one.count"""
_LAST = "SELECT count, seq, state, notes, head FROM commits WHERE owner = ? ORDER BY count DESC LIMIT 2"

_canonical = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


@dataclass(frozen=True, slots=True)
class CommitHead:
    """The `count`-th commit of the ledger with the id `ledger`, and the head after it."""

    ledger: str
    count: int
    head: str


@dataclass(frozen=True, slots=True)
class Commit:
    count: int
    seq: int
    state: bytes
    notes: bytes
    head: bytes

    def follows(self, before: bytes, entry_head: str) -> bool:
        return self.head == commit_head(before, self.count, entry_head, self.state, self.notes)


def commit_head(before: bytes, count: int, entry_head: str, state: bytes, notes: bytes) -> bytes:
    text = b"comity commit %d\n" % count
    return hashlib.sha256(text + before + bytes.fromhex(entry_head) + state + notes).digest()


def notes_digest(notes: Iterable[bytes]) -> bytes:
    """Of what the callers noted, in order; empty when they noted nothing."""
    listed = list(notes)
    if not listed:
        return b""
    return hashlib.sha256(b"".join(len(note).to_bytes(4, "big") + note for note in listed)).digest()


def state_digest(connection: sqlite3.Connection, owner: int) -> bytes:
    """Of the ledger's id, whether it is frozen or simulated, and all of its accounts."""
    query = "SELECT id, frozen, simulated FROM ledgers WHERE owner = ?"
    return state_of(connection, owner, connection.execute(query, (owner,)).fetchone())


def state_of(connection: sqlite3.Connection, owner: int, ledger: tuple[str, str, int]) -> bytes:
    """`state_digest` of a ledger whose own row is known."""
    return hashlib.sha256(_canonical([ledger, connection.execute(_ACCOUNTS, (owner,)).fetchall()]).encode()).digest()


def last_commits(connection: sqlite3.Connection, owner: int) -> list[Commit]:
    """The newest commit and the one before it, as far as there are any."""
    return [Commit(*row) for row in connection.execute(_LAST, (owner,))]


def append_commit(connection: sqlite3.Connection, owner: int, commit: Commit) -> None:
    values = (owner, commit.count, commit.seq, commit.state, commit.notes, commit.head)
    connection.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?)", values)


def find_commit(connection: sqlite3.Connection, owner: int, count: int) -> str:
    """The head of the `count`-th commit; empty when there is none."""
    query = "SELECT head FROM commits WHERE owner = ? AND count = ?"
    found = connection.execute(query, (owner, count)).fetchone()
    return "" if found is None else bytes(found[0]).hex()


def check_state(connection: sqlite3.Connection, owner: int, where: str) -> None:
    """Refuses accounts, a last entry or a last commit that no transaction of ours left behind."""
    commits = last_commits(connection, owner)
    entry = connection.execute(
        "SELECT seq, head FROM entries WHERE owner = ? ORDER BY seq DESC LIMIT 1", (owner,)
    ).fetchone()
    if not commits or entry is None:
        raise damaged(where, "its commits or entries are missing")
    last = commits[0]
    before = commits[1].head if len(commits) > 1 else b""
    if entry[0] != last.seq or not last.follows(before, entry[1]):
        raise damaged(where, "the last commit does not follow from the entries")
    if last.state != state_digest(connection, owner):
        raise Refused(
            f"{where}: the sums of the ledger are not those that were last written: they were changed by something "
            "other than Comity. Nothing is spent from it; restore the last good copy and write off what may have "
            f"been spent since: comity ledger write-off {where} ...",
            code="chain",
        )


def follow_commits(connection: sqlite3.Connection, owner: int, where: str, *, after: int = 0) -> None:
    """Checks every commit from number `after` + 1 on; the heads of entries must have been checked before."""
    before = b"" if after == 0 else bytes.fromhex(find_commit(connection, owner, after))
    expected, seq = after, 0
    for *row, entry_head in connection.execute(_ROWS, (owner, after)):
        commit, expected = Commit(*row), expected + 1
        whole = commit.count == expected and commit.seq >= seq and entry_head is not None
        if not whole or not commit.follows(before, entry_head):
            raise damaged(where, f"commit {expected} does not follow from those before it")
        before, seq = commit.head, commit.seq

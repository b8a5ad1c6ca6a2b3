"""The tables of a ledger, and what SQLite's errors mean for the person who owns the file.

`entries` is the ledger. `ledgers`, `accounts` and `runs` are sums over it, kept so that a debit costs the
same in a ledger of a million entries; they change in the same transaction as the entries, and `Ledger.verify`
derives them again. Every table has an `owner`, because the ledgers of simulated parties share a database; in
a file it is 1.
"""

from __future__ import annotations

import sqlite3

from comity.errors import BadInput, ComityError, Refused, Stopped

APPLICATION = 0x434F4D59
VERSION = 1

_TABLES = """
CREATE TABLE ledgers (owner INTEGER PRIMARY KEY, id TEXT NOT NULL, frozen TEXT NOT NULL);
CREATE TABLE entries (
    owner INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, dataset TEXT NOT NULL,
    unit TEXT NOT NULL, neighbours TEXT NOT NULL, mechanism TEXT NOT NULL, sensitivity TEXT NOT NULL,
    loss TEXT NOT NULL, study TEXT NOT NULL, run TEXT NOT NULL, release TEXT NOT NULL, "index" INTEGER,
    step TEXT NOT NULL, time TEXT NOT NULL, note TEXT NOT NULL, head TEXT NOT NULL, PRIMARY KEY (owner, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX one_draw ON entries (owner, run, release, "index", kind) WHERE "index" IS NOT NULL;
CREATE INDEX entry_heads ON entries (head);
CREATE INDEX lost_heads ON entries (owner, note) WHERE kind = 'freeze';
CREATE TABLE accounts (
    owner INTEGER NOT NULL, dataset TEXT NOT NULL, unit TEXT NOT NULL, neighbours TEXT NOT NULL,
    granted TEXT NOT NULL, spent TEXT NOT NULL, reserved TEXT NOT NULL, PRIMARY KEY (owner, dataset)
) WITHOUT ROWID;
CREATE TABLE runs (
    owner INTEGER NOT NULL, run TEXT NOT NULL, dataset TEXT NOT NULL, study TEXT NOT NULL,
    state TEXT NOT NULL, PRIMARY KEY (owner, run)
) WITHOUT ROWID;
"""
_APPEND_ONLY = """CREATE TRIGGER entries_stay_for_{action} BEFORE {action} ON entries
BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never changed or deleted'); END"""


def lay_out(connection: sqlite3.Connection) -> None:
    """Creates the tables, inside the caller's transaction."""
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    for action in ("UPDATE", "DELETE"):
        connection.execute(_APPEND_ONLY.format(action=action))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def require_ledger(connection: sqlite3.Connection, where: str) -> None:
    """Refuses a file that is some other database, an unfinished one, or of a later format."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise not_a_ledger(where)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise BadInput(
            f"{where}: this ledger has format {version}, this version of Comity reads format {VERSION}: "
            "use the version that wrote it",
            code="ledger",
        )


def not_a_ledger(where: str) -> BadInput:
    return BadInput(
        f"{where}: expected a ledger, found another file or an init that was interrupted. Name the right "
        f"file, or move this one away and make a ledger: comity ledger init {where} ...",
        code="ledger",
    )


def explained(error: sqlite3.Error, where: str) -> ComityError:
    """The Comity error that an SQLite error stands for."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return not_a_ledger(where)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return Refused(
            f"{where}: the ledger can't be written ({error}). Give this user write access to the file and "
            "to its folder; nothing was spent",
            code="ledger",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Stopped(
            f"{where}: another process has held the ledger for a minute ({error}). Nothing was spent here; try again",
            code="ledger",
        )
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return Stopped(
            f"{where}: the disk did not take the entry ({error}). Nothing was spent; free some space and run again",
            code="ledger",
        )
    return Refused(
        f"{where}: the ledger is damaged ({error}). Restore the last good copy and write off what may have "
        "been spent since: comity ledger write-off",
        code="ledger",
    )


def explained_outside(error: sqlite3.Error, where: str) -> Exception:
    """Of statements that others ran in a transaction: constraints are theirs, the rest is about the file."""
    if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return error
    return explained(error, where)


def nested(name: str) -> Refused:
    return Refused(f"{name}: a transaction of this thread is open; write through it, or end it first", code="ledger")

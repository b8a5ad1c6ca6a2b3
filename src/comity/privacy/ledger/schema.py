"""The tables of a ledger, and what SQLite's errors mean for the person who owns the file.

`entries` is the ledger. `ledgers`, `accounts` and `runs` are sums over it, kept so that a debit costs the
same in a ledger of a million entries; they change in the same transaction as the entries, and `Ledger.verify`
derives them again. `commits` has one row for each transaction that changed anything in the file
(`comity.privacy.ledger.commits`). Every table has an `owner`, because the ledgers of simulated parties share a
database; in a file it is 1.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from comity.errors import BadInput, ComityError, Malformed, Refused, Stopped

APPLICATION = 0x434F4D59
VERSION = 2
FIRST = 1
"""The format whose grants mixed kinds of loss; `comity.privacy.ledger.migration` brings it to the present one."""

_LEDGERS = """CREATE TABLE ledgers (
    owner INTEGER PRIMARY KEY, id TEXT NOT NULL, frozen TEXT NOT NULL, simulated INTEGER NOT NULL
)"""
_ACCOUNTS = """CREATE TABLE accounts (
    owner INTEGER NOT NULL, dataset TEXT NOT NULL, unit TEXT NOT NULL, neighbours TEXT NOT NULL,
    currency TEXT NOT NULL, granted TEXT NOT NULL, ceiling TEXT NOT NULL, spent TEXT NOT NULL,
    reserved TEXT NOT NULL, PRIMARY KEY (owner, dataset)
) WITHOUT ROWID"""
_ENTRIES = """CREATE TABLE entries (
    owner INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, dataset TEXT NOT NULL,
    unit TEXT NOT NULL, neighbours TEXT NOT NULL, mechanism TEXT NOT NULL, sensitivity TEXT NOT NULL,
    loss TEXT NOT NULL, study TEXT NOT NULL, run TEXT NOT NULL, release TEXT NOT NULL, "index" INTEGER,
    step TEXT NOT NULL, time TEXT NOT NULL, note TEXT NOT NULL, head TEXT NOT NULL, PRIMARY KEY (owner, seq)
) WITHOUT ROWID"""
_RUNS = """CREATE TABLE runs (
    owner INTEGER NOT NULL, run TEXT NOT NULL, dataset TEXT NOT NULL, study TEXT NOT NULL,
    state TEXT NOT NULL, PRIMARY KEY (owner, run)
) WITHOUT ROWID"""
_COMMITS = """CREATE TABLE commits (
    owner INTEGER NOT NULL, count INTEGER NOT NULL, seq INTEGER NOT NULL, state BLOB NOT NULL,
    notes BLOB NOT NULL, head BLOB NOT NULL, PRIMARY KEY (owner, count)
) WITHOUT ROWID"""
_INDEXES = (
    'CREATE UNIQUE INDEX one_draw ON entries (owner, run, release, "index", kind) WHERE "index" IS NOT NULL',
    "CREATE INDEX lost_heads ON entries (owner, note) WHERE kind = 'freeze'",
)
_NEW_INDEXES = (
    """CREATE UNIQUE INDEX one_end ON entries (owner, run)
       WHERE kind IN ('close', 'void', 'forfeit', 'abandon')""",
    "CREATE INDEX open_runs ON runs (owner, run) WHERE state = 'open'",
)
_APPEND_ONLY = """CREATE TRIGGER entries_stay_for_{action} BEFORE {action} ON entries
BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never changed or deleted'); END"""


def lay_out(connection: sqlite3.Connection) -> None:
    """Creates the tables, inside the caller's transaction."""
    for statement in (_LEDGERS, _ENTRIES, *_INDEXES, _ACCOUNTS, _RUNS, _COMMITS, *_NEW_INDEXES):
        connection.execute(statement)
    for action in ("UPDATE", "DELETE"):
        connection.execute(_APPEND_ONLY.format(action=action))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def lay_out_anew(connection: sqlite3.Connection) -> None:
    """Brings the tables of the first format to the present one; entries stay, accounts are left empty."""
    connection.execute("ALTER TABLE ledgers ADD COLUMN simulated INTEGER NOT NULL DEFAULT 0")
    connection.execute("DROP TABLE accounts")
    connection.execute("DROP INDEX IF EXISTS entry_heads")
    for statement in (_ACCOUNTS, _COMMITS, *_NEW_INDEXES):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def format_of(connection: sqlite3.Connection, where: str) -> int:
    """Refuses a file that is some other database, an unfinished one, or of a later format."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise not_a_ledger(where)
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version not in (FIRST, VERSION):
        raise BadInput(
            f"{where}: this ledger has format {version}, this version of Comity reads the formats {FIRST} to "
            f"{VERSION}: use the version that wrote it",
            code="ledger",
        )
    return version


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
    return damaged(where, error)


def damaged(where: str, what: object) -> Refused:
    """Of a file that was changed by something other than Comity: nothing is reserved or drawn from it."""
    return Refused(
        f"{where}: the ledger is damaged ({what}). Nothing is spent from it; restore the last good copy and write "
        f"off what may have been spent since: comity ledger write-off {where} ...",
        code="damaged",
    )


@contextmanager
def sound(where: str) -> Iterator[None]:
    """Whatever goes wrong while stored values are read means that they are not what was stored."""
    try:
        yield
    except sqlite3.Error as error:
        raise explained(error, where) from error
    except Malformed as error:
        raise damaged(where, error) from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError, RecursionError) as error:
        raise damaged(where, type(error).__name__) from error


def explained_outside(error: sqlite3.Error, where: str) -> Exception:
    """Of statements that others ran in a transaction: constraints are theirs, the rest is about the file."""
    if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return error
    return explained(error, where)


def nested(name: str) -> Refused:
    return Refused(f"{name}: a transaction of this thread is open; write through it, or end it first", code="ledger")

"""The tables of a ledger, what a transaction reads and writes in them, and what SQLite's errors mean for the owner.

`entries` is the ledger. `ledgers`, `accounts` and `runs` hold sums over it, so a debit costs the same in a ledger of a
million entries. They change in the same transaction as the entries, and `Ledger.verify` derives them again. `commits`
has one row for each transaction that changed the file. Every table has an `owner`, because the ledgers of simulated
parties share a database; in a file of one ledger it is 1.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from comity.errors import BadInput, ComityError, Malformed, Refused, Stopped
from comity.privacy.ledger.balance import Balance, grant_text, parse_currency, parse_grant, parse_spent, spent_text
from comity.privacy.ledger.chain import FIELDS, Commit, Row, canonical_json, next_head
from comity.privacy.unit import Neighbours, Unit

APPLICATION_ID = 0x434F4D59
FORMAT = 2
FIRST_FORMAT = 1
"""Its grants mixed kinds of loss; `comity.privacy.ledger.verification.migrate` converts it to the present format."""

_CREATE_LEDGERS = """CREATE TABLE ledgers (
    owner INTEGER PRIMARY KEY, id TEXT NOT NULL, frozen TEXT NOT NULL, simulated INTEGER NOT NULL
)"""
_CREATE_ACCOUNTS = """CREATE TABLE accounts (
    owner INTEGER NOT NULL, dataset TEXT NOT NULL, unit TEXT NOT NULL, neighbours TEXT NOT NULL,
    currency TEXT NOT NULL, granted TEXT NOT NULL, ceiling TEXT NOT NULL, spent TEXT NOT NULL,
    reserved TEXT NOT NULL, PRIMARY KEY (owner, dataset)
) WITHOUT ROWID"""
_CREATE_ENTRIES = """CREATE TABLE entries (
    owner INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, dataset TEXT NOT NULL,
    unit TEXT NOT NULL, neighbours TEXT NOT NULL, mechanism TEXT NOT NULL, sensitivity TEXT NOT NULL,
    loss TEXT NOT NULL, study TEXT NOT NULL, run TEXT NOT NULL, release TEXT NOT NULL, "index" INTEGER,
    step TEXT NOT NULL, time TEXT NOT NULL, note TEXT NOT NULL, head TEXT NOT NULL, PRIMARY KEY (owner, seq)
) WITHOUT ROWID"""
_CREATE_RUNS = """CREATE TABLE runs (
    owner INTEGER NOT NULL, run TEXT NOT NULL, dataset TEXT NOT NULL, study TEXT NOT NULL,
    state TEXT NOT NULL, PRIMARY KEY (owner, run)
) WITHOUT ROWID"""
_CREATE_COMMITS = """CREATE TABLE commits (
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


def create_tables(connection: sqlite3.Connection) -> None:
    """Runs inside the caller's transaction."""
    for statement in (
        _CREATE_LEDGERS,
        _CREATE_ENTRIES,
        *_INDEXES,
        _CREATE_ACCOUNTS,
        _CREATE_RUNS,
        _CREATE_COMMITS,
        *_NEW_INDEXES,
    ):
        connection.execute(statement)
    for action in ("UPDATE", "DELETE"):
        connection.execute(_APPEND_ONLY.format(action=action))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def upgrade_tables(connection: sqlite3.Connection) -> None:
    """Converts the tables of the first format; entries stay, accounts are left empty."""
    connection.execute("ALTER TABLE ledgers ADD COLUMN simulated INTEGER NOT NULL DEFAULT 0")
    connection.execute("DROP TABLE accounts")
    connection.execute("DROP INDEX IF EXISTS entry_heads")
    for statement in (_CREATE_ACCOUNTS, _CREATE_COMMITS, *_NEW_INDEXES):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def read_format(connection: sqlite3.Connection, where: str) -> int:
    """The format of the file; refuses another database, an unfinished ledger and a later format."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise not_a_ledger(where)
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version not in (FIRST_FORMAT, FORMAT):
        raise BadInput(
            f"{where}: this ledger has format {version}, this version of Comity reads the formats {FIRST_FORMAT} to "
            f"{FORMAT}: use the version that wrote it",
            code="ledger",
        )
    return version


def not_a_ledger(where: str) -> BadInput:
    return BadInput(
        f"{where}: expected a ledger, found another file or an init that was interrupted. Name the right "
        f"file, or move this one away and make a ledger: comity ledger init {where} ...",
        code="ledger",
    )


def translate_error(error: sqlite3.Error, where: str) -> ComityError:
    """The Comity error for an SQLite error, with its remedy."""
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
    """The refusal for a file that something other than Comity changed."""
    return Refused(
        f"{where}: the ledger is damaged ({what}). Nothing is spent from it; restore the last good copy and write "
        f"off what may have been spent since: comity ledger write-off {where} ...",
        code="damaged",
    )


@contextmanager
def translate_sqlite_errors(where: str) -> Iterator[None]:
    """For reading stored values: any error in parsing them means that the file is damaged."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate_error(error, where) from error
    except Malformed as error:
        raise damaged(where, error) from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError, RecursionError) as error:
        raise damaged(where, type(error).__name__) from error


def translate_callers_error(error: sqlite3.Error, where: str) -> Exception:
    """As `translate_error`, for statements of callers: violated constraints of their tables pass unchanged."""
    if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return error
    return translate_error(error, where)


def nested_transaction(name: str) -> Refused:
    return Refused(f"{name}: a transaction of this thread is open; write through it, or end it first", code="ledger")


_FIELDS = ", ".join(f'"{name}"' for name in FIELDS)
_ENDS = "kind IN ('close', 'void', 'forfeit', 'abandon')"
_NEWEST = """SELECT one.count, one.head, entry.seq, entry.head FROM (SELECT 1)
LEFT JOIN (SELECT count, head FROM commits WHERE owner = ?1 ORDER BY count DESC LIMIT 1) AS one
LEFT JOIN (SELECT seq, head FROM entries WHERE owner = ?1 ORDER BY seq DESC LIMIT 1) AS entry"""
_INSERT = f"INSERT INTO entries (owner, {_FIELDS}) VALUES (?{', ?' * len(FIELDS)})"

LedgerRow = tuple[str, str, int]
"""Id, missing head, and whether the ledger is simulated."""

# An entry that is a day or more older than an earlier entry was written while the clock was behind. Its true time is
# unknown, so it always counts. An entry that is a day ahead of the asking clock was written while the clock was ahead,
# and says nothing about the entries after it.
_TIMED = """WITH timed AS (
    SELECT run, kind, dataset, loss, time, max(
        CASE WHEN julianday(time) <= julianday(?4) + 1 THEN time END
    ) OVER (ORDER BY seq) AS latest FROM entries WHERE owner = ?1
)"""
_SINCE = "dataset = ?2 AND (time >= ?3 OR julianday(time) < julianday(latest) - 1)"

_STATE = """SELECT dataset, unit, neighbours, currency, granted, ceiling, spent, reserved
            FROM accounts WHERE owner = ? ORDER BY dataset"""
_COMMITS = """SELECT one.count, one.seq, one.state, one.notes, one.head, entry.head FROM commits AS one
              LEFT JOIN entries AS entry ON entry.owner = one.owner AND entry.seq = one.seq
              WHERE one.owner = ? AND one.count > ? ORDER BY one.count"""
_LAST_COMMITS = "SELECT count, seq, state, notes, head FROM commits WHERE owner = ? ORDER BY count DESC LIMIT 2"


class Rows:
    """What a transaction reads and writes, only of the ledger `owner`."""

    def __init__(self, connection: sqlite3.Connection, owner: int, where: str) -> None:
        self._connection = connection
        self._owner = owner
        self._where = where
        self._ledger: LedgerRow | None = None

    def append(self, kind: str, rows: Sequence[Row]) -> None:
        """Appends entries of one kind. The first entry of a ledger follows the nonce that it carries."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        seq, head = (0, str(rows[0][-1])) if kind == "create" else self.last()
        full: list[Row] = []
        for row in rows:
            seq += 1
            stored = (seq, kind, *row[:-1], time, row[-1])
            head = next_head(head, stored)
            full.append((self._owner, *stored, head))
        try:
            self._connection.executemany(_INSERT, full)
        except sqlite3.Error as error:
            raise translate_error(error, self._where) from error

    def last(self) -> tuple[int, str]:
        """Number and head of the newest entry."""
        seq, head = self._one("SELECT seq, head FROM entries WHERE owner = ?1 ORDER BY seq DESC LIMIT 1")
        return seq, head

    def last_row(self) -> Row:
        """The newest entry as it is stored."""
        newest: Row = self._one(f"SELECT {_FIELDS} FROM entries WHERE owner = ?1 ORDER BY seq DESC LIMIT 1")
        return newest

    def last_commit_and_entry(self) -> tuple[tuple[int, bytes], tuple[int, str]]:
        """Number and head of the newest commit, (0, b"") if there is none, and of the newest entry."""
        count, before, seq, head = self._one(_NEWEST)
        return (0, b"") if count is None else (count, bytes(before)), (seq, head)

    def create(self, nonce: str, *, simulated: bool) -> None:
        self._ledger = None
        self._do("INSERT INTO ledgers VALUES (?1, ?2, '', ?3)", nonce, int(simulated))

    def id(self) -> str:
        return self.ledger()[0]

    def is_created(self) -> bool:
        return self._read_ledger() is not None

    def ledger(self) -> LedgerRow:
        """The ledger's row as this transaction finds or leaves it; read once."""
        found = self._read_ledger()
        assert found is not None
        return found

    def _read_ledger(self) -> LedgerRow | None:
        if self._ledger is None:
            self._ledger = self._one("SELECT id, frozen, simulated FROM ledgers WHERE owner = ?1")
        return self._ledger

    def datasets(self) -> list[str]:
        return [name for (name,) in self._all("SELECT dataset FROM accounts WHERE owner = ?1 ORDER BY dataset")]

    def open_account(self, dataset: str, unit: Unit, neighbours: Neighbours, balance: Balance) -> None:
        self._do(
            "INSERT INTO accounts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            dataset,
            str(unit),
            str(neighbours),
            *_account_texts(balance),
        )

    def account(self, dataset: str) -> tuple[Unit, Neighbours, Balance]:
        row = self._one(
            "SELECT unit, neighbours, currency, granted, ceiling, spent, reserved FROM accounts "
            "WHERE owner = ?1 AND dataset = ?2",
            dataset,
        )
        if row is None:
            known = ", ".join(self.datasets())
            raise BadInput(f"{self._where} has no dataset {dataset}; it holds {known}", code="dataset", key="dataset")
        with translate_sqlite_errors(self._where):
            return parse_account(*row)

    def update_account(self, dataset: str, balance: Balance) -> None:
        self._do(
            "UPDATE accounts SET currency = ?3, granted = ?4, ceiling = ?5, spent = ?6, reserved = ?7 "
            "WHERE owner = ?1 AND dataset = ?2",
            dataset,
            *_account_texts(balance),
        )

    def open_run(self, run: str, dataset: str, study: str) -> None:
        self._do("INSERT INTO runs VALUES (?1, ?2, ?3, ?4, 'open')", run, dataset, study)

    def end_run(self, run: str, state: str) -> None:
        self._do("UPDATE runs SET state = ?3 WHERE owner = ?1 AND run = ?2", run, state)

    def run(self, run: str) -> tuple[str, str, str] | None:
        """Dataset, study and state of a run; refuses a state that contradicts the entries."""
        query = "SELECT dataset, study, state FROM runs WHERE owner = ?1 AND run = ?2"
        found: tuple[str, str, str] | None = self._one(query, run)
        ended = self._one(f"SELECT 1 FROM entries INDEXED BY one_end WHERE owner = ?1 AND run = ?2 AND {_ENDS}", run)
        if (found is not None and found[2] != "open") != (ended is not None):
            raise damaged(self._where, f"its run {run} is not in the state that the entries say")
        return found

    def open_runs(self) -> list[str]:
        query = "SELECT run FROM runs INDEXED BY open_runs WHERE owner = ?1 AND state = 'open' ORDER BY run"
        return [run for (run,) in self._all(query)]

    def entries_of_draw(self, run: str, release: str, index: int) -> dict[str, tuple[str, ...]]:
        """The entries about one draw, by kind."""
        rows = self._all(
            "SELECT kind, dataset, unit, neighbours, mechanism, sensitivity, loss, study, step FROM entries INDEXED BY "
            'one_draw WHERE owner = ?1 AND run = ?2 AND release = ?3 AND "index" = ?4 AND "index" IS NOT NULL',
            run,
            release,
            index,
        )
        return {row[0]: row[1:] for row in rows}

    def reservation(self, run: str) -> list[Row]:
        """The reserved draws of a run in order, in the form of `make_row`."""
        return self._all(
            "SELECT dataset, unit, neighbours, mechanism, sensitivity, loss, study, run, release, "
            '"index", step, note FROM entries INDEXED BY one_draw '
            "WHERE owner = ?1 AND run = ?2 AND \"index\" IS NOT NULL AND kind = 'reserve' ORDER BY seq",
            run,
        )

    def reserved_draws(self, run: str) -> list[tuple[str, str, bool]]:
        """Part and loss of each draw that a run reserved, and whether it was drawn."""
        rows = self._all(
            "SELECT step, loss, EXISTS (SELECT 1 FROM entries AS debit INDEXED BY one_draw "
            "WHERE debit.owner = ?1 AND debit.run = ?2 AND debit.release = promise.release "
            'AND debit."index" = promise."index" AND debit."index" IS NOT NULL AND debit.kind = \'draw\') '
            "FROM entries AS promise INDEXED BY one_draw "
            "WHERE owner = ?1 AND run = ?2 AND \"index\" IS NOT NULL AND kind = 'reserve' ORDER BY seq",
            run,
        )
        return [(part, loss, bool(drawn)) for part, loss, drawn in rows]

    def runs_since(self, dataset: str, moment: str, now: str) -> dict[str, bool]:
        """The runs of a dataset that are open, or that drew or were forfeited at this moment or later. True where the
        whole reservation counts, False where only its draws do."""
        rows = self._all(
            f"{_TIMED} SELECT run, 1 FROM runs INDEXED BY open_runs WHERE owner = ?1 AND state = 'open' "
            f"AND dataset = ?2 UNION ALL SELECT run, max(kind = 'forfeit') FROM timed WHERE {_SINCE} "
            "AND kind IN ('draw', 'forfeit') GROUP BY run",
            dataset,
            moment,
            now,
        )
        found: dict[str, bool] = {}
        for run, whole in rows:
            found[run] = bool(whole) or found.get(run, False)
        return found

    def write_offs_since(self, dataset: str, moment: str, now: str) -> list[str]:
        """The losses that the owner wrote off at this moment or later."""
        query = f"{_TIMED} SELECT loss FROM timed WHERE {_SINCE} AND kind = 'write-off'"
        return [loss for (loss,) in self._all(query, dataset, moment, now)]

    def frozen(self) -> str:
        return self.ledger()[1]

    def freeze(self, head: str) -> None:
        self._ledger = None
        self._do("UPDATE ledgers SET frozen = ?2 WHERE owner = ?1", head)

    def has_frozen(self, head: str) -> bool:
        """Whether this missing head froze the ledger before; each head does so once."""
        query = "SELECT 1 FROM entries INDEXED BY lost_heads WHERE owner = ?1 AND kind = 'freeze' AND note = ?2"
        return self._one(query, head) is not None

    def _do(self, statement: str, *values: str | int) -> None:
        try:
            self._connection.execute(statement, numbered_parameters(self._owner, *values))
        except sqlite3.Error as error:
            raise translate_error(error, self._where) from error

    def _one(self, query: str, *values: str | int) -> Any:
        return next(iter(self._all(query, *values)), None)

    def _all(self, query: str, *values: str | int) -> list[Any]:
        try:
            return self._connection.execute(query, numbered_parameters(self._owner, *values)).fetchall()
        except sqlite3.Error as error:
            raise translate_error(error, self._where) from error


def entry_rows(connection: sqlite3.Connection, owner: int, after: int = 0) -> Iterable[Row]:
    """The entries as they are stored, one at a time."""
    return connection.execute(f"SELECT {_FIELDS} FROM entries WHERE owner = ? AND seq > ? ORDER BY seq", (owner, after))


def stored_accounts(connection: sqlite3.Connection, owner: int) -> dict[str, tuple[str, str, Balance]]:
    return {name: parse_account(*texts) for name, *texts in connection.execute(_STATE, (owner,))}


def commits_after(connection: sqlite3.Connection, owner: int, count: int) -> Iterator[tuple[Commit, str | None]]:
    """The commits after number `count`, each with the head of the entry that it names."""
    for *stored, entry_head in connection.execute(_COMMITS, (owner, count)):
        yield Commit(*stored), entry_head


def state_digest(connection: sqlite3.Connection, owner: int) -> bytes:
    """Digest of the ledger's row and of all its accounts."""
    query = "SELECT id, frozen, simulated FROM ledgers WHERE owner = ?"
    return state_digest_of(connection, owner, connection.execute(query, (owner,)).fetchone())


def state_digest_of(connection: sqlite3.Connection, owner: int, ledger: tuple[str, str, int]) -> bytes:
    """`state_digest` of a ledger whose row is known."""
    return hashlib.sha256(canonical_json([ledger, connection.execute(_STATE, (owner,)).fetchall()]).encode()).digest()


def last_commits(connection: sqlite3.Connection, owner: int) -> list[Commit]:
    """The newest commit and the one before it, if there are any."""
    return [Commit(*row) for row in connection.execute(_LAST_COMMITS, (owner,))]


def append_commit(connection: sqlite3.Connection, owner: int, commit: Commit) -> None:
    values = (owner, commit.count, commit.seq, commit.state, commit.notes, commit.head)
    connection.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?)", values)


def find_commit(connection: sqlite3.Connection, owner: int, count: int) -> str:
    """The head of commit number `count`; empty when there is none."""
    query = "SELECT head FROM commits WHERE owner = ? AND count = ?"
    found = connection.execute(query, (owner, count)).fetchone()
    return "" if found is None else bytes(found[0]).hex()


def numbered_parameters(*values: str | int) -> dict[str, str | int]:
    """Values for ?1, ?2, … by name, because early releases of Python 3.12 warn about a sequence."""
    return {str(place): value for place, value in enumerate(values, 1)}


def parse_account(
    unit: str, neighbours: str, currency: str, granted: str, ceiling: str, spent: str, reserved: str
) -> tuple[Unit, Neighbours, Balance]:
    grant = parse_grant(granted)
    counted, limit = parse_currency(currency, ceiling, grant)
    return Unit(unit), Neighbours(neighbours), Balance(grant, counted, limit, parse_spent(spent), parse_spent(reserved))


def _account_texts(balance: Balance) -> tuple[str, str, str, str, str]:
    currency, ceiling = currency_texts(balance)
    return currency, grant_text(balance.granted), ceiling, spent_text(balance.spent), spent_text(balance.reserved)


def currency_texts(balance: Balance) -> tuple[str, str]:
    """Currency and ceiling as they are stored."""
    return balance.currency or "", "" if balance.ceiling is None else balance.ceiling.as_text()


def make_row(
    dataset: str,
    unit: str,
    neighbours: str,
    *,
    mechanism: str = "",
    sensitivity: str = "",
    loss: str = "",
    study: str = "",
    run: str = "",
    release: str = "",
    index: int | None = None,
    step: str = "",
    note: str = "",
) -> Row:
    """An entry without its number, kind, time and head."""
    source = (dataset, str(unit), str(neighbours), mechanism, sensitivity, loss)
    return (*source, study, run, release, index, step, note)


def require_line(name: str, text: str, error: type[ComityError] = Malformed) -> str:
    """`text`, if it is one printable line; the owner reads it in a terminal."""
    if not isinstance(text, str) or not text.isprintable() or not 0 < len(text) <= 500:
        raise error(f"{name} must be a line of 1 to 500 printable characters, found {str(text)[:80]!r}", key=name)
    return text


def require_index(index: int) -> int:
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < 2**53:
        raise Malformed(f"a draw's index is a whole number from 0, found {index!r}", key="index")
    return index

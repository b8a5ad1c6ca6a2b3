"""A ledger's file: one connection per thread, and one transaction at a time among all processes.

A commit is durable when it returns (write-ahead log, synchronous=FULL); writers queue for at most a minute. The file
must lie on a local disk: locks of network file systems do not hold. Nothing else in this process may open and close
the file while a connection is open: that would drop SQLite's locks, and with them commits.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from comity.errors import BadInput, ComityError, Refused, Stopped
from comity.forks import GATE
from comity.privacy.ledger.chain import is_head
from comity.privacy.ledger.check import check_opened
from comity.privacy.ledger.commits import CommitHead, check_state, find_commit
from comity.privacy.ledger.migration import migrate
from comity.privacy.ledger.schema import (
    FIRST,
    explained,
    explained_outside,
    format_of,
    lay_out,
    nested,
    not_a_ledger,
    sound,
)
from comity.privacy.ledger.witness import UNWITNESSED, Seen, Witness

_PATIENCE = 60.0

_handles: weakref.WeakSet[_Handle] = weakref.WeakSet()
_severed: list[_Handle] = []


class _Handle:
    """One thread's connection to one file; `inside` while its thread uses it, which is inside the gate then."""

    def __init__(self, path: Path) -> None:
        self.pid = os.getpid()
        self.thread = threading.get_ident()
        self.inside = False
        self.file = (0, 0)
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def opened(self) -> sqlite3.Connection:
        """The connection, made again when the file is another one than before."""
        if self._connection is not None and self.file == _identity(self._path):
            return self._connection
        self.close()
        self.file = _identity(self._path)
        if any(handle.file == self.file for handle in _severed):
            raise Refused(
                f"{self._path}: this process was forked inside a transaction of the ledger, whose locks it can't "
                "tell from its own: start processes outside of transactions, or with the spawn method",
                code="ledger",
            )
        self._connection = _connect(self._path, existing=True)
        _handles.add(self)
        return self._connection

    @property
    def current(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def close(self) -> None:
        if self._connection is not None and self.pid == os.getpid():
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        if self._connection is not None and self.pid == os.getpid():
            GATE.close(self._connection)


def _close_idle() -> None:
    """Before a fork: SQLite's locks do not survive it, so no connection may. Idle ones are opened again when needed."""
    for handle in list(_handles):
        if not handle.inside:
            handle.close()


def _keep_severed() -> None:
    """In a forked process: what was in use is kept for good, since closing it would undo what the parent still uses."""
    _severed.extend(handle for handle in list(_handles) if handle.inside)
    _handles.clear()


GATE.at_fork(before=_close_idle, in_child=_keep_severed)


def _connect(path: Path, *, existing: bool) -> sqlite3.Connection:
    """A connection that reads and writes; of a file on read-only media, one that reads."""
    try:
        return _connected(path, "mode=rw", existing=existing)
    except sqlite3.OperationalError as error:
        blocked = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
        if not existing or path.is_dir() or getattr(error, "sqlite_errorcode", 0) & 0xFF not in blocked:
            raise
        log = Path(f"{path}-wal")
        # A log that can't be opened holds the newest commits, and reading past it would show an older ledger.
        if log.exists() and log.stat().st_size:
            raise
        return _connected(path, "immutable=1", existing=existing)


def _connected(path: Path, mode: str, *, existing: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{mode}",
        uri=True,
        timeout=_PATIENCE,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        if existing:
            format_of(connection, str(path))
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        # What is deleted at the end of a run, keys among it, is overwritten in the file.
        connection.execute("PRAGMA secure_delete = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


class _Undone(Exception):
    """Ends a transaction that is not to be."""


class OnDisk:
    """A ledger's file: a connection per process and thread, opened again after a fork or a change of file."""

    owner = 1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self.name = str(path)
        self._local = threading.local()
        self._checked = (0, 0)
        with self.reading() as connection:
            old = format_of(connection, self.name) == FIRST
        if old:
            self._migrate()
        with self.reading() as connection, sound(self.name):
            row = connection.execute("SELECT id, simulated FROM ledgers WHERE owner = 1").fetchone()
        if row is None or not is_head(row[0]):
            raise not_a_ledger(self.name)
        self._witness = Witness(row[0])
        self.simulated = bool(row[1])

    def _migrate(self) -> None:
        """Brings a ledger of the first format to the present one, unless another process was faster."""
        with self._used(self._handle(), "BEGIN IMMEDIATE") as connection, sound(self.name):
            if format_of(connection, self.name) != FIRST:
                return
            ledger: str = connection.execute("SELECT id FROM ledgers WHERE owner = 1").fetchone()[0]
            entries: int = connection.execute("SELECT count(*) FROM entries WHERE owner = 1").fetchone()[0]
            witness = Witness(ledger)
            seen = witness.read()
            head = migrate(connection, self.owner, self.name)
        # The first format made its witness with the first use.
        known = entries == 1 and not witness.exists() if seen is None else self._knows(seen)
        if known:
            with suppress(OSError, ComityError):
                witness.prepare()
                witness.set(Seen(head.count, head.head))

    @staticmethod
    @contextmanager
    def founding(path: str | os.PathLike[str]) -> Iterator[sqlite3.Connection]:
        """The transaction that makes a new file; no file is left behind when it fails."""
        try:
            # Readable by its owner alone: the entries tell which studies ran.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            raise Refused(
                f"{path}: a file is there already, and a ledger is never overwritten. Choose another name, "
                f"or show what it holds: comity ledger show {path}",
                code="exists",
            ) from None
        except OSError as error:
            raise BadInput(
                f"{path}: a ledger can't be made here ({error.strerror}). Choose a folder that exists and "
                "can be written",
                code="ledger",
            ) from error
        try:
            with GATE:
                connection = _connect(Path(path).absolute(), existing=False)
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("BEGIN IMMEDIATE")
                    lay_out(connection)
                    yield connection
                    connection.execute("COMMIT")
                finally:
                    connection.close()
        except BaseException as error:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            if isinstance(error, sqlite3.Error):
                raise explained(error, str(path)) from error
            raise

    def _handle(self) -> _Handle:
        handle: _Handle | None = getattr(self._local, "handle", None)
        if handle is None or handle.pid != os.getpid():
            self._local.handle = handle = _Handle(self.path)
        return handle

    @contextmanager
    def _used(self, handle: _Handle, begin: str) -> Iterator[sqlite3.Connection]:
        with GATE:
            handle.inside = True
            try:
                try:
                    with sound(self.name):
                        connection = handle.opened()
                except FileNotFoundError:
                    raise _missing(self.name) from None
                with _transaction(connection, begin):
                    if self._checked != handle.file and format_of(connection, self.name) != FIRST:
                        check_opened(connection, self.owner, self.name)
                        self._checked = handle.file
                    yield connection
            except sqlite3.Error as error:
                raise explained_outside(error, self.name) from error
            finally:
                handle.inside = False

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """BEGIN IMMEDIATE … COMMIT, rolled back by any exception."""
        handle = self._handle()
        if handle.inside:
            raise nested(self.name)
        if not self.simulated:
            self._witness.prepare()
        with self._used(handle, "BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A consistent view; inside this thread's transaction, the view of that transaction."""
        handle = self._handle()
        if handle.inside:
            yield handle.current
            return
        with self._used(handle, "BEGIN") as connection:
            yield connection

    def seen(self) -> Seen | None:
        """What the witness saw last; to be asked before reading, since an older view would look rolled back."""
        return self._witness.read()

    def lost(self, connection: sqlite3.Connection, seen: Seen | None) -> str:
        """What was seen and the file lacks, or nothing. A simulated ledger is never looked after."""
        if self.simulated:
            return ""
        if seen is None:
            return UNWITNESSED
        return "" if _contains(connection, seen) else seen.head

    def check(self, connection: sqlite3.Connection) -> None:
        """Before anything is written: the sums are those that were last written."""
        with sound(self.name):
            check_state(connection, self.owner, self.name)

    def witness(self, head: CommitHead, *, thawed: bool) -> None:
        """After a commit. A witness may lag, so failing here must not look like a failed commit."""
        if self.simulated:
            return
        with suppress(OSError, ComityError, sqlite3.Error):
            if thawed:
                self._witness.set(Seen(head.count, head.head))
            else:
                self._witness.advance(Seen(head.count, head.head), contains=self._knows)

    def _knows(self, seen: Seen) -> bool:
        # Inside the gate: a fork closes connections that are not in use.
        with self.reading() as connection:
            return _contains(connection, seen)

    def try_writing(self) -> None:
        """Refuses a file that could be written but for its own header; one on read-only media can be read."""
        handle = self._handle()
        writable = os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
        if writable and not handle.inside:
            # Whoever else is writing just now shows that it can be written. To begin is not enough: SQLite then reads.
            with suppress(Stopped, _Undone), self._used(handle, "BEGIN IMMEDIATE") as connection:
                connection.execute("UPDATE ledgers SET frozen = frozen WHERE owner = 1")
                raise _Undone

    def truncate_log(self) -> bool:
        """Moves the write-ahead log into the file and empties it; False where others are reading from it just now."""
        handle = self._handle()
        if handle.inside:
            raise nested(self.name)
        with GATE:
            handle.inside = True
            try:
                busy = handle.opened().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            except FileNotFoundError:
                raise _missing(self.name) from None
            except sqlite3.Error as error:
                raise explained(error, self.name) from error
            finally:
                handle.inside = False
        return not busy


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _contains(connection: sqlite3.Connection, seen: Seen) -> bool:
    if not seen.of_entry:
        return find_commit(connection, 1, seen.count) == seen.head
    found = connection.execute("SELECT head FROM entries WHERE owner = 1 AND seq = ?", (seen.count,)).fetchone()
    return found is not None and found[0] == seen.head


def _missing(name: str) -> BadInput:
    return BadInput(
        f"{name}: there is no such ledger. Name the right file, or make one: comity ledger init {name} "
        "--dataset NAME --epsilon E --unit record --neighbours replace",
        code="ledger",
    )

"""Where a ledger lies: in a file, or in the memory of one process.

Both give one connection for reading and one transaction at a time for writing. In a file a commit is durable
when it returns (write-ahead log, synchronous=FULL) and writers of all processes queue for at most a minute.
The file must lie on a local disk: locks of network file systems do not hold.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from comity.errors import BadInput, ComityError, Refused
from comity.privacy.chain import is_head
from comity.privacy.ledger_schema import explained, lay_out, not_a_ledger, require_ledger
from comity.privacy.ledger_witness import Seen, Witness

_PATIENCE = 60.0
_SHARED_BY = 256
_abandoned: list[sqlite3.Connection] = []


class _Handle:
    """One thread's connection to one file. Closed by the process that opened it, and by no other."""

    def __init__(self, path: Path) -> None:
        self.pid = os.getpid()
        self.connection = _connect(path, existing=True)
        self.file = _identity(path)

    def __del__(self) -> None:
        if not hasattr(self, "connection"):
            return
        if self.pid == os.getpid():
            self.connection.close()
        else:
            # After a fork, closing here would undo locks and logs that the parent still uses.
            _abandoned.append(self.connection)


def _connect(path: Path, *, existing: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw",
        uri=True,
        timeout=_PATIENCE,
        isolation_level=None,
        check_same_thread=False,
    )
    if existing:
        try:
            require_ledger(connection, str(path))
        except BaseException:
            connection.close()
            raise
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


class OnDisk:
    """A ledger's file: a connection per process and thread, opened again after a fork or a change of file."""

    owner = 1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self.name = str(path)
        self._local = threading.local()
        with self.reading() as connection:
            row = connection.execute("SELECT id FROM ledgers WHERE owner = 1").fetchone()
        if row is None or not is_head(row[0]):
            raise not_a_ledger(self.name)
        self._witness = Witness(row[0])

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
            raise Refused(
                f"{path}: a ledger can't be made here ({error.strerror}). Choose a folder that exists and "
                "can be written",
                code="ledger",
            ) from error
        try:
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

    def _connection(self) -> sqlite3.Connection:
        handle: _Handle | None = getattr(self._local, "handle", None)
        try:
            if handle is None or handle.pid != os.getpid() or handle.file != _identity(self.path):
                self._local.handle = handle = _Handle(self.path)
        except FileNotFoundError:
            raise _missing(self.name) from None
        except sqlite3.Error as error:
            if not self.path.exists():
                raise _missing(self.name) from None
            raise explained(error, self.name) from error
        return handle.connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """BEGIN IMMEDIATE … COMMIT, rolled back by any exception."""
        connection = self._connection()
        if connection.in_transaction:
            raise _nested(self.name)
        self._witness.prepare()
        try:
            with _transaction(connection, "BEGIN IMMEDIATE"):
                yield connection
        except sqlite3.Error as error:
            raise _explained(error, self.name) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A consistent view; inside this thread's transaction, the view of that transaction."""
        connection = self._connection()
        if connection.in_transaction:
            yield connection
            return
        try:
            with _transaction(connection, "BEGIN"):
                yield connection
        except sqlite3.Error as error:
            raise _explained(error, self.name) from error

    def lost(self, connection: sqlite3.Connection) -> str:
        """The head that the witness saw and the chain lacks, or nothing."""
        seen = self._witness.read()
        return "" if seen is None or _contains(connection, seen) else seen.head

    def witness(self, connection: sqlite3.Connection, seq: int, head: str, *, thawed: bool) -> None:
        """After a commit. A witness may lag, so failing here must not look like a failed commit."""
        with suppress(OSError, ComityError, sqlite3.Error):
            if thawed:
                self._witness.set(Seen(seq, head))
            else:
                self._witness.advance(Seen(seq, head), contains=lambda seen: _contains(connection, seen))

    @property
    def witness_path(self) -> Path:
        return self._witness.path


class InMemory:
    """A simulated party's ledger. Hundreds share one private database; it dies with the last of them.

    It belongs to the process that made it: a copy in another process would be a second budget.
    """

    __slots__ = ("_pid", "_seat", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._pid = os.getpid()
        self._seat: tuple[_Shared, int] | None = None

    @property
    def owner(self) -> int:
        return self._taken()[1]

    def _taken(self) -> tuple[_Shared, int]:
        if self._pid != os.getpid():
            raise Refused(
                f"the ledger of {self.name} lives in the memory of process {self._pid}, and this process "
                "would spend a copy of it: give it a path (comity ledger init) to use it from several "
                "processes",
                code="ledger",
            )
        if self._seat is None:
            with _seating:
                self._seat = self._seat or _take_seat()
        return self._seat

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        shared, _ = self._taken()
        if shared.holder == threading.get_ident():
            raise _nested(self.name)
        try:
            with shared.lock:
                shared.holder = threading.get_ident()
                shared.connection.execute("BEGIN")
                try:
                    yield shared.connection
                    shared.connection.execute("COMMIT")
                finally:
                    shared.holder = 0
                    if shared.connection.in_transaction:
                        shared.connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise _explained(error, self.name) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        shared, _ = self._taken()
        if shared.holder == threading.get_ident():
            yield shared.connection
            return
        with shared.lock:
            shared.holder = threading.get_ident()
            try:
                yield shared.connection
            finally:
                shared.holder = 0

    def lost(self, connection: sqlite3.Connection) -> str:
        return ""

    def witness(self, connection: sqlite3.Connection, seq: int, head: str, *, thawed: bool) -> None:
        """Memory has no backup to be restored from."""


class _Shared:
    """One in-memory database, used by one thread at a time."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.connection.execute("BEGIN")
        lay_out(self.connection)
        self.connection.execute("COMMIT")
        self.seats = 0
        self.holder = 0
        self.lock = threading.Lock()

    def __del__(self) -> None:
        self.connection.close()


_seating = threading.Lock()
_newest: _Shared | None = None


def _take_seat() -> tuple[_Shared, int]:
    global _newest
    if _newest is None or _newest.seats == _SHARED_BY:
        _newest = _Shared()
    _newest.seats += 1
    return _newest, _newest.seats


def _start_afresh() -> None:
    global _seating, _newest
    _seating, _newest = threading.Lock(), None


os.register_at_fork(after_in_child=_start_afresh)


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
    found = connection.execute("SELECT head FROM entries WHERE owner = 1 AND seq = ?", (seen.seq,)).fetchone()
    return found is not None and found[0] == seen.head


def _explained(error: sqlite3.Error, where: str) -> Exception:
    """Constraints and wrong statements are the caller's affair; the rest is about the file."""
    if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return error
    return explained(error, where)


def _nested(name: str) -> Refused:
    return Refused(
        f"{name}: a transaction of this thread is open; write through it, or end it first", code="ledger"
    )


def _missing(name: str) -> BadInput:
    return BadInput(
        f"{name}: there is no such ledger. Name the right file, or make one: comity ledger init {name} "
        "--dataset NAME --epsilon E --unit record --neighbours replace",
        code="ledger",
    )

"""Where a ledger is stored: in a file, in the memory of one process, or in a file that simulated parties share.

FileStorage    An owner's ledger. Each thread has one connection, and one transaction runs at a time among all
               processes. A commit is durable when it returns (write-ahead log, synchronous=FULL). Writers wait for at
               most a minute. The file must be on a local disk, because locks of network file systems do not hold.
               Nothing else in this process may open and close the file while a connection is open: that would drop
               SQLite's locks, and with them commits.
MemoryStorage  A simulated party's ledger, which ends with its process.
SharedStorage  The ledgers of all simulated parties of one run; a run of hundreds can be resumed after a kill.
               They protect nobody: one connection serves all parties in turn, anyone who holds the file holds every
               budget in it, and no witness notices a restored copy. A commit outlives the process, but is not forced
               to the disk for each party: after a power cut a run whose journal is ahead of the file is refused.
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

from comity.errors import BadInput, ComityError, Refused, Stopped, StudyError
from comity.forks import GATE, ForkLock
from comity.privacy.ledger.chain import CommitHead, is_head
from comity.privacy.ledger.tables import (
    APPLICATION_ID,
    FIRST_FORMAT,
    create_tables,
    find_commit,
    nested_transaction,
    not_a_ledger,
    read_format,
    translate_callers_error,
    translate_error,
    translate_sqlite_errors,
)
from comity.privacy.ledger.verification import check_opened, check_state, migrate
from comity.privacy.ledger.witness import UNWITNESSED, Seen, Witness

_TIMEOUT_SECONDS = 60.0
_LEDGERS_PER_DATABASE = 256

_handles: weakref.WeakSet[_Handle] = weakref.WeakSet()
_inherited_handles: list[_Handle] = []


class _Handle:
    """One thread's connection to one file. `in_use` while the thread uses it, inside the fork gate."""

    def __init__(self, path: Path) -> None:
        self.pid = os.getpid()
        self.thread = threading.get_ident()
        self.in_use = False
        self.file = (0, 0)
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def connect(self) -> sqlite3.Connection:
        """The connection, opened again if the path now names another file."""
        if self._connection is not None and self.file == _identity(self._path):
            return self._connection
        self.close()
        self.file = _identity(self._path)
        if any(handle.file == self.file for handle in _inherited_handles):
            raise Refused(
                f"{self._path}: this process was forked inside a transaction of the ledger, and can't tell the "
                "parent's locks from its own: start processes outside of transactions, or with the spawn method",
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
    """Before a fork. SQLite's locks do not survive it, so no connection may. Idle ones are opened again when needed."""
    for handle in list(_handles):
        if not handle.in_use:
            handle.close()


def _keep_inherited() -> None:
    """In a forked process. Connections in use are kept for good: closing one would release locks of the parent."""
    _inherited_handles.extend(handle for handle in list(_handles) if handle.in_use)
    _handles.clear()


GATE.at_fork(before=_close_idle, in_child=_keep_inherited)


def _connect(path: Path, *, existing: bool) -> sqlite3.Connection:
    """A connection that reads and writes; on read-only media, one that only reads."""
    try:
        return _connect_in_mode(path, "mode=rw", existing=existing)
    except sqlite3.OperationalError as error:
        blocked = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
        if not existing or path.is_dir() or getattr(error, "sqlite_errorcode", 0) & 0xFF not in blocked:
            raise
        log = Path(f"{path}-wal")
        # The log holds the newest commits: reading without it would show an older ledger.
        if log.exists() and log.stat().st_size:
            raise
        return _connect_in_mode(path, "immutable=1", existing=existing)


def _connect_in_mode(path: Path, mode: str, *, existing: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{mode}",
        uri=True,
        timeout=_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        if existing:
            read_format(connection, str(path))
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        # Overwrites what is deleted at the end of a run, such as keys.
        connection.execute("PRAGMA secure_delete = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


class _RollBack(Exception):
    """Ends a transaction without a commit."""


class FileStorage:
    """A ledger's file, with a connection per process and thread that is opened again after a fork."""

    owner = 1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self.name = str(path)
        self._local = threading.local()
        self._checked = (0, 0)
        with self.reading() as connection:
            old = read_format(connection, self.name) == FIRST_FORMAT
        if old:
            self._migrate()
        with self.reading() as connection, translate_sqlite_errors(self.name):
            row = connection.execute("SELECT id, simulated FROM ledgers WHERE owner = 1").fetchone()
        if row is None or not is_head(row[0]):
            raise not_a_ledger(self.name)
        self._witness = Witness(row[0])
        self.simulated = bool(row[1])

    def _migrate(self) -> None:
        """Converts a ledger of the first format, unless another process was faster."""
        with self._use(self._handle(), "BEGIN IMMEDIATE") as connection, translate_sqlite_errors(self.name):
            if read_format(connection, self.name) != FIRST_FORMAT:
                return
            ledger: str = connection.execute("SELECT id FROM ledgers WHERE owner = 1").fetchone()[0]
            entries: int = connection.execute("SELECT count(*) FROM entries WHERE owner = 1").fetchone()[0]
            witness = Witness(ledger)
            seen = witness.read()
            head = migrate(connection, self.owner, self.name)
        # The first format wrote its witness with the first use.
        known = entries == 1 and not witness.exists() if seen is None else self._contains(seen)
        if known:
            with suppress(OSError, ComityError):
                witness.prepare()
                witness.set(Seen(head.count, head.head))

    @staticmethod
    @contextmanager
    def create(path: str | os.PathLike[str]) -> Iterator[sqlite3.Connection]:
        """The transaction that creates a file; leaves no file behind when it fails."""
        try:
            # Only its owner may read it: the entries tell which studies ran.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            raise Refused(
                f"{path}: this file exists, and a ledger is never overwritten. Choose another name, "
                f"or show what it holds: comity ledger show {path}",
                code="exists",
            ) from None
        except OSError as error:
            raise BadInput(
                f"{path}: a ledger can't be created here ({error.strerror}). Choose a folder that exists and "
                "is writable",
                code="ledger",
            ) from error
        try:
            with GATE:
                connection = _connect(Path(path).absolute(), existing=False)
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("BEGIN IMMEDIATE")
                    create_tables(connection)
                    yield connection
                    connection.execute("COMMIT")
                finally:
                    connection.close()
        except BaseException as error:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            if isinstance(error, sqlite3.Error):
                raise translate_error(error, str(path)) from error
            raise

    def _handle(self) -> _Handle:
        handle: _Handle | None = getattr(self._local, "handle", None)
        if handle is None or handle.pid != os.getpid():
            self._local.handle = handle = _Handle(self.path)
        return handle

    @contextmanager
    def _use(self, handle: _Handle, begin: str) -> Iterator[sqlite3.Connection]:
        with GATE:
            handle.in_use = True
            try:
                try:
                    with translate_sqlite_errors(self.name):
                        connection = handle.connect()
                except FileNotFoundError:
                    raise _no_such_ledger(self.name) from None
                with _transaction(connection, begin):
                    if self._checked != handle.file and read_format(connection, self.name) != FIRST_FORMAT:
                        check_opened(connection, self.owner, self.name)
                        self._checked = handle.file
                    yield connection
            except sqlite3.Error as error:
                raise translate_callers_error(error, self.name) from error
            finally:
                handle.in_use = False

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """BEGIN IMMEDIATE … COMMIT, rolled back by any exception."""
        handle = self._handle()
        if handle.in_use:
            raise nested_transaction(self.name)
        if not self.simulated:
            self._witness.prepare()
        with self._use(handle, "BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A consistent view; inside this thread's transaction, the view of that transaction."""
        handle = self._handle()
        if handle.in_use:
            yield handle.current
            return
        with self._use(handle, "BEGIN") as connection:
            yield connection

    def seen(self) -> Seen | None:
        """What the witness saw last. Ask before reading: a view older than the witness would look rolled back."""
        return self._witness.read()

    def missing_head(self, connection: sqlite3.Connection, seen: Seen | None) -> str:
        """The head that was seen and is missing from the file, or "". A simulated ledger has no witness."""
        if self.simulated:
            return ""
        if seen is None:
            return UNWITNESSED
        return "" if _contains_seen(connection, seen) else seen.head

    def check(self, connection: sqlite3.Connection) -> None:
        """Before anything is written: checks that the sums are those that were last written."""
        with translate_sqlite_errors(self.name):
            check_state(connection, self.owner, self.name)

    def record_commit(self, head: CommitHead, *, unfrozen: bool) -> None:
        """Updates the witness after a commit. It may lag, so an error here must not look like a failed commit."""
        if self.simulated:
            return
        with suppress(OSError, ComityError, sqlite3.Error):
            if unfrozen:
                self._witness.set(Seen(head.count, head.head))
            else:
                self._witness.advance(Seen(head.count, head.head), contains=self._contains)

    def _contains(self, seen: Seen) -> bool:
        # `reading` marks the connection as in use: a fork closes idle ones.
        with self.reading() as connection:
            return _contains_seen(connection, seen)

    def check_writable(self) -> None:
        """Refuses a file that the operating system lets us write but SQLite does not. Read-only media pass."""
        handle = self._handle()
        writable = os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
        if writable and not handle.in_use:
            # `Stopped` means that another process is writing, so the file is writable. BEGIN alone only reads.
            with suppress(Stopped, _RollBack), self._use(handle, "BEGIN IMMEDIATE") as connection:
                connection.execute("UPDATE ledgers SET frozen = frozen WHERE owner = 1")
                raise _RollBack

    def truncate_log(self) -> bool:
        """Moves the write-ahead log into the file and empties it; False while others read from it."""
        handle = self._handle()
        if handle.in_use:
            raise nested_transaction(self.name)
        with GATE:
            handle.in_use = True
            try:
                busy = handle.connect().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            except FileNotFoundError:
                raise _no_such_ledger(self.name) from None
            except sqlite3.Error as error:
                raise translate_error(error, self.name) from error
            finally:
                handle.in_use = False
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


def _contains_seen(connection: sqlite3.Connection, seen: Seen) -> bool:
    if not seen.of_entry:
        return find_commit(connection, 1, seen.count) == seen.head
    found = connection.execute("SELECT head FROM entries WHERE owner = 1 AND seq = ?", (seen.count,)).fetchone()
    return found is not None and found[0] == seen.head


def _no_such_ledger(name: str) -> BadInput:
    return BadInput(
        f"{name}: there is no such ledger. Name the right file, or create one: comity ledger init {name} "
        "--dataset NAME --epsilon E --unit record --neighbours replace",
        code="ledger",
    )


class MemoryStorage:
    """A simulated party's ledger. Hundreds share one private database, which is closed with the last of them.

    It belongs to the process that made it: a copy in another process would be a second budget.
    """

    __slots__ = ("_pid", "_slot", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._pid = os.getpid()
        self._slot: tuple[Database, int] | None = None

    @property
    def owner(self) -> int:
        return self._require_slot()[1]

    def _require_slot(self) -> tuple[Database, int]:
        if self._pid != os.getpid():
            raise Refused(
                f"the ledger of {self.name} is in the memory of process {self._pid}, and this process "
                "would spend a copy of it: give it a path (comity ledger init) to use it from several "
                "processes",
                code="ledger",
            )
        if self._slot is None:
            with _slot_lock:
                self._slot = self._slot or _take_slot()
        return self._slot

    @property
    def is_in_transaction(self) -> bool:
        """Whether this thread has a transaction open."""
        return self._slot is not None and self._slot[0].holder == threading.get_ident()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        database, _ = self._require_slot()
        if self.is_in_transaction:
            raise nested_transaction(self.name)
        try:
            with database.lock:
                database.holder = threading.get_ident()
                database.connection.execute("BEGIN IMMEDIATE")
                try:
                    yield database.connection
                    database.connection.execute("COMMIT")
                finally:
                    database.holder = 0
                    if database.connection.in_transaction:
                        database.connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translate_callers_error(error, self.name) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        database, _ = self._require_slot()
        if self.is_in_transaction:
            yield database.connection
            return
        with database.lock:
            database.holder = threading.get_ident()
            try:
                yield database.connection
            finally:
                database.holder = 0

    def seen(self) -> Seen | None:
        return None

    def missing_head(self, connection: sqlite3.Connection, seen: Seen | None) -> str:
        return ""

    def check(self, connection: sqlite3.Connection) -> None:
        """Only this process can change its memory."""

    def record_commit(self, head: CommitHead, *, unfrozen: bool) -> None:
        """Memory can't be restored from a backup."""

    def check_writable(self) -> None:
        """Memory is always writable."""

    def truncate_log(self) -> bool:
        return True


class Database:
    """One database of several ledgers, used by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.slots = 0
        self.holder = 0
        self.lock = ForkLock()
        _databases.add(self)

    def __del__(self) -> None:
        GATE.close(self.connection)


_slot_lock = ForkLock()
_newest: Database | None = None
_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited_databases: list[Database] = []


def _take_slot() -> tuple[Database, int]:
    global _newest
    if _newest is None or _newest.slots == _LEDGERS_PER_DATABASE:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.execute("BEGIN")
        create_tables(connection)
        connection.execute("COMMIT")
        _newest = Database(connection)
    _newest.slots += 1
    return _newest, _newest.slots


def _reset_in_child() -> None:
    global _slot_lock, _newest
    # Kept for good: the child never uses them, and the parent may have forked inside a call of SQLite on one.
    _inherited_databases.extend(_databases)
    _slot_lock, _newest = ForkLock(), None


GATE.at_fork(in_child=_reset_in_child)


class SharedFile:
    """The file, opened once per process; created if it does not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Only its owner may read it, like any ledger.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            with GATE:
                connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                connection.execute("PRAGMA busy_timeout = 60000")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("BEGIN IMMEDIATE")
                if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                    create_tables(connection)
                connection.execute("COMMIT")
                read_format(connection, str(path))
        except (OSError, sqlite3.Error) as error:
            raise StudyError(
                f"{path}: the ledgers of simulated parties can't be stored here ({error}); choose another folder"
            ) from error
        self.database = Database(connection)


class SharedStorage(MemoryStorage):
    """One party's ledger in a `SharedFile`. `number` is the party's place in the study."""

    __slots__ = ()

    def __init__(self, name: str, file: SharedFile, number: int) -> None:
        super().__init__(name)
        self._slot = file.database, number

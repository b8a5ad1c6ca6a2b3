"""Ledgers of simulated parties, in the memory of one process."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from comity.errors import Refused
from comity.forks import GATE, ForkLock
from comity.privacy.ledger.commits import CommitHead
from comity.privacy.ledger.schema import explained_outside, lay_out, nested
from comity.privacy.ledger.witness import Seen

_SHARED_BY = 256


class InMemory:
    """A simulated party's ledger. Hundreds share one private database; it dies with the last of them.

    It belongs to the process that made it: a copy in another process would be a second budget.
    """

    __slots__ = ("_pid", "_seat", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._pid = os.getpid()
        self._seat: tuple[Shared, int] | None = None

    @property
    def owner(self) -> int:
        return self._taken()[1]

    def _taken(self) -> tuple[Shared, int]:
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

    @property
    def is_held(self) -> bool:
        """Whether this thread has a transaction open."""
        return self._seat is not None and self._seat[0].holder == threading.get_ident()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        shared, _ = self._taken()
        if self.is_held:
            raise nested(self.name)
        try:
            with shared.lock:
                shared.holder = threading.get_ident()
                shared.connection.execute("BEGIN IMMEDIATE")
                try:
                    yield shared.connection
                    shared.connection.execute("COMMIT")
                finally:
                    shared.holder = 0
                    if shared.connection.in_transaction:
                        shared.connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise explained_outside(error, self.name) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        shared, _ = self._taken()
        if self.is_held:
            yield shared.connection
            return
        with shared.lock:
            shared.holder = threading.get_ident()
            try:
                yield shared.connection
            finally:
                shared.holder = 0

    def seen(self) -> Seen | None:
        return None

    def lost(self, connection: sqlite3.Connection, seen: Seen | None) -> str:
        return ""

    def check(self, connection: sqlite3.Connection) -> None:
        """Nothing but this process can change its memory."""

    def witness(self, head: CommitHead, *, thawed: bool) -> None:
        """Memory has no backup to be restored from."""

    def try_writing(self) -> None:
        """Memory can be written."""

    def truncate_log(self) -> bool:
        return True


class Shared:
    """One database of several ledgers, used by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.seats = 0
        self.holder = 0
        self.lock = ForkLock()
        _open.add(self)

    def __del__(self) -> None:
        GATE.close(self.connection)


_seating = ForkLock()
_newest: Shared | None = None
_open: weakref.WeakSet[Shared] = weakref.WeakSet()
_inherited: list[Shared] = []


def _take_seat() -> tuple[Shared, int]:
    global _newest
    if _newest is None or _newest.seats == _SHARED_BY:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.execute("BEGIN")
        lay_out(connection)
        connection.execute("COMMIT")
        _newest = Shared(connection)
    _newest.seats += 1
    return _newest, _newest.seats


def _start_afresh() -> None:
    global _seating, _newest
    # Kept for good: a copy of another process's ledger is never used, and closing it would free what it may be inside.
    _inherited.extend(_open)
    _seating, _newest = ForkLock(), None


GATE.at_fork(in_child=_start_afresh)

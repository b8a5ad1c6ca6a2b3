"""Forks beside threads that use SQLite.

SQLite has locks of the whole process. A child that is forked while another thread holds such a lock waits forever,
because that thread does not exist in the child. Every use of SQLite therefore enters one gate. A fork waits until no
other thread is inside, and keeps other threads out until it is done. It waits at most `MAX_WAIT_SECONDS`; a child that
was forked while another thread was inside is refused at the gate, and does not hang.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable

from comity.errors import Refused

MAX_WAIT_SECONDS = 2.0
"""How long a fork waits for other threads."""


class ForkGate:
    """Counts how often each thread is inside SQLite. A thread that is inside enters again without waiting."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: dict[int, int] = {}
        self._forking = 0
        self._unclosed: list[sqlite3.Connection] = []
        self._before: list[Callable[[], None]] = []
        self._in_child: list[Callable[[], None]] = []
        self._is_split = False

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._changed:
            while not self._admits(me):
                self._changed.wait()
            self._enter(me)
        if self._unclosed:
            self._close_left_over()

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        with self._changed:
            self._inside[me] -= 1
            if not self._inside[me]:
                del self._inside[me]
                self._changed.notify_all()

    def close(self, connection: sqlite3.Connection) -> None:
        """Close a connection from a finaliser, which may run in any thread at any time and must not wait.

        Closes it now, or when a thread next enters the gate."""
        if not self._try_enter():
            self._unclosed.append(connection)
            return
        try:
            connection.close()
        finally:
            self.__exit__()

    def at_fork(self, *, before: Callable[[], None] | None = None, in_child: Callable[[], None]) -> None:
        """Call `before` while no other thread is inside, and `in_child` in the new process."""
        if before is not None:
            self._before.append(before)
        self._in_child.append(in_child)

    def _admits(self, me: int) -> bool:
        return self._forking in (0, me) or me in self._inside

    def _try_enter(self) -> bool:
        me = threading.get_ident()
        if not self._changed.acquire(blocking=False):
            return False
        try:
            admitted = self._admits(me) and not self._is_split
            if admitted:
                self._enter(me)
            return admitted
        finally:
            self._changed.release()

    def _enter(self, me: int) -> None:
        if self._is_split:
            raise Refused(
                "this process was forked while another thread was inside a transaction, whose locks it can't tell from "
                "its own: start processes before threads, or with the spawn method",
                code="ledger",
            )
        self._inside[me] = self._inside.get(me, 0) + 1

    def _close_left_over(self) -> None:
        while True:
            try:
                connection = self._unclosed.pop()
            except IndexError:
                return
            connection.close()

    def _others(self) -> set[int]:
        return set(self._inside) - {threading.get_ident()}

    def _begin_fork(self) -> None:
        self._changed.acquire()
        while self._forking:
            self._changed.wait()
        self._forking = threading.get_ident()
        until = time.monotonic() + MAX_WAIT_SECONDS
        while self._others() and (left := until - time.monotonic()) > 0:
            self._changed.wait(left)
        for call in self._before:
            call()
        if not self._others():
            self._close_left_over()

    def _end_in_parent(self) -> None:
        self._forking = 0
        self._changed.notify_all()
        self._changed.release()

    def _end_in_child(self) -> None:
        # A connection that was left unclosed at the last moment still counts locks that this process does not have.
        self._is_split = self._is_split or bool(self._others() or self._unclosed)
        _inherited.extend(self._unclosed)
        me = threading.get_ident()
        self._changed, self._forking, self._unclosed = threading.Condition(), 0, []
        self._inside = {me: self._inside[me]} if me in self._inside else {}
        for call in self._in_child:
            call()


_inherited: list[sqlite3.Connection] = []
"""Never closed: closing them would release locks that the parent still uses."""

GATE = ForkGate()
os.register_at_fork(before=GATE._begin_fork, after_in_parent=GATE._end_in_parent, after_in_child=GATE._end_in_child)


class ForkLock:
    """The reentrant lock of one connection, held inside the gate."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        GATE.__enter__()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        GATE.__exit__()

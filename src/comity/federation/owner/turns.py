"""Whose turn it is: a host answers one ask of a run at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Turns:
    """One answer at a time for each run. An ask that is repeated while it is answered waits for the stored reply, and
    of two different ones the second sees what the first one kept: nothing is given out twice because both looked
    first."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._locks: dict[str, tuple[Lock, int]] = {}

    @contextmanager
    def of(self, run: str) -> Iterator[None]:
        with self._guard:
            lock, waiting = self._locks.get(run, (Lock(), 0))
            self._locks[run] = lock, waiting + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, waiting = self._locks.pop(run)
                if waiting > 1:
                    self._locks[run] = lock, waiting - 1

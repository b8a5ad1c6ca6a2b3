"""The journal's file as SQLite opens it: a disk that takes no more stops a run, which is resumed once there is room."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal

from comity.errors import Stopped

_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class JournalFile(sqlite3.Connection):
    """A connection whose statements and commits raise `Stopped` where the fault lies with the disk or with another
    process: what was written before is whole, what was not is written again when the run is run again."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        with _explained():
            return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        with _explained():
            return super().executemany(sql, parameters)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]:
        with _explained():
            return super().__exit__(kind, error, trace)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _NO_ROOM:
            raise Stopped(
                f"the disk did not take what the run's journal is to remember ({error}). Nothing is lost: free some "
                "space and run again with the same run id to resume",
                code="journal",
            ) from error
        if code in _HELD:
            raise Stopped(
                f"another process has held the run's journal for a minute ({error}). Nothing is lost: end it, and run "
                "again with the same run id to resume",
                code="journal",
            ) from error
        raise

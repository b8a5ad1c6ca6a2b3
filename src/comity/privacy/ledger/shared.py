"""Ledgers of the simulated parties of one run, in one file, so that a run of hundreds can be resumed after a kill.

They take the place of ledgers and guard nobody: one connection serves all parties in turn, whoever holds the file holds
every budget in it, and no witness notices a copy that was put back. What is committed outlives the process, but is not
forced to the disk for each party: after a power cut a run whose journal is ahead of the file is refused. An owner's own
ledger is a file of its own (`comity.privacy.ledger.file`), where every commit is forced to the disk.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from comity.errors import StudyError
from comity.forks import GATE
from comity.privacy.ledger.memory import InMemory, Shared
from comity.privacy.ledger.schema import APPLICATION, format_of, lay_out


class SharedFile:
    """The file, opened once per process; made where it is not there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Readable by its owner alone, like any ledger.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            with GATE:
                connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                connection.execute("PRAGMA busy_timeout = 60000")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("BEGIN IMMEDIATE")
                if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                    lay_out(connection)
                connection.execute("COMMIT")
                format_of(connection, str(path))
        except (OSError, sqlite3.Error) as error:
            raise StudyError(
                f"{path}: the ledgers of simulated parties can't be kept here ({error}); choose another folder"
            ) from error
        self.shared = Shared(connection)


class Seat(InMemory):
    """One party's ledger among those of a `SharedFile`: the number of its owner is that of its place in the study."""

    __slots__ = ()

    def __init__(self, name: str, file: SharedFile, number: int) -> None:
        super().__init__(name)
        self._seat = file.shared, number

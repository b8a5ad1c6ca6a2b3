"""The coordinator's memory: asks before they are sent, replies as they come, and when an ask was decided.

Resuming a run is running it again over the same journal. The bytes of an ask are sent as they were first written, never
recomputed: another machine's last floating-point bit would make a different ask, which the sites refuse. Values that
all parties get are stored once, or a broadcast of what K parties said would take K² room.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

from comity.errors import StudyError
from comity.federation.codec import decode, encode

_TABLES = """
pragma journal_mode = wal;
pragma synchronous = full;
create table if not exists common(run text, path text, shared blob, primary key(run, path));
create table if not exists ask(seq integer primary key, run text, path text, party text,
                               own blob, mail blob, reply blob, unique(run, path, party));
create table if not exists closed(run text, path text, primary key(run, path));
create table if not exists once(run text, name text, value blob, primary key(run, name));
create table if not exists head(party text primary key, head text, signature blob);
"""


@dataclass(frozen=True)
class Exchange:
    """One party's side of an ask: the message as sent, and the reply, if there is one."""

    message: bytes
    reply: bytes | None


class Journal:
    """A SQLite file, or memory when `path` is None: then a killed run can't be resumed."""

    def __init__(self, path: Path | str | None = None) -> None:
        try:
            self._connection = sqlite3.connect(
                ":memory:" if path is None else os.fspath(path), isolation_level=None, check_same_thread=False
            )
            self._connection.execute("pragma busy_timeout = 60000")
            self._connection.executescript(_TABLES)
        except sqlite3.Error as error:
            raise StudyError(f"the run's journal {path} can't be opened ({error}); check the folder") from error
        self._lock = RLock()

    def open(
        self, study: str, run: str, path: str, shared: bytes, own: Mapping[str, tuple[bytes, bytes]]
    ) -> dict[str, Exchange]:
        """Write an ask down before it is sent; on resume the ask as it was first written comes back instead.

        An ask that was journalled keeps its list of parties, whoever the caller would ask now.
        """
        with self._lock, self._connection:
            self._connection.execute("begin immediate")
            known = self._connection.execute("select 1 from common where run = ? and path = ?", (run, path)).fetchone()
            if known is None:
                self._connection.execute("insert into common values(?, ?, ?)", (run, path, shared))
                self._connection.executemany(
                    "insert into ask(run, path, party, own, mail) values(?, ?, ?, ?, ?)",
                    [(run, path, party, values, mail) for party, (values, mail) in own.items()],
                )
        return self.exchanges(study, run, path)

    def exchanges(self, study: str, run: str, path: str) -> dict[str, Exchange]:
        with self._lock:
            row = self._connection.execute(
                "select shared from common where run = ? and path = ?", (run, path)
            ).fetchone()
            rows = self._connection.execute(
                "select seq, party, own, mail, reply from ask where run = ? and path = ?", (run, path)
            ).fetchall()
        # Sorted here: SQLite would copy every message through its sorter.
        rows.sort(key=lambda row: int(row[0]))
        return {
            party: Exchange(encode([study, run, path, row[0], own, decode(mail)]), reply)
            for _, party, own, mail, reply in rows
        }

    def got(self, run: str, path: str, replies: Mapping[str, bytes], *, decided: bool) -> None:
        """Remember replies; `decided` closes the ask, which fixes who was lost."""
        with self._lock, self._connection:
            self._connection.execute("begin immediate")
            if self.is_closed(run, path):
                return  # decided by another process: what comes now was lost
            self._connection.executemany(
                "update ask set reply = ? where run = ? and path = ? and party = ? and reply is null",
                [(reply, run, path, party) for party, reply in replies.items()],
            )
            if decided:
                self._connection.execute("insert or ignore into closed values(?, ?)", (run, path))

    def is_closed(self, run: str, path: str) -> bool:
        with self._lock:
            row = self._connection.execute("select 1 from closed where run = ? and path = ?", (run, path)).fetchone()
        return row is not None

    def once(self, run: str, name: str, make: Callable[[], Any]) -> Any:
        """A value that the coordinator draws or derives: made once per run, then remembered."""
        with self._lock:
            value = self._once(run, name)
            if value is None:
                made = encode(make())
                self._connection.execute("insert or ignore into once values(?, ?, ?)", (run, name, made))
                value = self._once(run, name)
        assert value is not None
        return decode(value)

    def _once(self, run: str, name: str) -> bytes | None:
        row = self._connection.execute("select value from once where run = ? and name = ?", (run, name)).fetchone()
        return None if row is None else bytes(row[0])

    def seen_head(self, party: str) -> dict[str, Any]:
        """The last head of a party's ledger that this coordinator saw, in any run, with the party's signature."""
        with self._lock:
            row = self._connection.execute("select head, signature from head where party = ?", (party,)).fetchone()
        return {"head": "", "signature": b""} if row is None else {"head": row[0], "signature": row[1]}

    def remember_heads(self, heads: Mapping[str, Mapping[str, Any]]) -> None:
        with self._lock:
            self._connection.executemany(
                "insert or replace into head values(?, ?, ?)",
                [(party, signed["head"], signed["signature"]) for party, signed in heads.items()],
            )

    def runs(self) -> list[str]:
        with self._lock:
            return [run for (run,) in self._connection.execute("select distinct run from common order by rowid")]

    def traffic(self, study: str, run: str) -> Iterable[tuple[str, dict[str, Exchange]]]:
        """Every ask of a run in order, with its exchanges."""
        with self._lock:
            paths = [
                path
                for (path,) in self._connection.execute("select path from common where run = ? order by rowid", (run,))
            ]
        for path in paths:
            yield path, self.exchanges(study, run, path)

    def close(self) -> None:
        self._connection.close()


def digest(blobs: Iterable[bytes]) -> str:
    state = hashlib.sha256()
    for blob in blobs:
        state.update(len(blob).to_bytes(8, "big") + blob)
    return state.hexdigest()

"""The coordinator's journal: asks before they are sent, replies as they come, and which asks are decided.

A run is resumed by running it again over the same journal. The bytes of an ask are sent as they were first written and
never recomputed: a floating-point bit that differs on another machine would make a different ask, which the sites
refuse. Values that all parties get are stored once, because a broadcast of the values of K parties would otherwise take
K² space. So are the boxes of letters with large values or to several parties; in replies and letters, their digests
stand for them. A large box, and large values of an ask, are files beside the journal (`messages.box_store`), durable
before the database names them: they are written once, where the database would write them into its log and its pages,
and overwrite both.

Only the owner of the files can read them (mode 0600). Once a run's values are released, `settle` deletes messages,
letters, boxes, and the coordinator's keys and random values. Released values, sizes and digests stay.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from comity.entropy import fresh_seed
from comity.errors import Stopped, StudyError
from comity.federation.messages.ask import ask_bytes
from comity.federation.messages.box_store import LARGE_BYTES, BoxStore
from comity.federation.messages.codec import Embedded, decode, encode
from comity.federation.messages.heads import Head, newest
from comity.federation.messages.letters import Letter, attach_box, join_boxes
from comity.forks import ForkLock

_VERSION = 3
_TABLES = f"""
pragma user_version = {_VERSION};
pragma journal_mode = wal;
pragma synchronous = full;
create table if not exists common(run text, path text, shared blob, primary key(run, path));
create table if not exists ask(seq integer primary key, run text, path text, party text,
                               own blob, mail blob, seen blob, reply blob, why text, unique(run, path, party));
create table if not exists box(run text, digest blob, body blob, primary key(run, digest));
create table if not exists boxed(run text, path text, party text, primary key(run, path, party));
create table if not exists closed(run text, path text, primary key(run, path));
create table if not exists once(run text, name text, value blob, primary key(run, name));
create table if not exists trace(run text, path text, party text, asked integer, ask blob, replied integer, reply blob,
                                 primary key(run, path, party));
create table if not exists heads(party text, key blob, value blob, primary key(party, key));
"""
NONCE = "run:nonce"
RELEASED = "run:released"
ABANDONED = "run:abandoned"
BEGUN = "run:begun"
# Mail without these bytes holds all of its boxes and need not be decoded. They may also occur by chance.
_BULK = b"bulk"
# Encoded values begin with other bytes.
_FILED = b"filed:"
_DISK_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_LASTING = (NONCE, RELEASED, ABANDONED, BEGUN)


@dataclass(frozen=True)
class Trace:
    """What the transcript shows of a message: its length and its SHA-256."""

    size: int
    digest: bytes

    @classmethod
    def of(cls, raw: bytes) -> Trace:
        return cls(len(raw), hashlib.sha256(raw).digest())


@dataclass(frozen=True)
class Exchange:
    """One party's side of an ask: the message as sent, and the reply, if there is one."""

    message: bytes
    reply: bytes | None


@dataclass(frozen=True)
class PartyAsk:
    """What one party gets of an ask beside what all parties get."""

    values: bytes
    mail: bytes
    seen: list[Head]


class Journal:
    """A SQLite file; in memory where `path` is None: then a killed run can't be resumed."""

    def __init__(self, path: Path | str | None = None) -> None:
        self._lock = ForkLock()
        try:
            if path is not None:
                # SQLite gives the log beside it the same mode.
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
                os.chmod(path, 0o600)  # noqa: PTH101
            with self._lock:
                self._connection = sqlite3.connect(
                    ":memory:" if path is None else os.fspath(path),
                    isolation_level=None,
                    check_same_thread=False,
                    factory=_Connection,
                )
                self._connection.execute("pragma busy_timeout = 60000")
                self._connection.execute("pragma secure_delete = on")
                (version,) = self._connection.execute("pragma user_version").fetchone()
                (tables,) = self._connection.execute("select count(*) from sqlite_master").fetchone()
                if tables and version != _VERSION:
                    raise StudyError(
                        f"the run's journal {path} was written by another version of Comity; begin a new run"
                    )
                self._connection.executescript(_TABLES)
        except (sqlite3.Error, OSError) as error:
            raise StudyError(f"the run's journal {path} can't be opened ({error}); check the folder") from error
        self._boxes = BoxStore(path)
        # Of messages that this process has hashed; others are read and hashed when they are needed.
        self._traces: dict[tuple[str, str], dict[str, tuple[Trace, Trace]]] = {}

    # Asks and replies.

    def open(self, run: str, path: str, shared: bytes, own: Iterable[tuple[str, PartyAsk]]) -> None:
        """Write an ask down before it is sent.

        An ask that is here already stays as it was first written, with its parties, and `own` is not read. `own` is
        written one party at a time, so that only one is in memory.
        """
        with self._lock, self._connection:
            self._connection.execute("begin immediate")
            known = self._connection.execute("select 1 from common where run = ? and path = ?", (run, path)).fetchone()
            if known is None:
                self._connection.execute("insert into common values(?, ?, ?)", (run, path, shared))
                self._connection.executemany(
                    "insert into ask(run, path, party, own, mail, seen) values(?, ?, ?, ?, ?, ?)",
                    ((run, path, party, self._put(run, one.values), one.mail, encode(one.seen)) for party, one in own),
                )

    def nonce(self, run: str) -> bytes:
        """The nonce of this journal for this run: sites that began with it answer no other."""
        return bytes(self.once(run, NONCE, fresh_seed))

    def ask(self, study: str, run: str, path: str) -> Callable[[str], bytes]:
        """A function that makes the ask as a party gets it: the same bytes each time."""
        nonce = self.nonce(run)
        with self._lock:
            (shared,) = self._connection.execute(
                "select shared from common where run = ? and path = ?", (run, path)
            ).fetchone()

        def made(party: str) -> bytes:
            with self._lock:
                own, mail, seen = self._connection.execute(
                    "select own, mail, seen from ask where run = ? and path = ? and party = ?", (run, path, party)
                ).fetchone()
            own = self._whole(run, own)
            letters: Sequence[Letter] | Embedded = Embedded(mail)
            if _BULK in mail:
                letters = [attach_box(letter, lambda digest: self._box(run, digest)) for letter in decode(mail)]
            return ask_bytes(study, run, path, shared, own, letters, nonce, Embedded(seen))

        return made

    def _put(self, run: str, values: bytes) -> bytes:
        """Large values go into a file before the ask is written down; their digest stands for them."""
        if len(values) < LARGE_BYTES:
            return values
        digest = hashlib.sha256(values).digest()
        self._boxes.add(run, {digest: values})
        return _FILED + digest

    def _whole(self, run: str, stored: bytes) -> bytes:
        if not stored.startswith(_FILED):
            return stored
        values = self._boxes.get(run, stored[len(_FILED) :])
        if values is None:
            raise StudyError(
                f"the journal of run {run} lacks the values of an ask: a file of it was changed or removed"
            )
        return values

    def asked(self, run: str, path: str) -> dict[str, bool]:
        """The parties of an ask in its order, and whether each has replied."""
        with self._lock:
            return {party: bool(here) for party, here in self._rows("party, reply is not null", run, path)}

    def each_reply(self, run: str, path: str) -> Iterator[tuple[str, bytes | None]]:
        """Replies by party, in the order of the ask, with digests in place of boxes. One is in memory at a time."""
        for party, here in self.asked(run, path).items():
            yield party, self._reply(run, path, party) if here else None

    def _reply(self, run: str, path: str, party: str) -> bytes:
        with self._lock:
            (reply,) = self._connection.execute(
                "select reply from ask where run = ? and path = ? and party = ?", (run, path, party)
            ).fetchone()
        return bytes(reply)

    def replies(self, run: str, path: str) -> dict[str, bytes | None]:
        """All of `each_reply`."""
        return dict(self.each_reply(run, path))

    def answered(self, run: str, path: str) -> list[str]:
        """The parties whose replies to an ask are here."""
        return [party for party, here in self.asked(run, path).items() if here]

    def faults(self, run: str, path: str) -> dict[str, str]:
        """Why parties were lost in an ask that was decided without them."""
        with self._lock:
            rows = self._rows("party, why", run, path)
        return {party: why for party, why in rows if why is not None}

    def _rows(self, columns: str, run: str, path: str) -> list[Any]:
        rows = self._connection.execute(
            f"select seq, {columns} from ask where run = ? and path = ?", (run, path)
        ).fetchall()
        # Sorted here: SQLite would copy every message through its sorter.
        rows.sort(key=lambda row: int(row[0]))
        return [row[1:] for row in rows]

    def exchanges(self, study: str, run: str, path: str) -> Iterator[tuple[str, Exchange]]:
        """The messages of an ask and their replies as they crossed the wire, by party."""
        with self._lock:
            boxed = {
                party
                for (party,) in self._connection.execute(
                    "select party from boxed where run = ? and path = ?", (run, path)
                )
            }
        made = self.ask(study, run, path)
        for party, reply in self.each_reply(run, path):
            if reply is not None and party in boxed:
                reply = join_boxes(reply, lambda digest: self._box(run, digest))
            yield party, Exchange(made(party), reply)

    def store_boxes(self, run: str, path: str, party: str, boxes: Mapping[bytes, bytes]) -> None:
        """Write down the boxes of a reply, which is recorded next with their digests in it. Large ones are files."""
        self._boxes.add(run, {digest: box for digest, box in boxes.items() if len(box) >= LARGE_BYTES})
        with self._lock, self._connection:
            self._connection.execute("begin immediate")
            self._connection.execute("insert or ignore into boxed values(?, ?, ?)", (run, path, party))
            self._connection.executemany(
                "insert or ignore into box values(?, ?, ?)",
                [(run, digest, None if len(box) >= LARGE_BYTES else box) for digest, box in boxes.items()],
            )

    def _box(self, run: str, digest: bytes) -> bytes:
        with self._lock:
            row = self._connection.execute(
                "select body from box where run = ? and digest = ?", (run, digest)
            ).fetchone()
        box = None if row is None else self._boxes.get(run, digest) if row[0] is None else bytes(row[0])
        if box is None:
            raise StudyError(
                f"the journal of run {run} lacks a box that its letters name: a file of it was edited, truncated or "
                "removed"
            )
        return box

    def record(
        self, run: str, path: str, replies: Mapping[str, bytes], *, decided: bool, why: Mapping[str, str] | None = None
    ) -> None:
        """Record replies. `decided` closes the ask, which fixes the lost parties, with the reasons `why`."""
        with self._lock, self._connection:
            self._connection.execute("begin immediate")
            if self.is_closed(run, path):
                return  # another process decided it, without these replies
            self._connection.executemany(
                "update ask set reply = ? where run = ? and path = ? and party = ? and reply is null",
                [(reply, run, path, party) for party, reply in replies.items()],
            )
            if decided:
                self._connection.executemany(
                    "update ask set why = ? where run = ? and path = ? and party = ? and reply is null",
                    [(text, run, path, party) for party, text in (why or {}).items()],
                )
                self._connection.execute("insert or ignore into closed values(?, ?)", (run, path))

    def is_closed(self, run: str, path: str) -> bool:
        with self._lock:
            row = self._connection.execute("select 1 from closed where run = ? and path = ?", (run, path)).fetchone()
        return row is not None

    def unheard(self, run: str, paths: Iterable[str]) -> dict[str, list[str]]:
        """Those of these asks that were sent and are not decided, with the parties that have not answered."""
        asked = set(self._paths(run))
        return {
            path: [party for party, here in self.asked(run, path).items() if not here]
            for path in paths
            if path in asked and not self.is_closed(run, path)
        }

    # The coordinator's own random values and decisions.

    def once(self, run: str, name: str, make: Callable[[], Any]) -> Any:
        """A value that the coordinator draws or derives: the first that is written counts.

        `make` runs without a lock, because it may be a whole run. If two threads or processes make the value at once,
        both get the one that was written first; the other is used nowhere.
        """
        known = self.recall(run, name)
        if known is not None:
            return known
        made = encode(make())
        with self._lock:
            self._connection.execute("insert or ignore into once values(?, ?, ?)", (run, name, made))
        return self.recall(run, name)

    def recall(self, run: str, name: str) -> Any:
        """What `once` wrote, or None."""
        with self._lock:
            value = self._once(run, name)
        return None if value is None else decode(value)

    def _once(self, run: str, name: str) -> bytes | None:
        row = self._connection.execute("select value from once where run = ? and name = ?", (run, name)).fetchone()
        return None if row is None else bytes(row[0])

    # Heads of the parties' ledgers, from any run.

    def heads(self) -> dict[tuple[str, bytes], list[Head]]:
        """The newest heads that this coordinator saw, by party and pinned key."""
        with self._lock:
            rows = self._connection.execute("select party, key, value from heads").fetchall()
        return {(party, bytes(key)): decode(value) for party, key, value in rows}

    def remember_heads(self, found: Mapping[tuple[str, bytes], Iterable[Head]]) -> None:
        """Keep the newest of the known heads and these. The caller has verified the signatures."""
        if not found:
            return
        with self._lock, self._connection:
            self._connection.execute("begin immediate")
            known = self.heads()
            self._connection.executemany(
                "insert or replace into heads values(?, ?, ?)",
                [(*whose, encode(newest(known.get(whose, []), of))) for whose, of in found.items()],
            )

    # What stays of a run.

    def settle(self, study: str, run: str, *, keeping: Iterable[str] = ()) -> None:
        """Delete the messages and secrets of a run whose values are released. Asks of the paths `keeping` stay."""
        kept = set(keeping)
        paths = [path for path in self._paths(run) if path not in kept and not self._is_settled(run, path)]
        traces = [(path, self._traced(study, run, path)) for path in paths]
        with self._lock, self._connection:
            self._connection.execute("begin immediate")
            for path, of in traces:
                self._connection.executemany(
                    "insert or ignore into trace values(?, ?, ?, ?, ?, ?, ?)",
                    [
                        (run, path, party, ask.size, ask.digest, reply and reply.size, reply and reply.digest)
                        for party, (ask, reply) in of.items()
                    ],
                )
                here = (run, path)
                self._connection.execute("update common set shared = null where run = ? and path = ?", here)
                self._connection.execute(
                    "update ask set own = null, mail = null, seen = null, reply = null where run = ? and path = ?", here
                )
            self._connection.execute("delete from box where run = ?", (run,))
            self._connection.execute("delete from boxed where run = ?", (run,))
            marks = ", ".join("?" * len(_LASTING))
            self._connection.execute(f"delete from once where run = ? and name not in ({marks})", (run, *_LASTING))
        with self._lock:
            # Not inside the transaction: SQLite truncates the log only between transactions.
            self._connection.execute("pragma wal_checkpoint(truncate)").fetchone()
        self._boxes.delete(run)

    def _is_settled(self, run: str, path: str) -> bool:
        with self._lock:
            row = self._connection.execute(
                "select shared is null from common where run = ? and path = ?", (run, path)
            ).fetchone()
        return bool(row[0])

    def runs(self) -> list[str]:
        with self._lock:
            return [run for (run,) in self._connection.execute("select distinct run from common order by rowid")]

    def traffic(self, study: str, run: str) -> Iterable[tuple[str, dict[str, Exchange]]]:
        """Every ask of a run that is not settled, in order, with its exchanges."""
        for path in self._paths(run):
            if not self._is_settled(run, path):
                yield path, dict(self.exchanges(study, run, path))

    def _paths(self, run: str) -> list[str]:
        with self._lock:
            rows = self._connection.execute("select path from common where run = ? order by rowid", (run,)).fetchall()
        return [path for (path,) in rows]

    def remember_trace(self, run: str, path: str, party: str, ask: Trace, reply: Trace) -> None:
        """Note the traces of an exchange that was just verified, which saves reading many megabytes again."""
        self._traces.setdefault((run, path), {})[party] = ask, reply

    def traces(self, study: str, run: str) -> Iterator[tuple[str, list[Trace], list[Trace]]]:
        """Every ask of a run in order, with the traces of its messages and of its replies."""
        for path in self._paths(run):
            of = self._traced(study, run, path).values()
            yield path, [ask for ask, _ in of], [reply for _, reply in of if reply is not None]

    def _traced(self, study: str, run: str, path: str) -> dict[str, tuple[Trace, Trace | None]]:
        if self._is_settled(run, path):
            with self._lock:
                rows = self._connection.execute(
                    "select party, asked, ask, replied, reply from trace where run = ? and path = ? order by rowid",
                    (run, path),
                ).fetchall()
            return {
                party: (Trace(asked, ask), None if reply is None else Trace(replied, reply))
                for party, asked, ask, replied, reply in rows
            }
        known, asked = self._traces.get((run, path), {}), self.asked(run, path)
        if all(here and party in known for party, here in asked.items()):
            return {party: known[party] for party in asked}
        return {
            party: (Trace.of(exchange.message), None if exchange.reply is None else Trace.of(exchange.reply))
            for party, exchange in self.exchanges(study, run, path)
        }

    def close(self) -> None:
        with self._lock:
            self._connection.close()
        self._boxes.close()


class _Connection(sqlite3.Connection):
    """A connection that raises `Stopped` where the disk is full or another process holds the file. What was written
    before is whole; running again writes the rest."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        with _translate_disk_errors():
            return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        with _translate_disk_errors():
            return super().executemany(sql, parameters)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]:
        with _translate_disk_errors():
            return super().__exit__(kind, error, trace)


@contextmanager
def _translate_disk_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _DISK_FULL:
            raise Stopped(
                f"the disk is full or failed, and the run's journal can't be written ({error}). Nothing is lost: "
                "free some space and run again with the same run id to resume",
                code="journal",
            ) from error
        if code in _LOCKED:
            raise Stopped(
                f"another process has locked the run's journal for a minute ({error}). Nothing is lost: end it, and "
                "run again with the same run id to resume",
                code="journal",
            ) from error
        raise

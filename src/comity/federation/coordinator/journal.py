"""The coordinator's memory: asks before they are sent, replies as they come, and when an ask was decided.

Resuming a run is running it again over the same journal. The bytes of an ask are sent as they were first written, never
recomputed: another machine's last floating-point bit would make a different ask, which the sites refuse. Values that
all parties get are stored once, or a broadcast of what K parties said would take K² room; so are boxes that the letters
of one party to several others share. Such a box stands in replies and letters as its digest, which says what it is.

The file is its owner's alone (mode 0600). Once a run's values are released, `settle` deletes what the run was made of:
messages, letters, boxes, the coordinator's own chance and keys. The released values, sizes and digests stay.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comity.entropy import fresh_seed
from comity.errors import StudyError
from comity.federation.coordinator.journal_file import JournalFile
from comity.federation.messages.ask import ask_bytes
from comity.federation.messages.codec import Embedded, decode, encode
from comity.federation.messages.heads import Head, newest
from comity.federation.messages.letters import Letter, delivered, rejoined
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
# Mail without this has every box in it, and need not be read; mail may have it by chance, and is read for nothing.
_BULK = b"bulk"
_LASTING = (NONCE, RELEASED, ABANDONED, BEGUN)


@dataclass(frozen=True)
class Trace:
    """What is shown of a message: its length and its SHA-256."""

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
class Own:
    """What one party gets of an ask beside what all get."""

    values: bytes
    mail: bytes
    seen: list[Head]


class Journal:
    """A SQLite file, or memory when `path` is None: then a killed run can't be resumed."""

    def __init__(self, path: Path | str | None = None) -> None:
        self._lock = ForkLock()
        try:
            if path is not None:
                # Made with its mode: SQLite gives the same to the log beside it.
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
                os.chmod(path, 0o600)  # noqa: PTH101
            with self._lock:
                self._connection = sqlite3.connect(
                    ":memory:" if path is None else os.fspath(path),
                    isolation_level=None,
                    check_same_thread=False,
                    factory=JournalFile,
                )
                self._connection.execute("pragma busy_timeout = 60000")
                self._connection.execute("pragma secure_delete = on")
                (version,) = self._connection.execute("pragma user_version").fetchone()
                (tables,) = self._connection.execute("select count(*) from sqlite_master").fetchone()
                if tables and version != _VERSION:
                    raise StudyError(f"the run's journal {path} is of another version of Comity; begin a new run")
                self._connection.executescript(_TABLES)
        except (sqlite3.Error, OSError) as error:
            raise StudyError(f"the run's journal {path} can't be opened ({error}); check the folder") from error
        # Of messages that this process has hashed already; others are read again where they are asked for.
        self._traces: dict[tuple[str, str], dict[str, tuple[Trace, Trace]]] = {}

    # Asks and replies.

    def open(self, run: str, path: str, shared: bytes, own: Iterable[tuple[str, Own]]) -> None:
        """Write an ask down before it is sent; on resume the ask stays as it was first written.

        An ask that was journalled keeps its list of parties, whoever the caller would ask now, and `own` is not looked
        at. What each party gets is written as it comes, so that one is held at a time.
        """
        with self._lock, self._connection:
            self._connection.execute("begin immediate")
            known = self._connection.execute("select 1 from common where run = ? and path = ?", (run, path)).fetchone()
            if known is None:
                self._connection.execute("insert into common values(?, ?, ?)", (run, path, shared))
                self._connection.executemany(
                    "insert into ask(run, path, party, own, mail, seen) values(?, ?, ?, ?, ?, ?)",
                    ((run, path, party, one.values, one.mail, encode(one.seen)) for party, one in own),
                )

    def nonce(self, run: str) -> bytes:
        """Of this journal, for this run: sites that began with it answer no other."""
        return bytes(self.once(run, NONCE, fresh_seed))

    def ask(self, study: str, run: str, path: str) -> Callable[[str], bytes]:
        """Makes the ask as a party gets it: the same bytes whenever it is asked for. What all get is held once."""
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
            letters: Sequence[Letter] | Embedded = Embedded(mail)
            if _BULK in mail:
                letters = [delivered(letter, lambda digest: self._box(run, digest)) for letter in decode(mail)]
            return ask_bytes(study, run, path, shared, own, letters, nonce, Embedded(seen))

        return made

    def standing(self, run: str, path: str) -> dict[str, bool]:
        """The parties of an ask in its order, and whether the reply of each is here."""
        with self._lock:
            return {party: bool(here) for party, here in self._rows("party, reply is not null", run, path)}

    def each_reply(self, run: str, path: str) -> Iterator[tuple[str, bytes | None]]:
        """By party, in the order of the ask, one at a time; boxes stand as digests."""
        for party, here in self.standing(run, path).items():
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
        """The parties whose replies to an ask count."""
        return [party for party, here in self.standing(run, path).items() if here]

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
        """Asks and replies as they crossed, one party after the other."""
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
                reply = rejoined(reply, lambda digest: self._box(run, digest))
            yield party, Exchange(made(party), reply)

    def hold(self, run: str, path: str, party: str, boxes: Mapping[bytes, bytes]) -> None:
        """Write down the boxes of a reply that is about to be remembered with their digests in it."""
        with self._lock, self._connection:
            self._connection.execute("begin immediate")
            self._connection.execute("insert or ignore into boxed values(?, ?, ?)", (run, path, party))
            self._connection.executemany(
                "insert or ignore into box values(?, ?, ?)", [(run, digest, box) for digest, box in boxes.items()]
            )

    def _box(self, run: str, digest: bytes) -> bytes:
        with self._lock:
            row = self._connection.execute(
                "select body from box where run = ? and digest = ?", (run, digest)
            ).fetchone()
        if row is None:
            raise StudyError(f"the journal of run {run} lacks a box that its letters name; it was edited or cut short")
        return bytes(row[0])

    def got(
        self, run: str, path: str, replies: Mapping[str, bytes], *, decided: bool, why: Mapping[str, str] | None = None
    ) -> None:
        """Remember replies; `decided` closes the ask, which fixes who was lost, and `why` says for what reason."""
        with self._lock, self._connection:
            self._connection.execute("begin immediate")
            if self.is_closed(run, path):
                return  # decided by another process: what comes now was lost
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
        """Of these asks the ones that were sent and not decided, with the parties that have not answered them."""
        asked = set(self._paths(run))
        return {
            path: [party for party, here in self.standing(run, path).items() if not here]
            for path in paths
            if path in asked and not self.is_closed(run, path)
        }

    # What the coordinator itself makes.

    def once(self, run: str, name: str, make: Callable[[], Any]) -> Any:
        """A value that the coordinator draws or derives: the first that is made is the one that counts.

        It is made while nothing is locked, since a whole run may be what makes it. Of two threads or processes that
        make it at once, both get what was written first; the other's is forgotten before anybody sees it.
        """
        known = self.made(run, name)
        if known is not None:
            return known
        made = encode(make())
        with self._lock:
            self._connection.execute("insert or ignore into once values(?, ?, ?)", (run, name, made))
        return self.made(run, name)

    def made(self, run: str, name: str) -> Any:
        """What `once` remembers, or None."""
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
        """Keep the newest of what is known and what was found; the caller has verified the signatures."""
        if not found:
            return
        with self._lock, self._connection:
            self._connection.execute("begin immediate")
            known = self.heads()
            self._connection.executemany(
                "insert or replace into heads values(?, ?, ?)",
                [(*whose, encode(newest(known.get(whose, []), of))) for whose, of in found.items()],
            )

    # What is left of a run.

    def settle(self, study: str, run: str, *, keeping: Iterable[str] = ()) -> None:
        """Delete what a run was made of: its values are released. `keeping` are paths that are still asked for."""
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
            # A statement of its own: it can't run inside a transaction, nor beside one of another run.
            self._connection.execute("pragma wal_checkpoint(truncate)").fetchone()

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
        """Every ask of a run in order, with its exchanges, until it is settled."""
        for path in self._paths(run):
            if not self._is_settled(run, path):
                yield path, dict(self.exchanges(study, run, path))

    def _paths(self, run: str) -> list[str]:
        with self._lock:
            rows = self._connection.execute("select path from common where run = ? order by rowid", (run,)).fetchall()
        return [path for (path,) in rows]

    def remember_trace(self, run: str, path: str, party: str, ask: Trace, reply: Trace) -> None:
        """Note the traces of an exchange that was just signed and verified; they may be many megabytes to read."""
        self._traces.setdefault((run, path), {})[party] = ask, reply

    def traces(self, study: str, run: str) -> Iterator[tuple[str, list[Trace], list[Trace]]]:
        """Every ask of a run in order, with the traces of its messages and of the replies that count."""
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
        known, standing = self._traces.get((run, path), {}), self.standing(run, path)
        if all(here and party in known for party, here in standing.items()):
            return {party: known[party] for party in standing}
        return {
            party: (Trace.of(exchange.message), None if exchange.reply is None else Trace.of(exchange.reply))
            for party, exchange in self.exchanges(study, run, path)
        }

    def close(self) -> None:
        with self._lock:
            self._connection.close()

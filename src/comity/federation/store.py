"""The owner's one file: ledger entries, stored replies and step state, because they must commit together.

`commit` is the only writer. Debits, state and reply become durable together or not at all, and the first commit under a
key wins: so there is no moment with a debit and no reply, a retry finds either everything or nothing, and two processes
that answer the same ask give the same bytes. When a run ends, its state and the bodies of its replies are deleted in
the same commit; digests stay, so that nothing is answered anew.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence

from comity.errors import Refused
from comity.federation.effects import Effects
from comity.privacy.ledger import Draw, Ledger
from comity.privacy.unit import Neighbours, Unit

# Bodies and values can be many megabytes: the keys need an index of their own, or a search would read whole messages.
_TABLES = """
create table if not exists reply(owner text, run text, path text, study text, digest blob, sent text, body blob,
                                 primary key(owner, run, path));
create table if not exists state(owner text, run text, name text, value blob,
                                 primary key(owner, run, name));
"""


class Store:
    """Replies and state of the runs of one owner, in the file of its ledger."""

    def __init__(self, ledger: Ledger, *, unit: Unit, neighbours: Neighbours) -> None:
        self.ledger = ledger
        self._unit = unit
        self._neighbours = neighbours
        with ledger.transaction() as transaction:
            for statement in _TABLES.split(";"):
                transaction.connection.execute(statement)

    @property
    def _owner(self) -> str:
        return self.ledger.owner

    def ledger_head(self, seen: str) -> str:
        """The head of the chain; a head that a peer saw and that is not in the chain freezes the ledger."""
        if seen:
            self.ledger.remember(seen)
        return self.ledger.head()

    def reply(self, run: str, path: str, digest: bytes) -> bytes | None:
        """The stored answer to this very ask; a different ask under the same key is refused."""
        with self.ledger.reading() as connection:
            return self._stored(connection, run, path, digest)

    def _stored(self, connection: sqlite3.Connection, run: str, path: str, digest: bytes) -> bytes | None:
        row = connection.execute(
            "select digest, body from reply where owner = ? and run = ? and path = ?",
            (self._owner, run, path),
        ).fetchone()
        if row is None:
            return None
        if row[0] != digest:
            raise Refused(f"{path}: a different ask under the same key was answered before", code="asked-before")
        if row[1] is None:
            raise Refused(f"{path}: the run is closed and its replies are deleted", code="closed")
        return bytes(row[1])

    def require_begun(self, study: str, run: str) -> None:
        """Refuse everything but the beginning of a run until it has begun, and after it has ended: policy, approval and
        reservation are checked there. A run id belongs to one study."""
        with self.ledger.reading() as connection:
            self._require_begun(connection, study, run)

    def _require_begun(self, connection: sqlite3.Connection, study: str, run: str) -> None:
        row = connection.execute(
            "select study, body is null from reply where owner = ? and run = ? and path = 'run.begin[0]'",
            (self._owner, run),
        ).fetchone()
        if row is None or row[0] != study:
            raise Refused(f"run {run} of this study has not begun here", code="unreserved", key="run")
        if row[1]:
            raise Refused(f"run {run} is closed", code="closed", key="run")

    def _require_allowed(self, connection: sqlite3.Connection, study: str, run: str, most: int | None) -> None:
        (begun,) = connection.execute(
            "select count(distinct run) from reply where owner = ? and study = ? and run != ?",
            (self._owner, study, run),
        ).fetchone()
        if most is not None and begun >= most:
            raise Refused(f"refused: study {study[:12]} is approved here for {most} runs", code="approval")

    def state(self, run: str, name: str) -> bytes | None:
        with self.ledger.reading() as connection:
            row = connection.execute(
                "select value from state where owner = ? and run = ? and name = ?", (self._owner, run, name)
            ).fetchone()
        return None if row is None else bytes(row[0])

    def commit(
        self,
        study: str,
        run: str,
        path: str,
        digest: bytes,
        body: bytes,
        effects: Effects,
        draws: Sequence[Draw],
        *,
        title: str = "study",
        most: int | None = None,
    ) -> bytes:
        """Make a step's effects and its reply durable; returns the reply to send, which may be another process's.

        `most` is for how many runs the study is approved here: counted inside the transaction, or runs that begin at
        the same moment would all be the first.
        """
        with self.ledger.transaction() as transaction:
            connection = transaction.connection
            first = self._stored(connection, run, path, digest)
            if first is not None:
                return first  # another process of ours was faster: its bytes go out, our draw is forgotten
            if effects.reserve:
                self._require_allowed(connection, study, run, most)
                transaction.reserve(
                    study=f"{title} {study[:12]}",
                    run=run,
                    draws=draws,
                    unit=self._unit,
                    neighbours=self._neighbours,
                )
            else:
                self._require_begun(connection, study, run)
            for release, index in effects.draws:
                transaction.draw(run=run, release=release, index=index, step=path)
            for name, value in effects.state.items():
                if value is None:
                    connection.execute(
                        "delete from state where owner = ? and run = ? and name = ?", (self._owner, run, name)
                    )
                    continue
                connection.execute("insert or replace into state values(?, ?, ?, ?)", (self._owner, run, name, value))
            if effects.close:
                transaction.close(run)
                connection.execute("delete from state where owner = ? and run = ?", (self._owner, run))
                connection.execute("update reply set body = null where owner = ? and run = ?", (self._owner, run))
            connection.execute(
                "insert into reply values(?, ?, ?, ?, ?, ?, ?)",
                (self._owner, run, path, study, digest, hashlib.sha256(body).hexdigest(), body),
            )
        return body

    def replies(self, run: str) -> dict[str, str]:
        """SHA-256 of each reply that was sent, by path."""
        with self.ledger.reading() as connection:
            rows = connection.execute(
                "select path, sent from reply where owner = ? and run = ?", (self._owner, run)
            ).fetchall()
        return dict(rows)

    def runs_of(self, study: str) -> set[str]:
        """Runs of a study that this owner has begun."""
        with self.ledger.reading() as connection:
            rows = connection.execute(
                "select distinct run from reply where owner = ? and study = ?", (self._owner, study)
            ).fetchall()
        return {run for (run,) in rows}

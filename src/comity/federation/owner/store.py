"""The owner's one file: ledger entries, stored replies and step state, because they must commit together.

`commit` is the only writer of a run. Debits, state and reply become durable together or not at all, and the first
commit under a key wins: so there is no moment with a debit and no reply, a retry finds either everything or nothing,
and two processes that answer the same ask give the same bytes. Every commit moves the ledger's head, and the reply
carries the head after it: a file that was put back is noticed by whoever saw a later one, whether or not a debit was
in between.

When a run ends, or is abandoned, its state and the bodies of its replies are deleted in the same commit, their pages
overwritten and the log cut off; digests stay, so that nothing is answered anew. What was delivered to the owner stays
after an end, and goes with a run that is abandoned.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from comity.crypto.sealing import Identity
from comity.errors import Refused
from comity.federation.declare.policy import Reservation
from comity.federation.messages.codec import embedded, encode
from comity.federation.messages.heads import Head, newest, signed
from comity.federation.messages.paths import ABANDON, BEGIN, END, MEET, StepPath
from comity.federation.owner.effects import Effects
from comity.federation.owner.standing import Standing
from comity.privacy.ledger import Account, Ledger, Transaction
from comity.privacy.unit import Neighbours, Unit

log = logging.getLogger("comity.site")

# Bodies and values can be many megabytes: the keys need an index of their own, or a search would read whole messages.
_TABLES = """
create table if not exists reply(owner text, run text, path text, study text, digest blob, sent text, body blob,
                                 primary key(owner, run, path));
create table if not exists state(owner text, run text, name text, value blob,
                                 primary key(owner, run, name));
create table if not exists ended(owner text, run text, primary key(owner, run));
create table if not exists delivered(owner text, run text, name text, path text, value blob,
                                     primary key(owner, run, name, path));
create table if not exists peer(owner text, party text, key blob, ledger text, count integer, head text,
                                signature blob, primary key(owner, party, key, ledger));
"""
MARK = 32
"""Characters of a study's hash that stand before the ids of its runs."""
_LIFE = (str(BEGIN), str(MEET), str(END), str(ABANDON))


class Store:
    """Replies and state of the runs of one owner, in the file of its ledger.

    Where several studies share the file, `study` keeps their runs apart: a coordinator can't take, close or ask about
    the run ids of another. In the ledger such a run stands as the study and its id, which is also what `abandon`
    without a study takes. `dataset` is the one whose budget pays; by default the ledger's only one.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        unit: Unit,
        neighbours: Neighbours,
        dataset: str | None = None,
        study: str | None = None,
    ) -> None:
        self.ledger = ledger
        self._dataset = dataset
        # Of one length, so that no run id of one study reads like another study's.
        self._mark = "" if study is None else f"{study[:MARK]:{MARK}}/"
        self._unit = unit
        self._neighbours = neighbours
        with ledger.transaction() as transaction:
            for statement in _TABLES.split(";"):
                transaction.connection.execute(statement)

    @property
    def _owner(self) -> str:
        return self.ledger.owner

    def _key(self, run: str) -> str:
        return self._mark + run

    # Looking.

    def counted_in(self) -> tuple[Unit, Neighbours] | None:
        """Unit and relation of the dataset that pays; None where the ledger has several and none is named."""
        accounts = [one for one in self.ledger.summary() if self._dataset in (None, one.dataset)]
        return (accounts[0].unit, accounts[0].neighbours) if len(accounts) == 1 else None

    def standing(self, run: str, path: StepPath) -> Standing:
        """How a run and one path in it stand here."""
        with self.ledger.reading() as connection:
            return Standing.of(connection, self._owner, self._key(run), path)

    def _has_ended(self, connection: sqlite3.Connection, run: str) -> bool:
        row = connection.execute("select 1 from ended where owner = ? and run = ?", (self._owner, run)).fetchone()
        return row is not None

    def _begun(self, connection: sqlite3.Connection, study: str, other_than: str) -> int:
        """How many other runs of a study count: those that are open, and those in which anything was answered. A run
        that was abandoned because somebody else refused it has cost nothing, no approval either."""
        (begun,) = connection.execute(
            "select count(distinct run) from reply where owner = ? and study = ? and run != ? and (path not in "
            f"({', '.join('?' * len(_LIFE))}) or (path = ? and run not in (select run from ended where owner = ?)))",
            (self._owner, study, other_than, *_LIFE, str(BEGIN), self._owner),
        ).fetchone()
        return int(begun)

    def runs_of(self, study: str, *, other_than: str) -> int:
        """How many runs of a study this owner has begun, `other_than` left out."""
        with self.ledger.reading() as connection:
            return self._begun(connection, study, self._key(other_than))

    def runs_open(self) -> list[str]:
        """Runs that began here, of this study where there is one, and have not ended."""
        with self.ledger.reading() as connection:
            rows = connection.execute(
                "select run from reply where owner = ? and path = ? and body is not null order by rowid",
                (self._owner, str(BEGIN)),
            ).fetchall()
        return [run.removeprefix(self._mark) for (run,) in rows if run.startswith(self._mark)]

    def state(self, run: str, name: str) -> bytes | None:
        with self.ledger.reading() as connection:
            row = connection.execute(
                "select value from state where owner = ? and run = ? and name = ?", (self._owner, self._key(run), name)
            ).fetchone()
        return None if row is None else bytes(row[0])

    def delivered(self, run: str, name: str | None = None) -> dict[str, dict[str, bytes]]:
        """What this owner received in a run, or that of one name: by name, then by path, in the order in which it
        came."""
        with self.ledger.reading() as connection:
            rows = connection.execute(
                "select name, path, value from delivered where owner = ? and run = ? and name = ifnull(?, name) "
                "order by rowid",
                (self._owner, self._key(run), name),
            ).fetchall()
        found: dict[str, dict[str, bytes]] = {}
        for name, path, value in rows:
            found.setdefault(name, {})[path] = bytes(value)
        return found

    def replies(self, run: str) -> dict[str, str]:
        """SHA-256 of each reply that was sent, by path."""
        with self.ledger.reading() as connection:
            rows = connection.execute(
                "select path, sent from reply where owner = ? and run = ?", (self._owner, self._key(run))
            ).fetchall()
        return dict(rows)

    # Writing.

    def commit(
        self,
        study: str,
        run: str,
        path: StepPath,
        digest: bytes,
        reply: Mapping[str, Any],
        effects: Effects,
        booking: Reservation | None = None,
        *,
        keys: Identity,
        party: str,
    ) -> bytes:
        """Make a step's effects and its reply durable; returns the reply to send, which may be another process's.

        `booking` is what is reserved, where the step reserves. `keys` sign the head of the ledger for this `party`.
        """
        signed = [study, run, str(path), digest]
        run = self._key(run)
        with self.ledger.transaction() as transaction:
            connection = transaction.connection
            standing = Standing.of(connection, self._owner, run, path)
            first = standing.stored(digest)
            if first is not None:
                return first  # another process of ours was faster: its bytes go out, our draw is forgotten
            transaction.require_unfrozen()
            if effects.reserve:
                assert booking is not None
                self._reserve(transaction, booking, run)
            elif not effects.abandon:
                standing.require_begun(study)
            for release, index in effects.draws:
                transaction.draw(run=run, release=release, index=index, step=str(path))
            self._keep(connection, run, effects)
            if effects.close:
                transaction.close(run)
                self._clear(connection, run)
            if effects.abandon:
                self._abandon(transaction, run)
            self._remember(connection, effects)
            body = self._with_head(transaction, keys, party, signed, reply)
            connection.execute(
                "insert into reply values(?, ?, ?, ?, ?, ?, ?)",
                (self._owner, run, str(path), study, digest, hashlib.sha256(body).hexdigest(), body),
            )
        if effects.close or effects.abandon:
            self._cut_log()
        return body

    def looked_ahead(
        self, booking: Reservation, run: str, reply: Mapping[str, Any], *, keys: Identity, party: str
    ) -> bytes:
        """The reply of a step that only looks, or the refusal that beginning the run would meet. Nothing is written:
        the reply carries the head that the ledger has anyway, and is made anew whenever it is asked for."""
        with self.ledger.trial() as transaction:
            self._reserve(transaction, booking, self._key(run))
        head = self.ledger.commit_head()
        return encode({**reply, "head": signed(keys, party, head.ledger, head.count, head.head)})

    def foresee(self, booking: Reservation, *runs: str) -> list[Account]:
        """The accounts as they would be if these runs began, or the refusal of the first that would not."""
        with self.ledger.trial() as transaction:
            for run in runs:
                self._reserve(transaction, booking, self._key(run))
            return self.ledger.summary()

    def abandon(self, run: str) -> None:
        """End a run here, whatever its coordinator says: frees what was never drawn, deletes its state and replies, and
        closes its id for good, also one that never began. Again is the same as once."""
        run = self._key(run)
        with self.ledger.transaction() as transaction:
            if not self._has_ended(transaction.connection, run):
                self._abandon(transaction, run)
                transaction.note(hashlib.sha256(encode(["abandon", run])).digest())
        self._cut_log()

    def _keep(self, connection: sqlite3.Connection, run: str, effects: Effects) -> None:
        owner, state = self._owner, effects.state
        gone = [(owner, run, name) for name, value in state.items() if value is None]
        kept = [(owner, run, name, value) for name, value in state.items() if value is not None]
        delivered = [(owner, run, name, at, value) for (name, at), value in effects.delivered.items()]
        for statement, rows in (
            ("delete from state where owner = ? and run = ? and name = ?", gone),
            ("insert or replace into state values(?, ?, ?, ?)", kept),
            ("insert into delivered values(?, ?, ?, ?, ?)", delivered),
        ):
            if rows:
                connection.executemany(statement, rows)

    def _abandon(self, transaction: Transaction, run: str) -> None:
        if self._has_ended(transaction.connection, run):
            return
        try:
            transaction.abandon(run)
        except Refused as refusal:
            if refusal.code != "unreserved":
                raise
        transaction.connection.execute("delete from delivered where owner = ? and run = ?", (self._owner, run))
        self._clear(transaction.connection, run)

    def _clear(self, connection: sqlite3.Connection, run: str) -> None:
        connection.execute("delete from state where owner = ? and run = ?", (self._owner, run))
        connection.execute("update reply set body = null where owner = ? and run = ?", (self._owner, run))
        connection.execute("insert or ignore into ended values(?, ?)", (self._owner, run))

    def _reserve(self, transaction: Transaction, booking: Reservation, run: str) -> None:
        study, most = booking.study, booking.max_runs
        if self._has_ended(transaction.connection, run):
            raise Refused(f"run {run} is closed and can't begin", code="closed", key="run")
        if most is not None and self._begun(transaction.connection, study, run) >= most:
            raise Refused(f"refused: study {study[:12]} is approved here for {most} runs", code="approval")
        transaction.reserve(
            study=f"{booking.title} {study[:12]}",
            run=run,
            draws=booking.draws,
            unit=self._unit,
            neighbours=self._neighbours,
            dataset=self._dataset,
        )
        if booking.period is not None:
            booking.period.check(transaction, self._dataset, booking.title)

    def _cut_log(self) -> None:
        """What was deleted stands in the write-ahead log until that is cut off."""
        if not self.ledger.truncate_log():
            log.warning("%r is being read: what was deleted leaves its log with the next run's end", self.ledger)

    # Heads.

    def _with_head(
        self, transaction: Transaction, keys: Identity, party: str, what: list[Any], reply: Mapping[str, Any]
    ) -> bytes:
        """The reply with the head that the ledger has once this commit is through."""
        parts = {name: embedded(value, depth=2) for name, value in reply.items()}
        transaction.note(hashlib.sha256(encode([*what, parts])).digest())
        head = transaction.commit_head()
        return encode({**parts, "head": signed(keys, party, head.ledger, head.count, head.head)})

    def look_at(self, seen: Head, verify: Callable[[], None]) -> None:
        """A head that others saw of this owner's ledger. One that the ledger lacks freezes it, if `verify` shows that
        its owner gave it out: the file was put back."""
        if self.ledger.lacks_commit(seen["ledger"], seen["count"], seen["head"]):
            verify()
            self.ledger.remember_commit(seen["ledger"], seen["count"], seen["head"])

    def remembered(self, party: str, key: bytes) -> list[Head]:
        """The newest heads that this owner has seen of the ledgers of another party."""
        return self.all_remembered().get((party, key), [])

    def all_remembered(self) -> dict[tuple[str, bytes], list[Head]]:
        """The newest heads that this owner has seen of others' ledgers, by party and pinned key."""
        with self.ledger.reading() as connection:
            return self._remembered(connection)

    def _remembered(self, connection: sqlite3.Connection) -> dict[tuple[str, bytes], list[Head]]:
        rows = connection.execute(
            "select party, key, ledger, count, head, signature from peer where owner = ? order by rowid", (self._owner,)
        )
        names = ("ledger", "count", "head", "signature")
        found: dict[tuple[str, bytes], list[Head]] = {}
        for party, key, *head in rows:
            found.setdefault((party, bytes(key)), []).append(dict(zip(names, head)))
        return found

    def _remember(self, connection: sqlite3.Connection, effects: Effects) -> None:
        if not effects.heads:
            return
        known, owner = self._remembered(connection), self._owner
        kept = {whose: newest(known.get(whose, []), heads) for whose, heads in effects.heads.items()}
        connection.executemany(
            "delete from peer where owner = ? and party = ? and key = ?", [(owner, *whose) for whose in kept]
        )
        connection.executemany(
            "insert into peer values(?, ?, ?, ?, ?, ?, ?)",
            [
                (owner, *whose, one["ledger"], one["count"], one["head"], one["signature"])
                for whose, heads in kept.items()
                for one in heads
            ],
        )

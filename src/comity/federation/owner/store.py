"""The owner's file: ledger entries, stored replies and step state, in one file because they commit together.

`commit` is the only writer of a run. Debits, state and reply become durable together or not at all, and the first
commit under a key wins. So there is no moment with a debit and no reply, a retry finds everything or nothing, and two
processes that answer the same ask give the same bytes. Every commit moves the ledger's head, and the reply carries the
head after it: participants that saw a later head notice a file that was restored from a backup, with or without a debit
in between.

A large box of a letter is a file beside the owner's (`messages.box_store`), durable before the commit that names it:
the database would write it several times. A commit that fails leaves a file that no reply names.

When a run ends or is abandoned, the same commit deletes its state and the bodies of its replies, overwrites their pages
and truncates the log; then the files of its boxes are deleted. Digests stay, so no ask is answered a second time.
Values that were delivered to the owner stay after an end, and are deleted with an abandoned run.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from comity.crypto.sealing import Identity
from comity.errors import Refused, Stopped
from comity.federation.declare.policy import Reservation
from comity.federation.messages.ask import ABANDON, BEGIN, END, MEET, StepPath
from comity.federation.messages.box_store import LARGE_BYTES, BoxStore
from comity.federation.messages.codec import decode, embed, encode
from comity.federation.messages.heads import Head, newest, sign_head
from comity.federation.owner.run_state import Effects
from comity.privacy.ledger import Account, Ledger, Transaction, numbered_parameters
from comity.privacy.unit import Neighbours, Unit

log = logging.getLogger("comity.site")

# Bodies and values can be many megabytes. The primary keys are indexes: a search reads no messages.
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
STUDY_PREFIX = 32
"""How many characters of a study's hash precede the ids of its runs."""
_LIFECYCLE = (str(BEGIN), str(MEET), str(END), str(ABANDON))
NONCE = "run:nonce"
"""The state that binds a run to the journal that began it."""
_FILED = "filed"
# A stored body without these bytes is the reply as it was sent and need not be decoded.
_FILED_BYTES = _FILED.encode()

_RUN_STATUS = """
select (select value from state where owner = ?1 and run = ?2 and name = ?5),
       exists (select 1 from ended where owner = ?1 and run = ?2),
       begun.study, begun.body is null, here.digest, here.body
from (select 1)
left join reply as begun on begun.owner = ?1 and begun.run = ?2 and begun.path = ?3
left join reply as here on here.owner = ?1 and here.run = ?2 and here.path = ?4
"""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run and of one ask in it. It is read twice for every ask, before its step and inside the commit.

    `study` is the one under which the run began here, if it did; `digest` is that of the ask that was answered under
    this path, if one was. Replies of a run that is over are deleted, their digests stay.
    """

    run: str
    path: StepPath
    nonce: bytes | None
    ended: bool
    study: str | None
    deleted: bool
    digest: bytes | None
    body: bytes | None

    @classmethod
    def of(cls, connection: sqlite3.Connection, owner: str, run: str, path: StepPath) -> RunStatus:
        found = connection.execute(
            _RUN_STATUS, numbered_parameters(owner, run, str(BEGIN), str(path), NONCE)
        ).fetchone()
        nonce, ended, study, deleted, digest, body = found
        return cls(run, path, nonce, bool(ended), study, study is not None and bool(deleted), digest, body)

    def stored(self, digest: bytes) -> bytes | None:
        """The stored answer to this ask. Refuses another ask under the same path."""
        if self.digest is None:
            return None
        if self.body is None or (self.digest != digest and self.ended):
            raise Refused(f"{self.path}: the run is closed and its replies are deleted", code="closed", key="run")
        if self.digest != digest:
            raise Refused(f"{self.path}: a different ask under the same key was answered before", code="asked-before")
        return self.body

    def require_begun(self, study: str) -> None:
        """Refuse a step before the run has begun, where policy, approval and reservation are checked, and after it has
        ended. A run id belongs to one study."""
        if self.deleted or self.ended:
            raise Refused(f"run {self.run} is closed", code="closed", key="run")
        if self.study is None or self.study != study:
            raise Refused(f"run {self.run} of this study has not begun here", code="unreserved", key="run")


def _boxes_of(owner: object, key: str) -> str:
    return f"{owner}/{key}"


def count_answers(ledger: Ledger) -> int:
    """How many asks were answered, of all runs of a ledger's file, the ended ones included."""
    with ledger.reading() as connection:
        made = connection.execute("select 1 from sqlite_master where type = 'table' and name = 'reply'").fetchone()
        return 0 if made is None else int(connection.execute("select count(*) from reply").fetchone()[0])


class Store:
    """Replies and state of the runs of one owner, in the file of its ledger.

    Where several studies share the file, `study` keeps their runs apart: a coordinator can't take, close or ask about
    another's run ids. The ledger lists such a run as the study and the run id; a store without a study takes the same
    to `abandon` it. `dataset` is the one whose budget pays, by default the only one of the ledger.
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
        # All prefixes have one length: no run id of one study equals another study's.
        self._prefix = "" if study is None else f"{study[:STUDY_PREFIX]:{STUDY_PREFIX}}/"
        self._unit = unit
        self._neighbours = neighbours
        self._boxes = BoxStore(ledger.path)
        with ledger.transaction() as transaction:
            for statement in _TABLES.split(";"):
                transaction.connection.execute(statement)
        self._delete_leftovers()

    def _delete_leftovers(self) -> None:
        """Delete boxes of runs that are over. A run begins before it has boxes: one that begins meanwhile is not among
        those that were found."""
        found = self._boxes.leftovers()
        if not found:
            return
        with self.ledger.reading() as connection:
            rows = connection.execute(
                "select owner, run from reply where path = ? and body is not null", (str(BEGIN),)
            ).fetchall()
        self._boxes.delete_leftovers(found, (_boxes_of(owner, key) for owner, key in rows))

    @property
    def _owner(self) -> str:
        return self.ledger.owner

    def _key(self, run: str) -> str:
        return self._prefix + run

    # Reading.

    def counted_in(self) -> tuple[Unit, Neighbours] | None:
        """Unit and relation of the dataset that pays; None where the ledger has several datasets and none is named."""
        accounts = [one for one in self.ledger.summary() if self._dataset in (None, one.dataset)]
        return (accounts[0].unit, accounts[0].neighbours) if len(accounts) == 1 else None

    def run_status(self, run: str, path: StepPath) -> RunStatus:
        """The status of a run and of one ask in it."""
        with self.ledger.reading() as connection:
            return RunStatus.of(connection, self._owner, self._key(run), path)

    def answered(self, status: RunStatus, digest: bytes) -> bytes | None:
        """The reply that was sent to this ask, as it was sent. Refuses another ask under the same path."""
        body = status.stored(digest)
        if body is None or _FILED_BYTES not in body:
            return body
        reply = decode(body)
        places = reply.pop(_FILED, [])
        boxes = reply.get("boxes", [])
        for place in places:
            box = self._boxes.get(_boxes_of(self._owner, status.run), boxes[place])
            if box is None:
                raise Stopped(
                    f"{status.path}: a letter of the stored reply is missing beside the ledger; put the files back, or "
                    "end the run",
                    code="ledger",
                )
            boxes[place] = box
        return encode(reply) if places else body

    def _has_ended(self, connection: sqlite3.Connection, run: str) -> bool:
        row = connection.execute("select 1 from ended where owner = ? and run = ?", (self._owner, run)).fetchone()
        return row is not None

    def _begun(self, connection: sqlite3.Connection, study: str, other_than: str) -> int:
        """How many other runs of a study count: open ones, and those in which a step of the method was answered. A run
        that was abandoned before, because another party refused it, has cost nothing and uses up no approval."""
        marks = ", ".join("?" * len(_LIFECYCLE))
        (begun,) = connection.execute(
            "select count(distinct run) from reply where owner = ? and study = ? and run != ? and (path not in "
            f"({marks}) or (path = ? and run not in (select run from ended where owner = ?)))",
            (self._owner, study, other_than, *_LIFECYCLE, str(BEGIN), self._owner),
        ).fetchone()
        return int(begun)

    def runs_of(self, study: str, *, other_than: str) -> int:
        """How many runs of a study this owner has begun, without the run `other_than`."""
        with self.ledger.reading() as connection:
            return self._begun(connection, study, self._key(other_than))

    def runs_open(self) -> list[str]:
        """The runs that began here and have not ended; of the store's study, where it has one."""
        with self.ledger.reading() as connection:
            rows = connection.execute(
                "select run from reply where owner = ? and path = ? and body is not null order by rowid",
                (self._owner, str(BEGIN)),
            ).fetchall()
        return [run.removeprefix(self._prefix) for (run,) in rows if run.startswith(self._prefix)]

    def state(self, run: str, name: str) -> bytes | None:
        with self.ledger.reading() as connection:
            row = connection.execute(
                "select value from state where owner = ? and run = ? and name = ?", (self._owner, self._key(run), name)
            ).fetchone()
        return None if row is None else bytes(row[0])

    def delivered(self, run: str, name: str | None = None) -> dict[str, dict[str, bytes]]:
        """What this owner received in a run, or of it what has this name: by name, then by path, in the order of
        arrival."""
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
        """The SHA-256 of each reply that was sent, by path."""
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
        reservation: Reservation | None = None,
        *,
        keys: Identity,
        party: str,
    ) -> tuple[bytes, bytes]:
        """Make a step's effects and its reply durable, and return the reply to send with its SHA-256.

        If another process has answered the same ask, that is its reply, and the effects here are dropped. `reservation`
        is what a step that reserves is to reserve. `keys` sign the head of the ledger for this `party`.
        """
        signed = [study, run, str(path), digest]
        run = self._key(run)
        filed = {name: box for name, box in effects.boxes.items() if len(box) >= LARGE_BYTES}
        self._boxes.add(_boxes_of(self._owner, run), filed)
        with self.ledger.transaction() as transaction:
            connection = transaction.connection
            status = RunStatus.of(connection, self._owner, run, path)
            first = self.answered(status, digest)
            if first is not None:
                return first, hashlib.sha256(
                    first
                ).digest()  # another process of this owner was faster: its bytes leave, this draw never does
            transaction.require_unfrozen()
            if effects.reserve:
                assert reservation is not None
                self._reserve(transaction, reservation, run)
            elif not effects.abandon:
                status.require_begun(study)
            for release, index in effects.draws:
                transaction.draw(run=run, release=release, index=index, step=str(path))
            self._keep(connection, run, effects)
            if effects.close:
                transaction.close(run)
                self._clear(connection, run)
            if effects.abandon:
                self._abandon(transaction, run)
            self._remember(connection, effects)
            body, stored = self._with_head(transaction, keys, party, signed, reply, list(effects.boxes))
            sent = hashlib.sha256(body)
            connection.execute(
                "insert into reply values(?, ?, ?, ?, ?, ?, ?)",
                (self._owner, run, str(path), study, digest, sent.hexdigest(), stored),
            )
        if effects.close or effects.abandon:
            self._truncate_log()
            self._boxes.delete(_boxes_of(self._owner, run))
        return body, sent.digest()

    def dry_run(
        self, reservation: Reservation, run: str, reply: Mapping[str, Any], *, keys: Identity, party: str
    ) -> bytes:
        """The reply to a dry run, or the refusal that beginning the run would raise. Nothing is written: the reply
        carries the current head of the ledger, and the same ask again gets a new one."""
        with self.ledger.trial() as transaction:
            self._reserve(transaction, reservation, self._key(run))
        head = self.ledger.commit_head()
        return encode({**reply, "head": sign_head(keys, party, head.ledger, head.count, head.head)})

    def foresee(self, reservation: Reservation, *runs: str) -> list[Account]:
        """The accounts as they would be if these runs began, or the refusal of the first that could not."""
        with self.ledger.trial() as transaction:
            for run in runs:
                self._reserve(transaction, reservation, self._key(run))
            return self.ledger.summary()

    def abandon(self, run: str) -> None:
        """End a run here, whatever its coordinator says: free what was never drawn, delete its state and replies, and
        close its id for good, even if it never began. Repeating it changes nothing."""
        run = self._key(run)
        with self.ledger.transaction() as transaction:
            if not self._has_ended(transaction.connection, run):
                self._abandon(transaction, run)
                transaction.note(hashlib.sha256(encode(["abandon", run])).digest())
        self._truncate_log()
        self._boxes.delete(_boxes_of(self._owner, run))

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

    def _reserve(self, transaction: Transaction, reservation: Reservation, run: str) -> None:
        study, max_runs = reservation.study, reservation.max_runs
        if self._has_ended(transaction.connection, run):
            raise Refused(f"run {run} is closed and can't begin", code="closed", key="run")
        if max_runs is not None and self._begun(transaction.connection, study, run) >= max_runs:
            raise Refused(f"refused: study {study[:12]} is approved here for {max_runs} runs", code="approval")
        transaction.reserve(
            study=f"{reservation.title} {study[:12]}",
            run=run,
            draws=reservation.draws,
            unit=self._unit,
            neighbours=self._neighbours,
            dataset=self._dataset,
        )
        if reservation.period is not None:
            reservation.period.check(transaction, self._dataset, reservation.title)

    def _truncate_log(self) -> None:
        """Deleted values stay in the write-ahead log until it is truncated."""
        if not self.ledger.truncate_log():
            log.warning("%r is being read: its log keeps what was deleted until the next run ends", self.ledger)

    # Heads.

    def _with_head(
        self,
        transaction: Transaction,
        keys: Identity,
        party: str,
        what: list[Any],
        reply: Mapping[str, Any],
        digests: list[bytes],
    ) -> tuple[bytes, bytes]:
        """The reply with the head that the ledger has after this commit: as it is sent, and as it is stored, with
        `digests` in place of large boxes. The head covers the digests of all boxes."""
        boxes = reply.get("boxes", [])
        parts = {name: embed(value, depth=2) for name, value in reply.items() if name != "boxes"}
        transaction.note(hashlib.sha256(encode([*what, parts, digests])).digest())
        head = transaction.commit_head()
        whole: dict[str, Any] = {**parts, "head": sign_head(keys, party, head.ledger, head.count, head.head)}
        if not boxes:
            body = encode(whole)
            return body, body
        body = encode({**whole, "boxes": boxes})
        places = [place for place, box in enumerate(boxes) if len(box) >= LARGE_BYTES]
        if not places:
            return body, body
        kept = [digest if place in places else box for place, (digest, box) in enumerate(zip(digests, boxes))]
        return body, encode({**whole, "boxes": kept, _FILED: places})

    def check_head(self, seen: Head, verify: Callable[[], None]) -> None:
        """Compare a head that others saw of this owner's ledger. One that the ledger lacks freezes it, if `verify`
        finds that the owner signed it: then the file was restored from a backup."""
        if self.ledger.lacks_commit(seen["ledger"], seen["count"], seen["head"]):
            verify()
            self.ledger.remember_commit(seen["ledger"], seen["count"], seen["head"])

    def remembered(self, party: str, key: bytes) -> list[Head]:
        """The newest heads of another party's ledgers that this owner has seen."""
        return self.all_remembered().get((party, key), [])

    def all_remembered(self) -> dict[tuple[str, bytes], list[Head]]:
        """The newest heads of others' ledgers that this owner has seen, by party and pinned key."""
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

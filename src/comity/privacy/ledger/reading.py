"""What a ledger says of itself: heads, entries, runs, accounts, and whether all of it holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from comity.privacy.ledger.account import Account, account
from comity.privacy.ledger.chain import Entry, Row
from comity.privacy.ledger.check import check_whole, rows_of, stored_accounts
from comity.privacy.ledger.commits import CommitHead, find_commit, last_commits
from comity.privacy.ledger.file import OnDisk
from comity.privacy.ledger.memory import InMemory
from comity.privacy.ledger.rows import numbered
from comity.privacy.ledger.schema import sound
from comity.privacy.ledger.witness import Seen
from comity.privacy.unit import Neighbours, Unit


@dataclass(frozen=True, slots=True)
class Verified:
    """A chain that holds: how many entries, the last head, and what is missing when the ledger is frozen. `signed`
    where the owner's signature of an export was checked, and then `exported` is when it was made."""

    entries: int
    head: str
    frozen: str = ""
    signed: bool = False
    exported: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One run as a ledger knows it: `state` is open, or how it ended."""

    run: str
    dataset: str
    study: str
    state: str


class Readable:
    """A ledger as far as it is looked at."""

    __slots__ = ("_place",)
    _place: OnDisk | InMemory

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection with a consistent view, for reading."""
        return self._place.reading()

    def head(self) -> str:
        """The newest head of the entries: a hash that tells nothing by itself."""
        with self.reading() as connection, sound(self._place.name):
            query = "SELECT head FROM entries WHERE owner = ? ORDER BY seq DESC LIMIT 1"
            head: str = connection.execute(query, (self._place.owner,)).fetchone()[0]
        return head

    def commit_head(self) -> CommitHead:
        """The newest commit: whoever remembers it notices when this file is rolled back."""
        with self.reading() as connection, sound(self._place.name):
            last = last_commits(connection, self._place.owner)[0]
            query = "SELECT id FROM ledgers WHERE owner = ?"
            (ledger,) = connection.execute(query, (self._place.owner,)).fetchone()
        return CommitHead(ledger, last.count, last.head.hex())

    def knows_commit(self, count: int, head: str) -> bool:
        with self.reading() as connection, sound(self._place.name):
            return find_commit(connection, self._place.owner, count) == head

    def lacks_commit(self, ledger: str, count: int, head: str) -> bool:
        """Whether this is the ledger that is meant, and has no such commit."""
        with self.reading() as connection, sound(self._place.name):
            query = (
                "SELECT (SELECT head FROM commits WHERE owner = ?1 AND count = ?3) FROM ledgers "
                "WHERE owner = ?1 AND id = ?2"
            )
            found = connection.execute(query, numbered(self._place.owner, ledger, count)).fetchone()
            return found is not None and (found[0] is None or bytes(found[0]).hex() != head)

    def entries(self) -> list[Entry]:
        with self.reading() as connection, sound(self._place.name):
            return [Entry(*row) for row in self._rows(connection)]  # type: ignore[arg-type]

    def _rows(self, connection: sqlite3.Connection) -> Iterable[Row]:
        return rows_of(connection, self._place.owner)

    def runs(self) -> list[Run]:
        """Every run that reserved here, in the order of their ids."""
        with self.reading() as connection, sound(self._place.name):
            query = "SELECT run, dataset, study, state FROM runs WHERE owner = ? ORDER BY run"
            return [Run(*row) for row in connection.execute(query, (self._place.owner,))]

    def summary(self) -> list[Account]:
        """One account per dataset."""
        seen = self._place.seen()
        with self.reading() as connection, sound(self._place.name):
            frozen = self._frozen(connection, seen)
            simulated = isinstance(self._place, OnDisk) and self._place.simulated
            return [
                account(name, Unit(unit), Neighbours(neighbours), balance, frozen, simulated)
                for name, (unit, neighbours, balance) in stored_accounts(connection, self._place.owner).items()
            ]

    def verify(self) -> Verified:
        """Follows the chains from the first entry and derives every sum again; refuses where one differs."""
        seen = self._place.seen()
        with self.reading() as connection:
            count, head = check_whole(connection, self._place.owner, self._place.name)
            frozen = self._frozen(connection, seen)
        self._place.try_writing()
        return Verified(count, head, frozen)

    def _frozen(self, connection: sqlite3.Connection, seen: Seen | None) -> str:
        durable: str = connection.execute(
            "SELECT frozen FROM ledgers WHERE owner = ?", (self._place.owner,)
        ).fetchone()[0]
        return durable or self._place.lost(connection, seen)

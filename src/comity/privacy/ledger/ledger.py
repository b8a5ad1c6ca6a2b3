"""One owner's privacy budget, durable: reserve, then draw; drawing is spending; it refuses.

Promise    For each dataset, what was drawn and what is reserved stays within the grant, in the dataset's unit
           and relation, whatever mixture of processes and threads asks and at whatever moment they are
           killed. A debit is durable before its permit's noise can leave. What was drawn is never given back.
Against    Crashes, races, copies of the object (it travels by path), a file edited or restored from a backup.
           Not against the owner: whoever may write the file, the witness and the peers' memory may also lie.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from comity.entropy import fresh_seed
from comity.errors import BadInput, Refused
from comity.privacy.composition import Grant
from comity.privacy.currency import Currency
from comity.privacy.ledger.account import Account, account
from comity.privacy.ledger.chain import FIELDS, Entry, Row, row_from
from comity.privacy.ledger.check import check_whole, replayed, rows_of, stored_accounts
from comity.privacy.ledger.commits import CommitHead, find_commit, last_commits
from comity.privacy.ledger.file import OnDisk
from comity.privacy.ledger.memory import InMemory
from comity.privacy.ledger.schema import sound
from comity.privacy.ledger.shared import Seat, SharedFile
from comity.privacy.ledger.transaction import Draw, Transaction
from comity.privacy.ledger.witness import Seen, Witness
from comity.privacy.loss import Loss
from comity.privacy.permit import Permit
from comity.privacy.unit import Neighbours, Unit

__all__ = [
    "Account",
    "CommitHead",
    "Currency",
    "Draw",
    "Entry",
    "Ledger",
    "Run",
    "Transaction",
    "Verified",
    "verify_export",
]

_FORMATS = ("comity-ledger-1", "comity-ledger-2")


@dataclass(frozen=True, slots=True)
class Verified:
    """A chain that holds: how many entries, the last head, and what is missing when the ledger is frozen."""

    entries: int
    head: str
    frozen: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One run as a ledger knows it: `state` is open, or how it ended."""

    run: str
    dataset: str
    study: str
    state: str


@dataclass(frozen=True, slots=True)
class _Founding:
    dataset: str
    grant: Grant | None
    unit: Unit
    neighbours: Neighbours
    currency: Currency | None = None
    simulated: bool = False


class _Undone(Exception):
    """Ends a trial."""


class Ledger:
    """A budget in a file (`create`, then `Ledger(path)`), or in memory for a simulated party (`in_memory`).

    Copying it gives the same ledger, and pickling sends its path, so that a cross-validation over an
    estimator that is bound to it is debited for every fit.
    """

    __slots__ = ("__weakref__", "_founding", "_place")
    _place: OnDisk | InMemory
    _founding: _Founding | None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._place = OnDisk(path)
        self._founding = None

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        dataset: str,
        grant: Grant,
        unit: Unit,
        neighbours: Neighbours,
        currency: Currency | None = None,
        simulated: bool = False,
    ) -> Ledger:
        """A new file with one dataset and its first grant; an existing file is refused.

        `currency` is what the grant is counted in, by default pure ε without a δ and Gaussian DP with one. A
        `simulated` ledger has no witness: it is a file so that a simulation can be resumed, and guards nobody.
        """
        if grant is None:
            raise BadInput(f"{path}: a ledger in a file needs a grant", code="grant")
        founding = _Founding(dataset, grant, unit, neighbours, currency, simulated)
        witness: Witness | None = None
        try:
            with OnDisk.founding(path) as connection:
                first = Transaction(connection, owner=OnDisk.owner, where=str(path), lost="")
                _found(first, founding)
                head = first.finish()
                assert head is not None
                if not simulated:
                    # Before the ledger is there: a file without its witness was brought from somewhere else.
                    witness = Witness(head.ledger)
                    witness.prepare()
                    witness.set(Seen(head.count, head.head))
        except BaseException:
            if witness is not None:
                witness.remove()
            raise
        return cls(path)

    @classmethod
    def in_memory(
        cls,
        *,
        unit: Unit,
        neighbours: Neighbours,
        dataset: str = "simulated",
        grant: Grant | None = None,
        currency: Currency | None = None,
    ) -> Ledger:
        """A ledger that ends with the process; without a grant it only counts. Opened at its first use."""
        ledger = cls.__new__(cls)
        ledger._place = InMemory(dataset)
        ledger._founding = _Founding(dataset, grant, unit, neighbours, currency, simulated=True)
        return ledger

    @classmethod
    def seated(
        cls,
        file: SharedFile,
        number: int,
        *,
        dataset: str,
        grant: Grant | None,
        unit: Unit,
        neighbours: Neighbours,
        currency: Currency | None = None,
    ) -> Ledger:
        """The ledger of a simulated party in a file that it shares with the others of its run."""
        ledger = cls.__new__(cls)
        ledger._place = Seat(dataset, file, number)
        ledger._founding = _Founding(dataset, grant, unit, neighbours, currency, simulated=True)
        return ledger

    @property
    def path(self) -> Path | None:
        return self._place.path if isinstance(self._place, OnDisk) else None

    @property
    def owner(self) -> str:
        """What rows of this ledger in shared tables are marked with."""
        return str(self._place.owner)

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection with a consistent view, for reading."""
        if isinstance(self._place, InMemory) and self._founding is not None and not self._place.is_held:
            with self.transaction():
                pass
        return self._place.reading()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Everything written inside commits together and durably, or not at all when anything is raised."""
        place = self._place
        transaction: Transaction | None = None
        try:
            with place.writing() as connection:
                transaction = Transaction(
                    connection, owner=place.owner, where=place.name, lost=place.lost(connection, place.seen())
                )
                if self._founding is not None and not transaction.is_founded:
                    _found(transaction, self._founding)
                else:
                    place.check(connection)
                yield transaction
                head = transaction.finish()
        except BaseException:
            if transaction is not None:
                transaction.rolled_back()
            raise
        transaction.committed()
        self._founding = None
        if head is not None:
            place.witness(head, thawed=transaction.thawed)

    @contextmanager
    def trial(self) -> Iterator[Transaction]:
        """A transaction of which nothing stays: it refuses what would be refused, and inside it the accounts are those
        that would be."""
        with suppress(_Undone), self.transaction() as transaction:
            yield transaction
            raise _Undone

    # Each of these is a transaction of its own.

    def add_dataset(
        self, *, dataset: str, grant: Grant, unit: Unit, neighbours: Neighbours, currency: Currency | None = None
    ) -> None:
        with self.transaction() as transaction:
            transaction.add_dataset(dataset=dataset, grant=grant, unit=unit, neighbours=neighbours, currency=currency)

    def grant_more(self, loss: Grant, why: str, *, dataset: str | None = None) -> None:
        with self.transaction() as transaction:
            transaction.grant_more(loss, why, dataset=dataset)

    def reserve(
        self,
        *,
        study: str,
        run: str,
        draws: Sequence[Draw],
        unit: Unit,
        neighbours: Neighbours,
        dataset: str | None = None,
    ) -> None:
        with self.transaction() as transaction:
            transaction.reserve(study=study, run=run, draws=draws, unit=unit, neighbours=neighbours, dataset=dataset)

    def draw(self, *, run: str, release: str, index: int, step: str) -> Permit:
        with self.transaction() as transaction:
            return transaction.draw(run=run, release=release, index=index, step=step)

    def void(self, run: str) -> None:
        with self.transaction() as transaction:
            transaction.void(run)

    def close(self, run: str) -> None:
        with self.transaction() as transaction:
            transaction.close(run)

    def abandon(self, run: str) -> None:
        with self.transaction() as transaction:
            transaction.abandon(run)

    def remember_commit(self, ledger: str, count: int, head: str) -> None:
        with self.transaction() as transaction:
            transaction.remember_commit(ledger, count, head)

    def write_off(self, loss: Loss | Literal["all"], why: str) -> None:
        with self.transaction() as transaction:
            transaction.write_off(loss, why)

    # Looking

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
            found = connection.execute(query, (self._place.owner, ledger, count)).fetchone()
            return found is not None and (found[0] is None or bytes(found[0]).hex() != head)

    def truncate_log(self) -> bool:
        """Empties the write-ahead log, where deleted rows outlive their deletion; False while others read from it."""
        return self._place.truncate_log()

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

    def export(self, to: str | os.PathLike[str] | TextIO) -> Verified:
        """Writes all entries as JSON, one line each, to a file or a stream; `verify_export` checks them anywhere."""
        if not isinstance(to, str | os.PathLike):
            return self._exported(to)
        try:
            with Path(to).open("w", encoding="utf-8") as file:
                return self._exported(file)
        except OSError as error:
            raise BadInput(f"{to}: the export can't be written ({error.strerror})", code="export") from error

    def _exported(self, file: TextIO) -> Verified:
        seen, count, head = self._place.seen(), 0, ""
        file.write(f'{{"format": "{_FORMATS[-1]}", "entries": [')
        with self.reading() as connection, sound(self._place.name):
            for row in self._rows(connection):
                file.write((",\n" if count else "\n") + json.dumps(dict(zip(FIELDS, row, strict=True))))
                count, head = count + 1, str(row[-1])
            frozen = self._frozen(connection, seen)
        file.write(f'\n], "head": "{head}"}}\n')
        return Verified(count, head, frozen)

    def _frozen(self, connection: sqlite3.Connection, seen: Seen | None) -> str:
        durable: str = connection.execute(
            "SELECT frozen FROM ledgers WHERE owner = ?", (self._place.owner,)
        ).fetchone()[0]
        return durable or self._place.lost(connection, seen)

    # Travelling

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[type[Ledger], tuple[str]]:
        if isinstance(self._place, InMemory):
            raise Refused(
                f"the ledger of {self._place.name} is in memory and can't be sent to another process, which "
                "would spend a copy of it: give it a path (comity ledger init)",
                code="ledger",
            )
        return type(self), (str(self._place.path),)

    def __repr__(self) -> str:
        return f"Ledger({self._place.name!r})" if self.path else f"Ledger.in_memory({self._place.name!r})"


def _found(transaction: Transaction, founding: _Founding) -> None:
    transaction.found(
        nonce=fresh_seed().hex(),
        dataset=founding.dataset,
        grant=founding.grant,
        unit=founding.unit,
        neighbours=founding.neighbours,
        currency=founding.currency,
        simulated=founding.simulated,
    )


def verify_export(exported: object) -> Verified:
    """Checks an exported ledger: its chain, and that each entry was allowed after those before it."""
    where = "export"
    if not isinstance(exported, Mapping) or exported.get("format") not in _FORMATS:
        raise BadInput(f"expected an exported ledger of format {' or '.join(_FORMATS)}: export it again", code="export")
    if not isinstance(exported.get("entries"), list):
        raise BadInput(
            "expected an exported ledger, found one without a list of entries: export it again", code="export"
        )
    rows = [row_from(fields, where=where) for fields in exported["entries"]]
    with sound(where):
        replay, count, head = replayed(rows, where)
    if exported.get("head") != head:
        raise Refused("export: the last head is not the one stated, so entries are missing at the end", code="chain")
    return Verified(count, head, replay.frozen)

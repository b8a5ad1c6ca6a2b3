"""One owner's privacy budget, durable: a run reserves, then draws; drawing is spending; the ledger refuses the rest.

Promise    For each dataset, what was drawn and what is reserved stays within the grant, in the dataset's unit and
           relation, for any mixture of processes and threads, and at whatever moment they are killed. A debit is
           durable before its permit's noise can leave. What was drawn is never given back.
Against    Crashes, races, copies of the object (it travels by path), a file that was edited or restored from a backup.
           Not against the owner, who may write the file, the witness and the peers' memory.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from comity.entropy import fresh_seed
from comity.errors import BadInput, Refused
from comity.files import open_private
from comity.privacy.currency import Currency, Grant
from comity.privacy.ledger.balance import Account
from comity.privacy.ledger.chain import CommitHead, Entry
from comity.privacy.ledger.draw import Draw
from comity.privacy.ledger.history import Moment, replay_history
from comity.privacy.ledger.storage import FileStorage, MemoryStorage, SharedFile, SharedStorage
from comity.privacy.ledger.tables import (
    entry_rows,
    find_commit,
    last_commits,
    numbered_parameters,
    stored_accounts,
    translate_sqlite_errors,
)
from comity.privacy.ledger.transaction import Transaction
from comity.privacy.ledger.verification import Sign, Verified, check_fully, write_export
from comity.privacy.ledger.witness import Seen, Witness
from comity.privacy.loss import Loss
from comity.privacy.permit import Permit
from comity.privacy.unit import Neighbours, Unit
from comity.representation import html_table


@dataclass(frozen=True, slots=True)
class Run:
    """One run as a ledger knows it: `state` is open, or how it ended."""

    run: str
    dataset: str
    study: str
    state: str


@dataclass(frozen=True, slots=True)
class _FirstGrant:
    """The first entry of a ledger that is still to be created."""

    dataset: str
    grant: Grant | None
    unit: Unit
    neighbours: Neighbours
    currency: Currency | None = None
    simulated: bool = False

    def write(self, transaction: Transaction) -> None:
        transaction.create(
            nonce=fresh_seed().hex(),
            dataset=self.dataset,
            grant=self.grant,
            unit=self.unit,
            neighbours=self.neighbours,
            currency=self.currency,
            simulated=self.simulated,
        )


class _RollBack(Exception):
    """Ends a trial."""


class Ledger:
    """A budget in a file (`create`, then `Ledger(path)`), or in memory for a simulated party (`in_memory`).

        from comity.privacy import Approx, Neighbours, Unit

        grant = {"grant": Approx(3, 1e-6), "unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}
        ledger = comity.Ledger.create("visits.ledger", dataset="visits", **grant)
        ledger.summary()

    A copy is the same ledger, and pickling sends its path, so a cross-validation over an estimator that is bound to a
    ledger debits every fit.
    """

    __slots__ = ("__weakref__", "_first", "_storage")
    _storage: FileStorage | MemoryStorage
    _first: _FirstGrant | None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._storage = FileStorage(path)
        self._first = None

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
        """Creates a file with one dataset and its first grant; refuses a file that exists.

        `currency` is what the grant is counted in, by default pure ε without a δ and Gaussian DP with one. A
        `simulated` ledger has no witness: its file lets a simulation be resumed, and protects nobody.
        """
        if grant is None:
            raise BadInput(f"{path}: a ledger in a file needs a grant", code="grant")
        first = _FirstGrant(dataset, grant, unit, neighbours, currency, simulated)
        witness: Witness | None = None
        try:
            with FileStorage.create(path) as connection:
                transaction = Transaction(connection, owner=FileStorage.owner, where=str(path), missing="")
                first.write(transaction)
                head = transaction.finish()
                assert head is not None
                if not simulated:
                    # The witness comes first: a file without one counts as brought from another machine.
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
        return cls._simulated(MemoryStorage(dataset), dataset, grant, unit, neighbours, currency)

    @classmethod
    def in_shared_file(
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
        """The ledger of simulated party `number` in a file that all parties of its run share."""
        return cls._simulated(SharedStorage(dataset, file, number), dataset, grant, unit, neighbours, currency)

    @classmethod
    def _simulated(
        cls,
        storage: MemoryStorage,
        dataset: str,
        grant: Grant | None,
        unit: Unit,
        neighbours: Neighbours,
        currency: Currency | None,
    ) -> Ledger:
        ledger = cls.__new__(cls)
        ledger._storage = storage
        ledger._first = _FirstGrant(dataset, grant, unit, neighbours, currency, simulated=True)
        return ledger

    @property
    def path(self) -> Path | None:
        return self._storage.path if isinstance(self._storage, FileStorage) else None

    @property
    def owner(self) -> str:
        """The mark of this ledger's rows in shared tables."""
        return str(self._storage.owner)

    # Writing

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Everything written inside commits together and durably, or not at all when anything is raised."""
        storage = self._storage
        transaction: Transaction | None = None
        try:
            with storage.writing() as connection:
                missing = storage.missing_head(connection, storage.seen())
                transaction = Transaction(connection, owner=storage.owner, where=storage.name, missing=missing)
                if self._first is not None and not transaction.is_created:
                    self._first.write(transaction)
                else:
                    storage.check(connection)
                yield transaction
                head = transaction.finish()
        except BaseException:
            if transaction is not None:
                transaction.mark_rolled_back()
            raise
        transaction.mark_committed()
        self._first = None
        if head is not None:
            storage.record_commit(head, unfrozen=transaction.unfrozen)

    @contextmanager
    def trial(self) -> Iterator[Transaction]:
        """A transaction that is always rolled back: it refuses what would be refused, and shows the accounts as they
        would become."""
        with suppress(_RollBack), self.transaction() as transaction:
            yield transaction
            raise _RollBack

    # Each of these is one transaction.

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

    def truncate_log(self) -> bool:
        """Empties the write-ahead log, in which deleted rows outlive their deletion; False while others read it."""
        return self._storage.truncate_log()

    # Reading

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection with a consistent view, for reading."""
        storage = self._storage
        if isinstance(storage, MemoryStorage) and self._first is not None and not storage.is_in_transaction:
            with self.transaction():
                pass
        return storage.reading()

    @contextmanager
    def _querying(self) -> Iterator[sqlite3.Connection]:
        with self.reading() as connection, translate_sqlite_errors(self._storage.name):
            yield connection

    def head(self) -> str:
        """The newest head of the entries: a hash that reveals nothing by itself."""
        with self._querying() as connection:
            query = "SELECT head FROM entries WHERE owner = ? ORDER BY seq DESC LIMIT 1"
            head: str = connection.execute(query, (self._storage.owner,)).fetchone()[0]
        return head

    def commit_head(self) -> CommitHead:
        """The newest commit: anyone who remembers it notices when this file is rolled back."""
        with self._querying() as connection:
            last = last_commits(connection, self._storage.owner)[0]
            query = "SELECT id FROM ledgers WHERE owner = ?"
            (ledger,) = connection.execute(query, (self._storage.owner,)).fetchone()
        return CommitHead(ledger, last.count, last.head.hex())

    def knows_commit(self, count: int, head: str) -> bool:
        with self._querying() as connection:
            return find_commit(connection, self._storage.owner, count) == head

    def lacks_commit(self, ledger: str, count: int, head: str) -> bool:
        """Whether this is the ledger with the id `ledger` and has no such commit."""
        with self._querying() as connection:
            query = (
                "SELECT (SELECT head FROM commits WHERE owner = ?1 AND count = ?3) FROM ledgers "
                "WHERE owner = ?1 AND id = ?2"
            )
            values = numbered_parameters(self._storage.owner, ledger, count)
            found = connection.execute(query, values).fetchone()
            return found is not None and (found[0] is None or bytes(found[0]).hex() != head)

    def entries(self) -> list[Entry]:
        with self._querying() as connection:
            return [Entry(*row) for row in entry_rows(connection, self._storage.owner)]  # type: ignore[arg-type]

    def history(self) -> list[Moment]:
        """What was granted, spent and left of each dataset after each event, derived from the entries alone."""
        with self._querying() as connection:
            return replay_history(entry_rows(connection, self._storage.owner), self._storage.name)

    def runs(self) -> list[Run]:
        """Every run that reserved here, in the order of their ids."""
        with self._querying() as connection:
            query = "SELECT run, dataset, study, state FROM runs WHERE owner = ? ORDER BY run"
            return [Run(*row) for row in connection.execute(query, (self._storage.owner,))]

    def summary(self) -> list[Account]:
        """One account per dataset."""
        storage, seen = self._storage, self._storage.seen()
        with self._querying() as connection:
            frozen = self._frozen(connection, seen)
            simulated = isinstance(storage, FileStorage) and storage.simulated
            return [
                Account.of(name, Unit(unit), Neighbours(neighbours), balance, frozen=frozen, simulated=simulated)
                for name, (unit, neighbours, balance) in stored_accounts(connection, storage.owner).items()
            ]

    def verify(self) -> Verified:
        """Follows the chains from the first entry and derives every sum again; refuses any difference."""
        seen = self._storage.seen()
        with self.reading() as connection:
            count, head = check_fully(connection, self._storage.owner, self._storage.name)
            frozen = self._frozen(connection, seen)
        self._storage.check_writable()
        return Verified(count, head, frozen)

    def export(self, to: str | os.PathLike[str] | TextIO, sign: Sign | None = None) -> Verified:
        """Writes all entries as JSON, one line each, to a file or a stream; `verify_export` checks them anywhere.

        `sign` is the owner's signature (`comity.study.results.signatures`). Without it nothing shows that no entry
        is missing.
        """
        if not isinstance(to, str | os.PathLike):
            return self._write_export(to, sign)
        try:
            with os.fdopen(open_private(to, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
                return self._write_export(file, sign)
        except OSError as error:
            raise BadInput(f"{to}: the export can't be written ({error.strerror})", code="export") from error

    def _write_export(self, file: TextIO, sign: Sign | None) -> Verified:
        seen = self._storage.seen()
        with self._querying() as connection:
            count, head = write_export(entry_rows(connection, self._storage.owner), file, sign)
            frozen = self._frozen(connection, seen)
        return Verified(count, head, frozen)

    def _frozen(self, connection: sqlite3.Connection, seen: Seen | None) -> str:
        query = "SELECT frozen FROM ledgers WHERE owner = ?"
        stored: str = connection.execute(query, (self._storage.owner,)).fetchone()[0]
        return stored or self._storage.missing_head(connection, seen)

    # Copying

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[type[Ledger], tuple[str]]:
        if isinstance(self._storage, MemoryStorage):
            raise Refused(
                f"the ledger of {self._storage.name} is in memory and can't be sent to another process, which "
                "would spend a copy of it: give it a path (comity ledger init)",
                code="ledger",
            )
        return type(self), (str(self._storage.path),)

    def __repr__(self) -> str:
        return f"Ledger({self._storage.name!r})" if self.path else f"Ledger.in_memory({self._storage.name!r})"

    def _repr_html_(self) -> str:
        """Its accounts, for a notebook."""
        return html_table(repr(self), ("account",), [(account,) for account in self.summary()])

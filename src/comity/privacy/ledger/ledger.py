"""One owner's privacy budget, durable: reserve, then draw; drawing is spending; it refuses.

Promise    For each dataset, what was drawn and what is reserved stays within the grant, in the dataset's unit
           and relation, whatever mixture of processes and threads asks and at whatever moment they are
           killed. A debit is durable before its permit's noise can leave. What was drawn is never given back.
Against    Crashes, races, copies of the object (it travels by path), a file edited or restored from a backup.
           Not against the owner: whoever may write the file, the witness and the peers' memory may also lie.
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
from comity.privacy.composition import Grant
from comity.privacy.currency import Currency
from comity.privacy.ledger.account import Account
from comity.privacy.ledger.chain import Entry
from comity.privacy.ledger.commits import CommitHead
from comity.privacy.ledger.export import Sign, verify_export, write_entries
from comity.privacy.ledger.file import OnDisk
from comity.privacy.ledger.memory import InMemory
from comity.privacy.ledger.reading import Readable, Run, Verified
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


class Ledger(Readable):
    """A budget in a file (`create`, then `Ledger(path)`), or in memory for a simulated party (`in_memory`).

    Copying it gives the same ledger, and pickling sends its path, so that a cross-validation over an
    estimator that is bound to it is debited for every fit.
    """

    __slots__ = ("__weakref__", "_founding")
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
        return super().reading()

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
        """A transaction that is always undone: it refuses what would be refused, and inside it the accounts are what
        they would become."""
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

    def truncate_log(self) -> bool:
        """Empties the write-ahead log, where deleted rows outlive their deletion; False while others read from it."""
        return self._place.truncate_log()

    def export(self, to: str | os.PathLike[str] | TextIO, sign: Sign | None = None) -> Verified:
        """Writes all entries as JSON, one line each, to a file or a stream; `verify_export` checks them anywhere.
        `sign` is the owner's (`comity.study.results.signed_export`): without it nothing shows that no entry is
        missing."""
        if not isinstance(to, str | os.PathLike):
            return self._exported(to, sign)
        try:
            with os.fdopen(open_private(to, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
                return self._exported(file, sign)
        except OSError as error:
            raise BadInput(f"{to}: the export can't be written ({error.strerror})", code="export") from error

    def _exported(self, file: TextIO, sign: Sign | None) -> Verified:
        seen = self._place.seen()
        with self.reading() as connection, sound(self._place.name):
            count, head = write_entries(self._rows(connection), file, sign)
            frozen = self._frozen(connection, seen)
        return Verified(count, head, frozen)

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

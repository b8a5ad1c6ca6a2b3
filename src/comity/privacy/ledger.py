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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from comity.entropy import fresh_seed
from comity.errors import BadInput, Malformed, Refused
from comity.privacy.chain import FIELDS, Entry, entry_from, follow
from comity.privacy.ledger_account import Account, Balance, Grant, account, parse_grant, parse_spent
from comity.privacy.ledger_file import OnDisk
from comity.privacy.ledger_memory import InMemory
from comity.privacy.ledger_replay import Replay
from comity.privacy.ledger_shared import Seat, SharedFile
from comity.privacy.ledger_transaction import Draw, Transaction
from comity.privacy.ledger_witness import Seen
from comity.privacy.loss import Loss
from comity.privacy.permit import Permit
from comity.privacy.unit import Neighbours, Unit

__all__ = ["Account", "Draw", "Entry", "Ledger", "Transaction", "Verified", "verify_export"]

_FORMAT = "comity-ledger-1"
_COLUMNS = ", ".join(f'"{name}"' for name in FIELDS)
_ENTRIES = f"SELECT {_COLUMNS} FROM entries WHERE owner = ? ORDER BY seq"


@dataclass(frozen=True, slots=True)
class Verified:
    """A chain that holds: how many entries, the last head, and the missing head when the ledger is frozen."""

    entries: int
    head: str
    frozen: str = ""


@dataclass(frozen=True, slots=True)
class _Founding:
    dataset: str
    grant: Grant | None
    unit: Unit
    neighbours: Neighbours


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
        cls, path: str | os.PathLike[str], *, dataset: str, grant: Grant, unit: Unit, neighbours: Neighbours
    ) -> Ledger:
        """A new file with one dataset and its first grant; an existing file is refused."""
        if grant is None:
            raise BadInput(f"{path}: a ledger in a file needs a grant", code="grant")
        with OnDisk.founding(path) as connection:
            first = Transaction(connection, owner=OnDisk.owner, where=str(path), lost="")
            _found(first, _Founding(dataset, grant, unit, neighbours))
        return cls(path)

    @classmethod
    def in_memory(
        cls, *, unit: Unit, neighbours: Neighbours, dataset: str = "simulated", grant: Grant | None = None
    ) -> Ledger:
        """A ledger that ends with the process; without a grant it only counts. Opened at its first use."""
        ledger = cls.__new__(cls)
        ledger._place = InMemory(dataset)
        ledger._founding = _Founding(dataset, grant, unit, neighbours)
        return ledger

    @classmethod
    def seated(
        cls, file: SharedFile, number: int, *, dataset: str, grant: Grant, unit: Unit, neighbours: Neighbours
    ) -> Ledger:
        """The ledger of a simulated party in a file that it shares with the others of its run."""
        ledger = cls.__new__(cls)
        ledger._place = Seat(dataset, file, number)
        ledger._founding = _Founding(dataset, grant, unit, neighbours)
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
                yield transaction
                last = transaction.last() if transaction.appended else None
        except BaseException:
            if transaction is not None:
                transaction.rolled_back()
            raise
        transaction.committed()
        self._founding = None
        if last is not None:
            place.witness(*last, thawed=transaction.thawed)

    # Each of these is a transaction of its own.

    def add_dataset(self, *, dataset: str, grant: Grant, unit: Unit, neighbours: Neighbours) -> None:
        with self.transaction() as transaction:
            transaction.add_dataset(dataset=dataset, grant=grant, unit=unit, neighbours=neighbours)

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

    def remember(self, head: str) -> None:
        with self.transaction() as transaction:
            transaction.remember(head)

    def write_off(self, loss: Loss | Literal["all"], why: str) -> None:
        with self.transaction() as transaction:
            transaction.write_off(loss, why)

    # Looking

    def head(self) -> str:
        """The newest head: a hash that tells nothing by itself, and lets others notice a roll-back."""
        with self.reading() as connection:
            query = "SELECT head FROM entries WHERE owner = ? ORDER BY seq DESC LIMIT 1"
            head: str = connection.execute(query, (self._place.owner,)).fetchone()[0]
        return head

    def entries(self) -> list[Entry]:
        with self.reading() as connection:
            return [Entry(*row) for row in connection.execute(_ENTRIES, (self._place.owner,))]

    def summary(self) -> list[Account]:
        """One account per dataset."""
        seen = self._place.seen()
        with self.reading() as connection:
            frozen = self._frozen(connection, seen)
            return [
                account(name, Unit(unit), Neighbours(neighbours), balance, frozen)
                for name, (unit, neighbours, balance) in _stored_accounts(connection, self._place.owner).items()
            ]

    def verify(self) -> Verified:
        """Follows the chain from the first entry and derives every sum again; refuses where one differs."""
        where = self._place.name
        replay, count, head, seen = Replay(where), 0, "", self._place.seen()
        with self.reading() as connection:
            owner = self._place.owner
            rows = connection.execute(_ENTRIES, (owner,))
            for entry in follow((Entry(*row) for row in rows), where=where):
                replay.take(entry)
                count, head = count + 1, entry.head
            runs = "SELECT run, dataset, study, state FROM runs WHERE owner = ?"
            stored_runs = {row[0]: row[1:] for row in connection.execute(runs, (owner,))}
            stored = connection.execute("SELECT frozen FROM ledgers WHERE owner = ?", (owner,)).fetchone()
            same = (
                _stored_accounts(connection, owner) == replay.accounts
                and stored_runs == replay.runs
                and stored == (replay.frozen,)
            )
            frozen = self._frozen(connection, seen)
        if not same:
            raise Refused(
                f"{where}: the sums do not follow from the {count} entries. Entries are missing at the end "
                "or sums were changed by something other than Comity; restore the last good copy",
                code="chain",
            )
        return Verified(count, head, frozen)

    def export(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """All entries as plain values, also as JSON in `path`; `verify_export` checks them anywhere."""
        entries = [asdict(entry) for entry in self.entries()]
        exported = {"format": _FORMAT, "head": entries[-1]["head"], "entries": entries}
        if path is not None:
            try:
                Path(path).write_text(json.dumps(exported, indent=1), "utf-8")
            except OSError as error:
                raise BadInput(f"{path}: the export can't be written ({error.strerror})", code="export") from error
        return exported

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
    )


def verify_export(exported: Mapping[str, Any]) -> Verified:
    """Checks an exported ledger: its chain, and that each entry was allowed after those before it."""
    where = "export"
    if exported.get("format") != _FORMAT or not isinstance(exported.get("entries"), list):
        raise Malformed(f"expected an exported ledger of format {_FORMAT}")
    replay, count, head = Replay(where), 0, ""
    for entry in follow((entry_from(fields, where=where) for fields in exported["entries"]), where=where):
        replay.take(entry)
        count, head = count + 1, entry.head
    if exported.get("head") != head:
        raise Refused("export: the last head is not the one stated, so entries are missing at the end", code="chain")
    return Verified(count, head, replay.frozen)


def _stored_accounts(connection: sqlite3.Connection, owner: int) -> dict[str, tuple[str, str, Balance]]:
    rows = connection.execute(
        "SELECT dataset, unit, neighbours, granted, spent, reserved FROM accounts WHERE owner = ? ORDER BY dataset",
        (owner,),
    )
    return {
        name: (unit, neighbours, Balance(parse_grant(granted), parse_spent(spent), parse_spent(reserved)))
        for name, unit, neighbours, granted, spent, reserved in rows
    }

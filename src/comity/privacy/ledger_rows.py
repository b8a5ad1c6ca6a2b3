"""The rows of one ledger in its database: entries appended with their heads, and the sums beside them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from comity.errors import BadInput, ComityError, Malformed
from comity.privacy.chain import FIELDS, Row, next_head
from comity.privacy.ledger_account import (
    Balance,
    Grant,
    grant_text,
    parse_grant,
    parse_spent,
    spent_text,
)
from comity.privacy.unit import Neighbours, Unit

_COLUMNS = ", ".join(["owner", *(f'"{name}"' for name in FIELDS)])
_INSERT = f"INSERT INTO entries ({_COLUMNS}) VALUES (?{', ?' * len(FIELDS)})"


class Rows:
    """What a transaction reads and writes, of the ledger `owner` alone."""

    def __init__(self, connection: sqlite3.Connection, owner: int, where: str) -> None:
        self._connection = connection
        self._owner = owner
        self._where = where
        self.appended = False

    def append(self, kind: str, rows: Sequence[Row]) -> None:
        """Writes entries of one kind behind the last; the first of all follows the nonce that it carries."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        seq, head = (0, str(rows[0][-1])) if kind == "create" else self.last()
        full: list[Row] = []
        for row in rows:
            seq += 1
            stored = (seq, kind, *row[:-1], time, row[-1])
            head = next_head(head, stored)
            full.append((self._owner, *stored, head))
        self._connection.executemany(_INSERT, full)
        self.appended = True

    def last(self) -> tuple[int, str]:
        """Number and head of the newest entry."""
        seq, head = self._one("SELECT seq, head FROM entries WHERE owner = ?1 ORDER BY seq DESC LIMIT 1")
        return seq, head

    def found(self, nonce: str) -> None:
        self._do("INSERT INTO ledgers VALUES (?1, ?2, '')", nonce)

    def is_founded(self) -> bool:
        return self._one("SELECT 1 FROM ledgers WHERE owner = ?1") is not None

    def datasets(self) -> list[str]:
        return [name for (name,) in self._all("SELECT dataset FROM accounts WHERE owner = ?1 ORDER BY dataset")]

    def open_account(self, dataset: str, unit: Unit, neighbours: Neighbours, grant: Grant | None) -> None:
        zero = spent_text(Balance.opened(grant).spent)
        values = (str(unit), str(neighbours), grant_text(grant), zero)
        self._do("INSERT INTO accounts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)", dataset, *values)

    def account(self, dataset: str) -> tuple[Unit, Neighbours, Balance]:
        row = self._one(
            "SELECT unit, neighbours, granted, spent, reserved FROM accounts WHERE owner = ?1 AND dataset = ?2",
            dataset,
        )
        if row is None:
            known = ", ".join(self.datasets())
            raise BadInput(f"{self._where} has no dataset {dataset}; it holds {known}", code="dataset", key="dataset")
        unit, neighbours, granted, spent, reserved = row
        balance = Balance(parse_grant(granted), parse_spent(spent), parse_spent(reserved))
        return Unit(unit), Neighbours(neighbours), balance

    def settle(self, dataset: str, balance: Balance) -> None:
        self._do(
            "UPDATE accounts SET granted = ?3, spent = ?4, reserved = ?5 WHERE owner = ?1 AND dataset = ?2",
            dataset,
            grant_text(balance.granted),
            spent_text(balance.spent),
            spent_text(balance.reserved),
        )

    def open_run(self, run: str, dataset: str, study: str) -> None:
        self._do("INSERT INTO runs VALUES (?1, ?2, ?3, ?4, 'open')", run, dataset, study)

    def end_run(self, run: str, state: str) -> None:
        self._do("UPDATE runs SET state = ?3 WHERE owner = ?1 AND run = ?2", run, state)

    def run(self, run: str) -> tuple[str, str, str] | None:
        """Dataset, study and state of a run."""
        query = "SELECT dataset, study, state FROM runs WHERE owner = ?1 AND run = ?2"
        found: tuple[str, str, str] | None = self._one(query, run)
        return found

    def open_runs(self) -> list[str]:
        rows = self._all("SELECT run FROM runs WHERE owner = ?1 AND state = 'open' ORDER BY run")
        return [run for (run,) in rows]

    def draw(self, run: str, release: str, index: int) -> dict[str, tuple[str, ...]]:
        """The entries about one draw, by kind."""
        rows = self._all(
            "SELECT kind, dataset, unit, neighbours, mechanism, sensitivity, loss, study FROM entries "
            'WHERE owner = ?1 AND run = ?2 AND release = ?3 AND "index" = ?4',
            run,
            release,
            index,
        )
        return {row[0]: row[1:] for row in rows}

    def reserved(self, run: str) -> list[Row]:
        """The reservation of a run, in its order and in the form of `row`."""
        return self._all(
            "SELECT dataset, unit, neighbours, mechanism, sensitivity, loss, study, run, release, "
            '"index", step, note FROM entries INDEXED BY one_draw '
            "WHERE owner = ?1 AND run = ?2 AND \"index\" IS NOT NULL AND kind = 'reserve' ORDER BY seq",
            run,
        )

    def undrawn(self, run: str) -> list[str]:
        """The losses that a run reserved and did not draw."""
        rows = self._all(
            "SELECT loss FROM entries AS promise INDEXED BY one_draw "
            'WHERE owner = ?1 AND run = ?2 AND "index" IS NOT NULL '
            "AND kind = 'reserve' AND NOT EXISTS (SELECT 1 FROM entries AS debit WHERE debit.owner = ?1 "
            'AND debit.run = ?2 AND debit.release = promise.release AND debit."index" = promise."index" '
            "AND debit.kind = 'draw') ORDER BY seq",
            run,
        )
        return [loss for (loss,) in rows]

    def knows(self, head: str) -> bool:
        """Whether `head` is in the chain, or was missed before: each missing head freezes a ledger once."""
        found = self._one(
            "SELECT 1 FROM entries WHERE head = ?2 AND owner = ?1 UNION ALL "
            "SELECT 1 FROM entries INDEXED BY lost_heads WHERE owner = ?1 AND kind = 'freeze' AND note = ?2",
            head,
        )
        return found is not None

    def frozen(self) -> str:
        lost: str = self._one("SELECT frozen FROM ledgers WHERE owner = ?1")[0]
        return lost

    def freeze(self, head: str) -> None:
        self._do("UPDATE ledgers SET frozen = ?2 WHERE owner = ?1", head)

    def _do(self, statement: str, *values: str | int) -> None:
        self._connection.execute(statement, (self._owner, *values))

    def _one(self, query: str, *values: str | int) -> Any:
        return self._connection.execute(query, (self._owner, *values)).fetchone()

    def _all(self, query: str, *values: str | int) -> list[Any]:
        return self._connection.execute(query, (self._owner, *values)).fetchall()


def row(
    dataset: str,
    unit: str,
    neighbours: str,
    *,
    mechanism: str = "",
    sensitivity: str = "",
    loss: str = "",
    study: str = "",
    run: str = "",
    release: str = "",
    index: int | None = None,
    step: str = "",
    note: str = "",
) -> Row:
    """The part of an entry that its writer decides."""
    source = (dataset, str(unit), str(neighbours), mechanism, sensitivity, loss)
    return (*source, study, run, release, index, step, note)


def line(name: str, text: str, error: type[ComityError] = Malformed) -> str:
    """`text`, if it is one printable line: the owner reads it in a terminal."""
    if not isinstance(text, str) or not text.isprintable() or not 0 < len(text) <= 500:
        raise error(f"{name} must be a line of 1 to 500 printable characters, found {str(text)[:80]!r}", key=name)
    return text


def number(index: int) -> int:
    """`index`, if it can number a draw."""
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < 2**53:
        raise Malformed(f"a draw's index is a whole number from 0, found {index!r}", key="index")
    return index

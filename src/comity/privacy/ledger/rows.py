"""The rows of one ledger in its database: entries appended with their heads, and the sums beside them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from comity.errors import BadInput, ComityError, Malformed
from comity.privacy.ledger.account import Balance, grant_text, parse_currency, parse_grant, parse_spent, spent_text
from comity.privacy.ledger.chain import FIELDS, Row, next_head
from comity.privacy.ledger.schema import damaged, explained, sound
from comity.privacy.unit import Neighbours, Unit

_COLUMNS = ", ".join(["owner", *(f'"{name}"' for name in FIELDS)])
_ENDS = "kind IN ('close', 'void', 'forfeit', 'abandon')"
_NEWEST = """SELECT one.count, one.head, entry.seq, entry.head FROM (SELECT 1)
LEFT JOIN (SELECT count, head FROM commits WHERE owner = ?1 ORDER BY count DESC LIMIT 1) AS one
LEFT JOIN (SELECT seq, head FROM entries WHERE owner = ?1 ORDER BY seq DESC LIMIT 1) AS entry"""
_INSERT = f"INSERT INTO entries ({_COLUMNS}) VALUES (?{', ?' * len(FIELDS)})"


LedgerRow = tuple[str, str, int]


# An entry that is a day or more older than one before it was written while the clock was behind: when that was is not
# known, so it always counts. One that lies a day ahead of the clock that asks was written while the clock was ahead,
# and says nothing about those after it.
_TIMED = """WITH timed AS (
    SELECT run, kind, dataset, loss, time, max(
        CASE WHEN julianday(time) <= julianday(?4) + 1 THEN time END
    ) OVER (ORDER BY seq) AS latest FROM entries WHERE owner = ?1
)"""
_SINCE = "dataset = ?2 AND (time >= ?3 OR julianday(time) < julianday(latest) - 1)"


class Rows:
    """What a transaction reads and writes, of the ledger `owner` alone."""

    def __init__(self, connection: sqlite3.Connection, owner: int, where: str) -> None:
        self._connection = connection
        self._owner = owner
        self._where = where
        self._ledger: LedgerRow | None = None

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
        try:
            self._connection.executemany(_INSERT, full)
        except sqlite3.Error as error:
            raise explained(error, self._where) from error

    def last(self) -> tuple[int, str]:
        """Number and head of the newest entry."""
        seq, head = self._one("SELECT seq, head FROM entries WHERE owner = ?1 ORDER BY seq DESC LIMIT 1")
        return seq, head

    def last_row(self) -> Row:
        """The newest entry as it is stored."""
        listed = ", ".join(f'"{name}"' for name in FIELDS)
        newest: Row = self._one(f"SELECT {listed} FROM entries WHERE owner = ?1 ORDER BY seq DESC LIMIT 1")
        return newest

    def last_of_both(self) -> tuple[tuple[int, bytes], tuple[int, str]]:
        """Number and head of the newest commit, (0, b"") where there is none, and of the newest entry."""
        count, before, seq, head = self._one(_NEWEST)
        return (0, b"") if count is None else (count, bytes(before)), (seq, head)

    def found(self, nonce: str, *, simulated: bool) -> None:
        self._ledger = None
        self._do("INSERT INTO ledgers VALUES (?1, ?2, '', ?3)", nonce, int(simulated))

    def id(self) -> str:
        """The ledger's own, which never changes."""
        return self.ledger()[0]

    def is_founded(self) -> bool:
        return self._read_ledger() is not None

    def ledger(self) -> LedgerRow:
        """Id, missing head and whether it is simulated, as this transaction finds or leaves them: read once."""
        found = self._read_ledger()
        assert found is not None
        return found

    def _read_ledger(self) -> LedgerRow | None:
        if self._ledger is None:
            self._ledger = self._one("SELECT id, frozen, simulated FROM ledgers WHERE owner = ?1")
        return self._ledger

    def datasets(self) -> list[str]:
        return [name for (name,) in self._all("SELECT dataset FROM accounts WHERE owner = ?1 ORDER BY dataset")]

    def open_account(self, dataset: str, unit: Unit, neighbours: Neighbours, balance: Balance) -> None:
        self._do(
            "INSERT INTO accounts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            dataset,
            str(unit),
            str(neighbours),
            *_texts(balance),
        )

    def account(self, dataset: str) -> tuple[Unit, Neighbours, Balance]:
        row = self._one(
            "SELECT unit, neighbours, currency, granted, ceiling, spent, reserved FROM accounts "
            "WHERE owner = ?1 AND dataset = ?2",
            dataset,
        )
        if row is None:
            known = ", ".join(self.datasets())
            raise BadInput(f"{self._where} has no dataset {dataset}; it holds {known}", code="dataset", key="dataset")
        with sound(self._where):
            return read_account(*row)

    def settle(self, dataset: str, balance: Balance) -> None:
        self._do(
            "UPDATE accounts SET currency = ?3, granted = ?4, ceiling = ?5, spent = ?6, reserved = ?7 "
            "WHERE owner = ?1 AND dataset = ?2",
            dataset,
            *_texts(balance),
        )

    def open_run(self, run: str, dataset: str, study: str) -> None:
        self._do("INSERT INTO runs VALUES (?1, ?2, ?3, ?4, 'open')", run, dataset, study)

    def end_run(self, run: str, state: str) -> None:
        self._do("UPDATE runs SET state = ?3 WHERE owner = ?1 AND run = ?2", run, state)

    def run(self, run: str) -> tuple[str, str, str] | None:
        """Dataset, study and state of a run; refused where the entries say otherwise."""
        query = "SELECT dataset, study, state FROM runs WHERE owner = ?1 AND run = ?2"
        found: tuple[str, str, str] | None = self._one(query, run)
        ended = self._one(f"SELECT 1 FROM entries INDEXED BY one_end WHERE owner = ?1 AND run = ?2 AND {_ENDS}", run)
        if (found is not None and found[2] != "open") != (ended is not None):
            raise damaged(self._where, f"its run {run} is not in the state that the entries say")
        return found

    def open_runs(self) -> list[str]:
        query = "SELECT run FROM runs INDEXED BY open_runs WHERE owner = ?1 AND state = 'open' ORDER BY run"
        return [run for (run,) in self._all(query)]

    def draw(self, run: str, release: str, index: int) -> dict[str, tuple[str, ...]]:
        """The entries about one draw, by kind."""
        rows = self._all(
            "SELECT kind, dataset, unit, neighbours, mechanism, sensitivity, loss, study, step FROM entries INDEXED BY "
            'one_draw WHERE owner = ?1 AND run = ?2 AND release = ?3 AND "index" = ?4 AND "index" IS NOT NULL',
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

    def promised(self, run: str) -> list[tuple[str, str, bool]]:
        """Part and loss of each draw that a run reserved, and whether it was made."""
        rows = self._all(
            "SELECT step, loss, EXISTS (SELECT 1 FROM entries AS debit INDEXED BY one_draw "
            "WHERE debit.owner = ?1 AND debit.run = ?2 AND debit.release = promise.release "
            'AND debit."index" = promise."index" AND debit."index" IS NOT NULL AND debit.kind = \'draw\') '
            "FROM entries AS promise INDEXED BY one_draw "
            "WHERE owner = ?1 AND run = ?2 AND \"index\" IS NOT NULL AND kind = 'reserve' ORDER BY seq",
            run,
        )
        return [(part, loss, bool(drawn)) for part, loss, drawn in rows]

    def runs_since(self, dataset: str, moment: str, now: str) -> dict[str, bool]:
        """The runs of a dataset that are open, or that drew or were forfeited at this moment or later; and whether all
        that each reserved counts, or only what it drew."""
        rows = self._all(
            f"{_TIMED} SELECT run, 1 FROM runs INDEXED BY open_runs WHERE owner = ?1 AND state = 'open' "
            f"AND dataset = ?2 UNION ALL SELECT run, max(kind = 'forfeit') FROM timed WHERE {_SINCE} "
            "AND kind IN ('draw', 'forfeit') GROUP BY run",
            dataset,
            moment,
            now,
        )
        found: dict[str, bool] = {}
        for run, whole in rows:
            found[run] = bool(whole) or found.get(run, False)
        return found

    def written_off_since(self, dataset: str, moment: str, now: str) -> list[str]:
        """The losses that the owner wrote off at this moment or later."""
        query = f"{_TIMED} SELECT loss FROM timed WHERE {_SINCE} AND kind = 'write-off'"
        return [loss for (loss,) in self._all(query, dataset, moment, now)]

    def frozen(self) -> str:
        return self.ledger()[1]

    def freeze(self, head: str) -> None:
        self._ledger = None
        self._do("UPDATE ledgers SET frozen = ?2 WHERE owner = ?1", head)

    def settled(self, head: str) -> bool:
        """Whether a missing head has frozen this ledger before: it does so once."""
        query = "SELECT 1 FROM entries INDEXED BY lost_heads WHERE owner = ?1 AND kind = 'freeze' AND note = ?2"
        return self._one(query, head) is not None

    def _do(self, statement: str, *values: str | int) -> None:
        try:
            self._connection.execute(statement, numbered(self._owner, *values))
        except sqlite3.Error as error:
            raise explained(error, self._where) from error

    def _one(self, query: str, *values: str | int) -> Any:
        return next(iter(self._all(query, *values)), None)

    def _all(self, query: str, *values: str | int) -> list[Any]:
        try:
            return self._connection.execute(query, numbered(self._owner, *values)).fetchall()
        except sqlite3.Error as error:
            raise explained(error, self._where) from error


def numbered(*values: str | int) -> dict[str, str | int]:
    """Values for ?1, ?2, …, by name: early releases of Python 3.12 warn where a sequence is given for them."""
    return {str(place): value for place, value in enumerate(values, 1)}


def read_account(
    unit: str, neighbours: str, currency: str, granted: str, ceiling: str, spent: str, reserved: str
) -> tuple[Unit, Neighbours, Balance]:
    grant = parse_grant(granted)
    counted, most = parse_currency(currency, ceiling, grant)
    return Unit(unit), Neighbours(neighbours), Balance(grant, counted, most, parse_spent(spent), parse_spent(reserved))


def _texts(balance: Balance) -> tuple[str, str, str, str, str]:
    currency, most = grant_marks(balance)
    return currency, grant_text(balance.granted), most, spent_text(balance.spent), spent_text(balance.reserved)


def grant_marks(balance: Balance) -> tuple[str, str]:
    """Currency and ceiling as they are stored."""
    return balance.currency or "", "" if balance.most is None else balance.most.as_text()


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

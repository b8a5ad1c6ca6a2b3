"""What a ledger had left over time, derived from its entries alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from comity.privacy.accounting import Spent
from comity.privacy.ledger.balance import Balance
from comity.privacy.ledger.chain import FIELDS, Entry, Row
from comity.privacy.ledger.verification import Replay


@dataclass(frozen=True, slots=True)
class Moment:
    """One dataset after an event: a grant, a write-off, or the entries of one run that follow each other. `spent` and
    `reserved` are together as epsilon at the granted delta, rounded up; `left` is rounded down. Without a limit
    `granted` and `left` are None."""

    time: str
    dataset: str
    what: str
    study: str
    run: str
    granted: Decimal | None
    committed: Decimal
    left: Decimal | None


_NAMES = {"create": "granted", "dataset": "granted", "grant": "granted more", "write-off": "written off"}
_ENDS = {"close": "ended", "void": "ended", "forfeit": "ended", "abandon": "abandoned"}


def replay_history(rows: Iterable[Row], where: str) -> list[Moment]:
    """One moment for each event."""
    reader = HistoryReader(where)
    for row in rows:
        reader.take(row)
    return reader.moments()


class HistoryReader:
    """Takes entries one by one. Entries that follow each other in one run are one event: sums are converted to epsilon
    once for all of them, which takes longer than reading them."""

    def __init__(self, where: str) -> None:
        self._replay = Replay(where)
        self._moments: list[Moment] = []
        self._waiting: Entry | None = None
        self._taken: dict[str, tuple[str, Spent]] = {}

    @property
    def accounts(self) -> dict[str, tuple[str, str, Balance]]:
        """Unit, relation and balance of each dataset after the entries so far."""
        return self._replay.accounts

    def take(self, row: Row) -> None:
        entry, waiting = Entry(**dict(zip(FIELDS, row))), self._waiting  # type: ignore[arg-type]
        if waiting is not None and (not entry.run or (entry.run, entry.dataset) != (waiting.run, waiting.dataset)):
            self._moments += _moment(self._replay, waiting)
        before = self._spent(entry)
        self._replay.take(row)
        if entry.run and before is not None:
            after = self._spent(entry)
            if after is not None and after != before:
                so_far = self._taken.get(entry.run, (entry.dataset, Spent.zero()))[1]
                self._taken[entry.run] = entry.dataset, so_far.plus(after.minus(before))
        self._waiting = entry

    def moments(self) -> list[Moment]:
        waiting = self._waiting
        return self._moments + ([] if waiting is None else _moment(self._replay, waiting))

    def taken_by(self, run: str) -> Decimal:
        """What a run drew by itself, as epsilon at its dataset's granted delta."""
        if run not in self._taken:
            return Decimal(0)
        dataset, spent = self._taken[run]
        return self._replay.accounts[dataset][2].epsilon_of(spent)

    def _spent(self, entry: Entry) -> Spent | None:
        found = self._replay.accounts.get(entry.dataset)
        return None if found is None else found[2].spent


def _moment(replay: Replay, entry: Entry) -> list[Moment]:
    if entry.dataset not in replay.accounts:
        return []
    _, _, balance = replay.accounts[entry.dataset]
    granted = None if balance.granted is None else balance.granted.epsilon
    committed = balance.epsilon_of(balance.committed)
    what = f"run {_ENDS.get(entry.kind, 'open')}" if entry.run else _NAMES.get(entry.kind, entry.kind)
    return [Moment(entry.time, entry.dataset, what, entry.study, entry.run, granted, committed, balance.left)]

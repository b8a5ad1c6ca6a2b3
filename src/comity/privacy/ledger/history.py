"""What a ledger had left over time, derived from its entries alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

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
    """One moment for each event. Entries that follow each other in one run are one event: sums are converted to epsilon
    once for all of them, which takes longer than reading them."""
    replay, moments = Replay(where), list[Moment]()
    waiting: Entry | None = None
    for row in rows:
        entry = Entry(**dict(zip(FIELDS, row)))  # type: ignore[arg-type]
        if waiting is not None and (not entry.run or (entry.run, entry.dataset) != (waiting.run, waiting.dataset)):
            moments += _moment(replay, waiting)
        replay.take(row)
        waiting = entry
    return moments + ([] if waiting is None else _moment(replay, waiting))


def _moment(replay: Replay, entry: Entry) -> list[Moment]:
    if entry.dataset not in replay.accounts:
        return []
    _, _, balance = replay.accounts[entry.dataset]
    granted = None if balance.granted is None else balance.granted.epsilon
    committed = balance.epsilon_of(balance.committed)
    what = f"run {_ENDS.get(entry.kind, 'open')}" if entry.run else _NAMES.get(entry.kind, entry.kind)
    return [Moment(entry.time, entry.dataset, what, entry.study, entry.run, granted, committed, balance.left)]

"""Whether what lies in a ledger's file is what was written there: all of it, or the end of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from comity.errors import Refused
from comity.privacy.ledger.account import Balance
from comity.privacy.ledger.chain import FIELDS, Row, follow
from comity.privacy.ledger.commits import check_state, follow_commits, last_commits
from comity.privacy.ledger.replay import Replay
from comity.privacy.ledger.rows import read_account
from comity.privacy.ledger.schema import damaged, sound

FULLY = 20_000
"""A ledger of up to so many entries is checked in full whenever it is opened, a longer one from there to its end."""

_COLUMNS = ", ".join(f'"{name}"' for name in FIELDS)
_ENTRIES = f"SELECT {_COLUMNS} FROM entries WHERE owner = ? AND seq > ? ORDER BY seq"
_LAST = "SELECT seq FROM entries WHERE owner = ? ORDER BY seq DESC LIMIT 1"


def rows_of(connection: sqlite3.Connection, owner: int, after: int = 0) -> Iterable[Row]:
    """The entries as they are stored, one at a time."""
    return connection.execute(_ENTRIES, (owner, after))


def check_opened(connection: sqlite3.Connection, owner: int, where: str) -> None:
    """What opening a file checks: its pages, chains and sums, in full where that takes no noticeable time."""
    with sound(where):
        last = connection.execute(_LAST, (owner,)).fetchone()
        if last is not None and last[0] > FULLY:
            check_end(connection, owner, where, last[0] - FULLY)
            return
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != ("ok",):
            raise damaged(where, "its pages do not fit together")
        check_whole(connection, owner, where)


def check_end(connection: sqlite3.Connection, owner: int, where: str, after: int) -> None:
    query = "SELECT head FROM entries WHERE owner = ? AND seq = ?"
    head = connection.execute(query, (owner, after)).fetchone()
    if head is None:
        raise damaged(where, f"entry {after} is missing")
    for _ in follow(rows_of(connection, owner, after), where=where, after=(after, head[0])):
        pass
    check_state(connection, owner, where)
    count = last_commits(connection, owner)[0].count
    follow_commits(connection, owner, where, after=max(0, count - FULLY))


def check_whole(connection: sqlite3.Connection, owner: int, where: str) -> tuple[int, str]:
    """Follows both chains from the start and derives every sum again; the number and head of the last entry."""
    with sound(where):
        replay, count, head = replayed(rows_of(connection, owner), where)
        runs = "SELECT run, dataset, study, state FROM runs WHERE owner = ?"
        stored_runs = {row[0]: row[1:] for row in connection.execute(runs, (owner,))}
        query = "SELECT frozen, simulated FROM ledgers WHERE owner = ?"
        stored = connection.execute(query, (owner,)).fetchone()
        same = (
            stored_accounts(connection, owner) == replay.accounts
            and stored_runs == replay.runs
            and stored == (replay.frozen, int(replay.simulated))
        )
        if not same:
            raise Refused(
                f"{where}: the sums do not follow from the {count} entries. Entries are missing at the end "
                "or sums were changed by something other than Comity; restore the last good copy",
                code="chain",
            )
        check_state(connection, owner, where)
        follow_commits(connection, owner, where)
        return count, head


def replayed(rows: Iterable[Row], where: str) -> tuple[Replay, int, str]:
    """The sums after a whole chain, its length and its last head."""
    replay, count, head = Replay(where), 0, ""
    for row in follow(rows, where=where):
        replay.take(row)
        count, head = count + 1, str(row[-1])
    return replay, count, head


def stored_accounts(connection: sqlite3.Connection, owner: int) -> dict[str, tuple[str, str, Balance]]:
    rows = connection.execute(
        "SELECT dataset, unit, neighbours, currency, granted, ceiling, spent, reserved FROM accounts "
        "WHERE owner = ? ORDER BY dataset",
        (owner,),
    )
    return {name: read_account(*rest) for name, *rest in rows}

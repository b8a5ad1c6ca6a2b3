"""Ledgers of the first format, in which a grant was spent on losses of several kinds: no sum of these holds.

Each account is given a currency, by an entry of its own behind the old ones. A pure grant stays as it is. One with a δ
is counted in concentrated DP: what was spent there is Σρ + Σε²/2, which holds however it was chosen. An account that
spent (ε, δ) losses is counted in those; one that mixed them with ρ has nothing left, and its open runs end. What was
spent is never counted as less than the new currency says, so an account may have nothing left.
"""

from __future__ import annotations

import sqlite3

from comity.privacy.ledger.account import grant_text
from comity.privacy.ledger.chain import Row
from comity.privacy.ledger.check import replayed, rows_of
from comity.privacy.ledger.commits import Commit, CommitHead, append_commit, commit_head, state_digest
from comity.privacy.ledger.replay import ENDED
from comity.privacy.ledger.rows import Rows, grant_marks, row
from comity.privacy.ledger.schema import lay_out_anew, sound
from comity.privacy.unit import Neighbours, Unit

_WHY = "format 2: one currency per grant"


def migrate(connection: sqlite3.Connection, owner: int, where: str) -> CommitHead:
    """Inside the caller's transaction: checks the old chain and its sums, then writes the new ones."""
    with sound(where):
        replay, _, _ = replayed(rows_of(connection, owner), where)
        lay_out_anew(connection)
        rows = Rows(connection, owner, where)
        for name, (unit, neighbours, _) in list(replay.accounts.items()):
            for run in replay.open_runs():
                dataset, study, _ = replay.runs[run]
                if dataset == name and replay.enters_nothing(name):
                    replay.take(_appended(rows, "forfeit", row(name, unit, neighbours, study=study, run=run)))
                    rows.end_run(run, ENDED["forfeit"])
            after = replay.migrated(name)
            currency, most = grant_marks(after)
            loss = grant_text(after.granted)
            entry = row(name, unit, neighbours, mechanism=currency, sensitivity=most, loss=loss, note=_WHY)
            replay.take(_appended(rows, "currency", entry))
            rows.open_account(name, Unit(unit), Neighbours(neighbours), replay.accounts[name][2])
        seq, entry_head = rows.last()
        state = state_digest(connection, owner)
        head = commit_head(b"", 1, entry_head, state, b"")
        append_commit(connection, owner, Commit(1, seq, state, b"", head))
        return CommitHead(rows.id(), 1, head.hex())


def _appended(rows: Rows, kind: str, entry: Row) -> Row:
    rows.append(kind, [entry])
    return rows.last_row()

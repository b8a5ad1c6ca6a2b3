"""A commit of one ledger in the making: rows are appended, its head is given out, then it is written or rolled back."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress

from comity.errors import Malformed, Refused
from comity.privacy.ledger.chain import Row
from comity.privacy.ledger.commits import (
    Commit,
    CommitHead,
    append_commit,
    commit_head,
    find_commit,
    notes_digest,
    state_of,
)
from comity.privacy.ledger.rows import Rows
from comity.privacy.ledger.witness import frozen_sentence
from comity.privacy.permit import Permit


class OpenCommit:
    """`connection` is for tables of others that must commit with it.

    Rows of other tables in the same file belong to `owner`, since simulated ledgers share a database.
    """

    def __init__(self, connection: sqlite3.Connection, *, owner: int, where: str, lost: str) -> None:
        self.connection = connection
        self.owner = str(owner)
        self.thawed = False
        self._rows = Rows(connection, owner, where)
        self._where = where
        self._lost = lost
        self._permits: list[Permit] = []
        self._over = False
        self._owner = owner
        self._changes = connection.total_changes
        self._notes: list[bytes] = []
        self._sealed: Commit | None = None

    def note(self, digest: bytes) -> None:
        """Adds what the caller wrote to its own tables to the head of this commit."""
        if not isinstance(digest, bytes) or not 0 < len(digest) <= 64:
            raise Malformed("a note is a digest of 1 to 64 bytes", code="ledger")
        self._require_unsealed()
        self._notes.append(digest)

    def commit_head(self) -> CommitHead:
        """The head that this commit will have: from here on nothing can be noted or appended in this transaction.

        A transaction that asked for its head commits under it, also when nothing else changed.
        """
        if self._sealed is None:
            (count, before), (seq, entry_head) = self._rows.last_of_both()
            state, notes = state_of(self.connection, self._owner, self._rows.ledger()), notes_digest(self._notes)
            head = commit_head(before, count + 1, entry_head, state, notes)
            self._sealed = Commit(count + 1, seq, state, notes, head)
        return CommitHead(self._rows.id(), self._sealed.count, self._sealed.head.hex())

    def finish(self) -> CommitHead | None:
        """Writes the row of this commit, if anything changed. The last act of a transaction."""
        changed = self.connection.total_changes != self._changes or self._notes or self._sealed is not None
        if not changed or self._over:
            return None
        head = self.commit_head()
        assert self._sealed is not None
        append_commit(self.connection, self._owner, self._sealed)
        return head

    def knows_commit(self, count: int, head: str) -> bool:
        return find_commit(self.connection, self._owner, count) == head

    @property
    def frozen(self) -> str:
        """What somebody saw and the file lacks; empty when the ledger may be used."""
        return self._rows.frozen() or self._lost

    def require_thawed(self) -> None:
        """Refuses while something is missing that somebody saw: nothing is promised, drawn or answered."""
        lost = self.frozen
        if lost:
            raise Refused(frozen_sentence(self._where, lost), code="frozen")

    def committed(self) -> None:
        self._over = True

    def rolled_back(self) -> None:
        """The debits did not happen, so permits that were not used yet must not draw."""
        self._over = True
        for permit in self._permits:
            with suppress(Refused):
                permit.use()

    def _append(self, kind: str, rows: Sequence[Row]) -> None:
        if self._over:
            raise Refused(f"{self._where}: the transaction is over; begin another", code="ledger")
        self._require_unsealed()
        self._rows.append(kind, rows)

    def _require_unsealed(self) -> None:
        if self._sealed is not None:
            raise Refused(
                f"{self._where}: the head of this commit was given out, so nothing can be added to it: "
                "ask for the head last",
                code="ledger",
            )

"""A ledger followed from the last verified entry on, for a process that shows it again and again.

Promise    Every entry that is shown was verified: the first time the whole chain, later the entries after the last
           verified one, from its head. A file whose verified part changed is found, because new entries no longer
           follow, or because the last verified entry is missing; then all of it is verified again and the difference
           raises. Sums are compared with those that the file states, each time.
Not        a replacement for `Ledger.verify`: an old entry that is edited while the process runs is found at the next
           start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from threading import Lock

from comity.errors import Refused
from comity.privacy.ledger.chain import follow_entries
from comity.privacy.ledger.history import HistoryReader, Moment
from comity.privacy.ledger.ledger import Ledger
from comity.privacy.ledger.tables import entry_rows, stored_accounts


@dataclass(frozen=True)
class Followed:
    """A ledger as verified: how many entries, the head of the last one, how many of them were new since the last look,
    and what was left after each event."""

    entries: int
    head: str
    new: int
    moments: Sequence[Moment]


class LedgerFollower:
    """Follows one ledger file. Callable from any thread."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self._reader = HistoryReader(str(self._ledger.path))
        self._seq, self._head = 0, ""

    def follow(self) -> Followed:
        """Verify what is new; a `Refused` says what is wrong with the file."""
        with self._lock:
            if not self._is_known():
                self._forget()
            before = self._seq
            try:
                self._read_on()
            except BaseException:
                self._forget()
                raise
            return Followed(self._seq, self._head, self._seq - before, self._reader.moments())

    def taken_by(self, run: str) -> Decimal:
        """What a run drew by itself, as epsilon at the granted delta of its dataset, rounded up."""
        with self._lock:
            return self._reader.taken_by(run)

    def _read_on(self) -> None:
        owner, where = int(self._ledger.owner), str(self._ledger.path)
        with self._ledger.reading() as connection:
            rows = entry_rows(connection, owner, self._seq)
            for row in follow_entries(rows, where=where, after=(self._seq, self._head)):
                self._reader.take(row)
                self._seq, self._head = int(row[0] or 0), str(row[-1])
            if stored_accounts(connection, owner) != self._reader.accounts:
                raise Refused(
                    f"{where}: the sums do not follow from the entries; see: comity ledger verify {where}",
                    code="chain",
                )

    def _is_known(self) -> bool:
        """Whether the file still has the last verified entry."""
        if not self._seq:
            return True
        with self._ledger.reading() as connection:
            query = "SELECT head FROM entries WHERE owner = ? AND seq = ?"
            row = connection.execute(query, (int(self._ledger.owner), self._seq)).fetchone()
        return row is not None and row[0] == self._head

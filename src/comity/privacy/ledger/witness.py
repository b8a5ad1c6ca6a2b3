"""The last commit of a ledger that this machine saw, kept outside the ledger.

A ledger that was restored from a backup has forgotten expenses, and its own chain can't show it. The witness can: it
holds the newest (count, head), and a file that does not contain it is older or another one. The witness is written
before the ledger, so a ledger without a witness was brought to this machine, perhaps from a backup. The witness may lag
(a crash between commit and witness) but never moves backwards, except when the owner writes off the gap. An empty file
counts as no witness: emptying it freezes the ledger. A power cut leaves the old witness or the new one, because the new
one is flushed to disk before it takes the name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from comity.errors import Refused
from comity.files import make_folder, open_private
from comity.privacy.ledger.chain import is_head

_BLANK = b"\0 \t\r\n"
UNWITNESSED = "no witness"
"""The missing head of a ledger that this machine never saw."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Number and head of a commit; in a witness of the first format, of an entry."""

    count: int
    head: str
    of_entry: bool = False


def heads_folder() -> Path:
    """The folder of all witnesses: $COMITY_HOME/heads, by default ~/.comity/heads."""
    home = os.environ.get("COMITY_HOME")
    return (Path(home) if home else Path.home() / ".comity") / "heads"


class Witness:
    """The witness of one ledger. Each use looks up the folder."""

    def __init__(self, ledger_id: str) -> None:
        self._id = ledger_id

    @property
    def path(self) -> Path:
        return Path(self._file(".json"))

    def _file(self, suffix: str) -> str:
        return f"{heads_folder()}/{self._id}{suffix}"

    def prepare(self) -> None:
        """Creates the folder; refuses before anything is spent if it can't be written."""
        folder = heads_folder()
        try:
            if not os.access(folder, os.W_OK):
                make_folder(folder)
            writable = os.access(folder, os.W_OK)
        except OSError:
            writable = False
        if not writable:
            raise Refused(
                f"{folder}: Comity stores the last head of each ledger in this folder and can't write to it. Make it "
                "writable, or set COMITY_HOME to a permanent folder; nothing was spent",
                code="ledger",
            )

    def read(self) -> Seen | None:
        """What was seen last; None if there is no file or it is empty."""
        try:
            with open(self._file(".json"), "rb") as file:  # noqa: PTH123 (pathlib doubles the cost of a read)
                stored = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable() from error
        # Some file systems fill a file with zeros after losing its content.
        if not stored.strip(_BLANK):
            return None
        try:
            found = json.loads(stored)
            of_entry = "seq" in found
            seen = Seen(found["seq" if of_entry else "count"], found["head"], of_entry)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._unreadable() from error
        if not isinstance(seen.count, int) or not is_head(seen.head):
            raise self._unreadable()
        return seen

    def exists(self) -> bool:
        """Whether there is a file, even an empty one."""
        return self.path.exists()

    def remove(self) -> None:
        for suffix in (".json", ".lock", ".new"):
            Path(self._file(suffix)).unlink(missing_ok=True)

    def advance(self, seen: Seen, *, contains: Callable[[Seen], bool]) -> None:
        """Moves on to `seen` if it is newer and its chain contains what was seen before. Never creates a witness."""
        with self._locked():
            before = self.read()
            older = before is not None and (before.of_entry or before.count < seen.count)
            if before is not None and older and contains(before):
                self._replace(seen)

    def set(self, seen: Seen) -> None:
        """Sets the witness unconditionally: for a new ledger, or after the owner wrote off the gap."""
        with self._locked():
            self._replace(seen)

    def _replace(self, seen: Seen) -> None:
        """Flushes the file, renames it and flushes the folder, so a power cut leaves a complete witness."""
        fresh = self._file(".new")
        with os.fdopen(open_private(fresh, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW), "wb") as file:
            file.write(json.dumps({"count": seen.count, "head": seen.head}).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._file(".json"))  # noqa: PTH105
        folder = os.open(heads_folder(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # A separate file, because replacing the witness would leave the lock on the old one.
        lock = open_private(self._file(".lock"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            # A process forked meanwhile inherits the descriptor. Closing ours alone would leave the lock with that
            # process, which would then wait for itself.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def _unreadable(self) -> Refused:
        return Refused(
            f"{self.path}: expected the last number and head of a ledger, found something else. Compare the "
            "ledger with its newest backup, then remove this file",
            code="frozen",
        )


def describe_freeze(where: str, missing: str) -> str:
    """Tells the owner of a frozen ledger what is missing and what to do."""
    if missing == UNWITNESSED:
        return (
            f"{where} is frozen: this machine has no witness of this ledger, so the file may be an old backup that "
            "has forgotten expenses. If you moved it, copy its witness from the other machine, the file named after "
            f"the ledger's id in ~/.comity/heads, to {heads_folder()}. If it was restored, write off what may be "
            f'missing: comity ledger write-off {where} --all --why "..."; if you know that nothing is, --epsilon 0'
        )
    return (
        f"{where} is frozen: its head {missing[:12]}… was seen before and is not in the file, which was rolled back or "
        "restored from a backup and may have forgotten expenses. Put the newest copy back, or write off what may be "
        f'missing: comity ledger write-off {where} --all --why "..."'
    )

"""What allows the noise of one release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NoReturn

from comity.errors import Refused


class Permit:
    """Leave to draw the noise of release `release`, number `index`, once.

    Drawing is spending: a ledger's transaction, and a step's effects before their commit, hand out one permit for each
    draw that they debit, and a source of noise takes it before it draws. A second use is refused, from whichever
    thread; so is a copy, which would be a second draw for one debit. Nobody else makes one, except by the two functions
    below.
    """

    __slots__ = ("_taken", "index", "release")

    def __init__(self, release: str, index: int) -> None:
        self.release = release
        self.index = index
        self._taken = Lock()

    def use(self) -> None:
        # Taking a lock that is never given back is atomic among threads.
        if not self._taken.acquire(blocking=False):
            raise Refused(
                f"the noise of {self.release}[{self.index}] is drawn already: each draw needs its own permit",
                code="drawn",
                key=self.release,
            )

    @contextmanager
    def several(self, draws: int) -> Iterator[Permit]:
        """Uses this permit up for a mechanism that draws more than once and is debited as a whole.

        What it gives allows so many draws while the block lasts, and none after it, however the block ends.
        """
        self.use()
        within = _Several(self.release, self.index, draws)
        try:
            yield within
        finally:
            within.close()

    @property
    def used(self) -> bool:
        return self._taken.locked()

    def __reduce__(self) -> NoReturn:
        raise Refused(
            f"the permit for {self.release}[{self.index}] can't be copied or sent: it stands for one draw",
            code="drawn",
            key=self.release,
        )

    def __repr__(self) -> str:
        return f"Permit({self.release}[{self.index}]{', used' if self.used else ''})"


class _Several(Permit):
    """Leave for the draws of one mechanism; made by `Permit.several` alone."""

    __slots__ = ("_left", "_lock")

    def __init__(self, release: str, index: int, draws: int) -> None:
        super().__init__(release, index)
        self._left = draws
        self._lock = Lock()

    def use(self) -> None:
        with self._lock:
            if self._left < 1:
                raise Refused(
                    f"the mechanism of {self.release}[{self.index}] has drawn all that it is debited for, or has ended",
                    code="drawn",
                    key=self.release,
                )
            self._left -= 1

    def close(self) -> None:
        with self._lock:
            self._left = 0

    def several(self, draws: int) -> NoReturn:
        raise Refused(
            f"one of the draws of {self.release}[{self.index}] can't be made into {draws}",
            code="drawn",
            key=self.release,
        )

    @property
    def used(self) -> bool:
        return self._left == 0


def entrusted(release: str, index: int) -> Permit:
    """For the noise of a trusted coordinator. The parties were debited when they entrusted their values to it; that it
    draws once for each debit is kept by its journal."""
    return Permit(release, index)


def simulated(release: str, index: int = 0) -> Permit:
    """For noise that no ledger is debited for: where one person holds all records, in a simulation or an audit. What
    answers for an owner never takes one."""
    return Permit(release, index)

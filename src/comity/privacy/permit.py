"""The permission to draw the noise of one release, once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NoReturn

from comity.errors import Refused


class Permit:
    """Permits one draw of the noise of `release`, number `index`.

    Drawing is spending: a ledger's transaction, and a step's effects before their commit, hand out one permit for each
    draw that they debit, and a source of noise uses it before it draws. A second use is refused, from any thread; so is
    a copy, which would be a second draw for one debit. Only the two functions below make other permits.
    """

    __slots__ = ("_taken", "index", "release")

    def __init__(self, release: str, index: int) -> None:
        self.release = release
        self.index = index
        self._taken = Lock()

    def use(self) -> None:
        # Acquiring a lock that is never released is atomic among threads.
        if not self._taken.acquire(blocking=False):
            raise Refused(
                f"the noise of {self.release}[{self.index}] is already drawn: each draw needs a permit",
                code="drawn",
                key=self.release,
            )

    @contextmanager
    def several(self, draws: int) -> Iterator[Permit]:
        """Uses up this permit for a mechanism that draws several times and is debited once.

        Yields a permit for that many draws inside the block, and none after it.
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
            f"the permit for {self.release}[{self.index}] can't be copied or sent: it permits one draw",
            code="drawn",
            key=self.release,
        )

    def __repr__(self) -> str:
        return f"Permit({self.release}[{self.index}]{', used' if self.used else ''})"


class _Several(Permit):
    """Permits several draws of one mechanism; only `Permit.several` makes it."""

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


def entrusted_permit(release: str, index: int) -> Permit:
    """For the noise of a trusted coordinator. The parties are debited when they entrust their values to it, and its
    journal makes sure that it draws once for each debit."""
    return Permit(release, index)


def simulated_permit(release: str, index: int = 0) -> Permit:
    """For noise that no ledger is debited for, in a simulation or an audit by someone who holds all records. Code that
    answers for an owner never uses it."""
    return Permit(release, index)

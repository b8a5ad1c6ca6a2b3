"""What allows one draw of noise."""

from __future__ import annotations

from threading import Lock
from typing import NoReturn

from comity.errors import Refused


class Permit:
    """Leave to draw the noise of release `release`, number `index`, once.

    Drawing is spending, so whoever reserves the loss hands out one permit per draw that it will debit, and a
    source of noise takes the permit before it draws. A second use is refused, from whichever thread it comes;
    so is a copy, which would be a second draw for one debit.
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

"""One ask on its way: whoever carries it says what it hears, whoever asked takes that out as it comes.

Every channel feeds one of these, from any thread: order, repetition, lateness and silence mean the same in each.
A party has one outcome, a reply or a loss, and the first counts: a second reply, one after a loss and one after the ask
was closed are dropped. The site has stored its reply by then, and gives it again when it is asked again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Condition
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comity.federation.messages.channel import Patience

BEAT = 1.0
"""Seconds between two looks at who shows life."""
ROOM = 32 << 20
"""Bytes of replies that wait to be taken out before a carrier that can wait is made to."""
MANY = 32
"""Replies that wait before whoever iterates is woken for them, where it looks by itself now and then."""

ABSENT, SILENT, LATE, SIZE, FAILED, CANCELLED = "absent", "silent", "late", "size", "failed", "cancelled"
"""Why a party is lost: nobody is there, it shows no life, the deadline, an oversized message, a fault, cancelled."""


@dataclass(frozen=True)
class Replied:
    party: str
    reply: bytes


@dataclass(frozen=True)
class Alive:
    """A sign of life: the ask is known there and waits or is worked on."""

    party: str


@dataclass(frozen=True)
class Lost:
    party: str
    why: str


Event = Replied | Alive | Lost


class Asking:
    """Iterate over it for what is heard; it ends when every party has an outcome, or after the deadline or `cancel`.

    `showing` tells a carrier's own signs of life and is called at each beat by whoever iterates; a carrier that hears
    them from afar says `alive`. Leaving the `with` block closes the ask, whatever is still open.

    With `every`, replies are taken out together: at the latest so many seconds after they came, and while they are, a
    carrier that can wait does. Where the carrier and whoever iterates are threads of one interpreter, it costs less to
    let one of them work at a time than to switch between them.
    """

    def __init__(
        self,
        parties: Iterable[str],
        patience: Patience,
        *,
        most: int,
        showing: Callable[[], Iterable[str]] | None = None,
        beat: float = BEAT,
        every: float = 0.0,
    ) -> None:
        now = time.monotonic()
        self._changed = Condition()
        self._open = dict.fromkeys(parties, now)
        self._events: deque[Event] = deque()
        self._shown: dict[str, None] = {}
        self._held = 0
        self._claimed: dict[str, int] = {}
        self._end = None if patience.deadline is None else now + patience.deadline
        self._silent = patience.silent
        self._most = most
        self._showing = showing
        self._looked = now
        self._beat = beat if patience.silent is None else min(beat, patience.silent / 2)
        self._every = every
        self._taking = False
        self._error: BaseException | None = None
        self._closed = self._cancelled = False
        self._at_close: list[Callable[[], None]] = []
        self._opened: Callable[[str, bytes], bytes] | None = None

    # For whoever carries the ask, from any thread.

    def waits_for(self, party: str) -> bool:
        """Whether an outcome of this party would still count."""
        with self._changed:
            return party in self._open

    @property
    def open(self) -> list[str]:
        """The parties that have no outcome yet."""
        with self._changed:
            return list(self._open)

    def alive(self, party: str) -> None:
        """It shows life."""
        with self._changed:
            if party in self._open:
                self._open[party] = time.monotonic()
                self._shown[party] = None
                self._changed.notify_all()

    def excused(self, *parties: str) -> None:
        """That these parties, or all, were not heard says nothing about them: the line is down, or their turn has not
        come. Their silence counts from now on."""
        with self._changed:
            now = time.monotonic()
            for party in parties or tuple(self._open):
                if party in self._open:
                    self._open[party] = now

    def fits(self, party: str, size: int) -> bool:
        """Whether a message or a reply of this many bytes may be carried; a party of which it may not is lost."""
        if size > self._most:
            self.lost(party, SIZE)
        return size <= self._most

    def claim(self, party: str, size: int) -> bool:
        """Room for a reply of this size that is about to be pulled; False while others fill it, or where it no longer
        counts. While none waits there is room for one of any size."""
        if not self.fits(party, size):
            return False
        with self._changed:
            if party not in self._open:
                return False
            taken = self._held + sum(self._claimed.values())
            if taken and taken + size > ROOM:
                return False
            self._claimed[party] = size
            return True

    def replied(self, party: str, reply: bytes, *, wait: bool = False) -> bool:
        """Hand over a reply; False where it no longer counts. With `wait`, not before there is room for it."""
        if not self.fits(party, len(reply)):
            return False
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._has_room() or party not in self._open)
            return self._settle(party, Replied(party, reply))

    def _has_room(self) -> bool:
        return self._held < ROOM and not self._taking

    def lost(self, party: str, why: str) -> None:
        """It will not answer this time."""
        with self._changed:
            self._settle(party, Lost(party, why))

    def failed(self, error: BaseException) -> None:
        """The carrier can't go on at all: whoever iterates gets this error."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def at_close(self, call: Callable[[], None]) -> None:
        """Call this once nobody waits any more; at once, where that is so already."""
        with self._changed:
            if not self._closed:
                self._at_close.append(call)
                return
        call()

    # For whoever asked.

    def hurry(self, seconds: float | None) -> None:
        """Wait no longer than this from now on; a nearer deadline stays."""
        if seconds is not None:
            with self._changed:
                end = time.monotonic() + seconds
                self._end = end if self._end is None else min(self._end, end)
                self._changed.notify_all()

    def cancel(self) -> None:
        """Wait for nobody any more. Callable from any thread; what the sites do meanwhile they store."""
        with self._changed:
            self._cancelled = True
            self._lose(self._open, CANCELLED)

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._open.clear()
            self._claimed.clear()
            self._events.clear()
            self._shown.clear()
            self._held = 0
            calls, self._at_close = self._at_close, []
            self._changed.notify_all()
        for call in calls:
            call()

    def __enter__(self) -> Asking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open_with(self, opened: Callable[[str, bytes], bytes]) -> None:
        """Hand replies out as this makes them of what was carried; to be said before the first is taken out."""
        self._opened = opened

    def __iter__(self) -> Iterator[Event]:
        while (event := self._next()) is not None:
            if isinstance(event, Replied) and self._opened is not None:
                event = Replied(event.party, self._opened(event.party, event.reply))
            yield event

    def _next(self) -> Event | None:
        while True:
            self._look_around()
            with self._changed:
                if self._error is not None:
                    raise self._error
                now = time.monotonic()
                if not self._events:
                    self._look_at_clock(now)
                if self._events:
                    event = self._events.popleft()
                    if isinstance(event, Replied):
                        self._held -= len(event.reply)
                        if not self._every:
                            self._changed.notify_all()
                    self._taking = self._every > 0
                    return event
                if self._taking:
                    self._taking = False
                    self._changed.notify_all()
                if self._shown:
                    party = next(iter(self._shown))
                    del self._shown[party]
                    return Alive(party)
                if not self._open:
                    return None
                self._changed.wait(self._pause(now))

    def _look_around(self) -> None:
        """Before the clock is looked at: whoever iterates may have been busy elsewhere, which is nobody's silence."""
        now = time.monotonic()
        if self._showing is not None and now - self._looked >= self._beat:
            self._looked = now
            for party in self._showing():
                self.alive(party)

    def _look_at_clock(self, now: float) -> None:
        if self._end is not None and now >= self._end:
            self._lose(self._open, LATE)
        elif self._silent is not None:
            self._lose([party for party, heard in self._open.items() if now - heard >= self._silent], SILENT)

    def _pause(self, now: float) -> float:
        moments = [self._looked + self._beat if self._showing is not None else now + self._beat]
        if self._end is not None:
            moments.append(self._end)
        if self._silent is not None:
            moments.append(min(self._open.values()) + self._silent)
        if self._every:
            moments.append(now + self._every)
        return max(0.0, min(moments) - now)

    def _lose(self, parties: Iterable[str], why: str) -> None:
        for party in list(parties):
            self._settle(party, Lost(party, why))
        self._changed.notify_all()

    def _settle(self, party: str, event: Event) -> bool:
        if self._open.pop(party, None) is None:
            return False
        self._shown.pop(party, None)
        self._claimed.pop(party, None)
        self._events.append(event)
        if isinstance(event, Replied):
            self._held += len(event.reply)
        if not self._every or not self._open or len(self._events) >= MANY or self._held >= ROOM:
            self._changed.notify_all()
        return True

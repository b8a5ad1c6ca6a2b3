"""How bytes reach the sites. The engine of a deployment implements `Channel` and nothing else.

A channel carries one ask to some parties and reports what it hears through the `PendingAsk` that it returns. It knows
no steps. It may deliver a message twice, in any order or not at all: a site answers an ask once and remembers the
reply, and the coordinator verifies what arrives.

Every channel feeds a `PendingAsk`, from any thread, so order, repetition, lateness and silence mean the same in each. A
party has one outcome, a reply or a loss, and the first counts: a second reply, one after a loss and one after the ask
was closed are dropped. The site has stored its reply and gives it again when it is asked again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Condition
from typing import Protocol

from comity.federation.messages.codec import LIMIT

BEAT = 1.0
"""Seconds between two checks for signs of life."""
ROOM = 32 << 20
"""Bytes of waiting replies beyond which a carrier that can wait must wait."""
MANY = 32
"""Waiting replies that wake the iterating thread, where it also wakes at intervals."""

ABSENT, SILENT, LATE, SIZE, FAILED, CANCELLED = "absent", "silent", "late", "size", "failed", "cancelled"
"""Why a party is lost: not connected, no sign of life, the deadline, an oversized message, a fault, cancelled."""


@dataclass(frozen=True)
class Replied:
    party: str
    reply: bytes


@dataclass(frozen=True)
class Alive:
    """A sign of life: the party has the ask, which waits or is being worked on."""

    party: str


@dataclass(frozen=True)
class Lost:
    party: str
    why: str


Event = Replied | Alive | Lost


class PendingAsk:
    """Iterate over it for events. It ends when every party has an outcome, at the deadline, or after `cancel`.

    The iterating thread calls `showing` at each beat for the parties that a local carrier knows to be alive; a remote
    carrier calls `alive`. Leaving the `with` block closes the ask.

    With `every`, replies are taken out together, at most so many seconds after they came; meanwhile a carrier that can
    wait does. In one interpreter it costs less to let one thread work at a time than to switch between them.
    """

    def __init__(
        self,
        parties: Iterable[str],
        timeouts: Timeouts,
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
        self._end = None if timeouts.deadline is None else now + timeouts.deadline
        self._silent = timeouts.silent
        self._most = most
        self._showing = showing
        self._looked = now
        self._beat = beat if timeouts.silent is None else min(beat, timeouts.silent / 2)
        self._every = every
        self._taking = False
        self._error: BaseException | None = None
        self._closed = self._cancelled = False
        self._at_close: list[Callable[[], None]] = []
        self._opened: Callable[[str, bytes], bytes] | None = None

    # For the carrier, from any thread.

    def waits_for(self, party: str) -> bool:
        """Whether an outcome of this party would still count."""
        with self._changed:
            return party in self._open

    @property
    def silent(self) -> float | None:
        """After how many seconds without a sign of life a party is lost."""
        return self._silent

    @property
    def open(self) -> list[str]:
        """The parties that have no outcome yet."""
        with self._changed:
            return list(self._open)

    def alive(self, party: str) -> None:
        """Report a sign of life."""
        with self._changed:
            if party in self._open:
                self._open[party] = time.monotonic()
                self._shown[party] = None
                self._changed.notify_all()

    def excused(self, *parties: str) -> None:
        """Count the silence of these parties, or of all, from now on: the line was down, or it was not their turn."""
        with self._changed:
            now = time.monotonic()
            for party in parties or tuple(self._open):
                if party in self._open:
                    self._open[party] = now

    def fits(self, party: str, size: int) -> bool:
        """Whether a message or a reply of this many bytes may be carried; otherwise the party is lost."""
        if size > self._most:
            self.lost(party, SIZE)
        return size <= self._most

    def claim(self, party: str, size: int) -> bool:
        """Reserve room for a reply of this size that is about to be fetched. False while other replies fill the room,
        or where it no longer counts. While none waits there is room for one of any size."""
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
        """Hand over a reply; False where it no longer counts. With `wait`, wait until there is room for it."""
        if not self.fits(party, len(reply)):
            return False
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._has_room() or party not in self._open)
            return self._settle(party, Replied(party, reply))

    def _has_room(self) -> bool:
        return self._held < ROOM and not self._taking

    def lost(self, party: str, why: str) -> None:
        """Report that the party will not answer this ask."""
        with self._changed:
            self._settle(party, Lost(party, why))

    def failed(self, error: BaseException) -> None:
        """Report that the carrier can't go on at all: the iteration raises this error."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def at_close(self, call: Callable[[], None]) -> None:
        """Call this when the ask is closed; at once if it is already."""
        with self._changed:
            if not self._closed:
                self._at_close.append(call)
                return
        call()

    # For the coordinator.

    def hurry(self, seconds: float | None) -> None:
        """Wait at most so many seconds from now; an earlier deadline stays."""
        if seconds is not None:
            with self._changed:
                end = time.monotonic() + seconds
                self._end = end if self._end is None else min(self._end, end)
                self._changed.notify_all()

    def cancel(self) -> None:
        """Stop waiting, from any thread. Sites store what they still compute."""
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

    def __enter__(self) -> PendingAsk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open_with(self, opened: Callable[[str, bytes], bytes]) -> None:
        """Decrypt each reply with this function before handing it out; set before the first is taken out."""
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
        """Runs before the clock is checked: the iterating thread may have been busy, which is nobody's silence."""
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


Message = Callable[[], bytes]
"""Makes a message, the same bytes each time: a channel may drop them and make them again."""

MAX_BYTES = LIMIT
"""The largest message or reply that a channel carries, unless its caller sets a lower limit."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long an ask waits, in seconds; None is for ever.

    `deadline` is for the whole ask. `silent` is how long a party may show no sign of life; a party that computes shows
    them, so a long step does not look like a lost party. `grace` is what the other parties get once the outcome is
    decided: enough have answered, or too few can.
    """

    deadline: float | None = None
    silent: float | None = None
    grace: float | None = None

    def __post_init__(self) -> None:
        for name in ("deadline", "silent", "grace"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"timeouts.{name} must be a number of seconds or None, found {value!r}")


NO_TIMEOUT = Timeouts()


class Channel(Protocol):
    def ask(self, messages: Mapping[str, Message], *, timeouts: Timeouts = NO_TIMEOUT) -> PendingAsk:
        """Begin to deliver a message to each party, and return at once.

        Messages are made when they are sent and kept no longer than needed. A party that can't be reached is lost in
        the `PendingAsk`, never an exception. Asking again with the same messages is allowed at any time. Several asks
        may be open at once, from several threads. When the `PendingAsk` is closed, nothing more is sent for it.
        """

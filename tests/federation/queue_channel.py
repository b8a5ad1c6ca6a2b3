"""A channel over a bad line, for tests: frames are delayed, swapped, repeated and lost, large messages go in pieces.

It works as one over a message bus does. At each beat the coordinator repeats its open asks, by their digest and size
alone. A site that lacks the message pulls its pieces, one that works says so, one that has answered offers its reply,
whose pieces the coordinator pulls. Sites have no clock and keep each answer.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from comity.federation.messages.channel import FAILED, MAX_BYTES, NO_TIMEOUT, Message, PendingAsk, Timeouts

PIECE = 64 * 1024
WINDOW = 8
BEAT = 0.05
MADE = 4
"""Messages that the coordinator holds at once; another is made again when a piece of it is pulled."""


class Bad:
    """The line. One thread delivers what is due."""

    def __init__(self, seed: int, *, loss: float = 0.05, twice: float = 0.1, delay: float = 0.002) -> None:
        self.chance = random.Random(seed)
        self.loss, self.twice, self.delay = loss, twice, delay
        self.gone: set[str] = set()
        self.down_until = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_down(self) -> bool:
        return time.monotonic() < self.down_until

    def carry(self, party: str, deliver: Callable[[], None]) -> None:
        """Perhaps, some time, perhaps twice. Parties share a line, and frames overtake each other."""
        with self._changed:
            if party in self.gone or self.is_down:
                return
            times = (self.chance.random() >= self.loss) + (self.chance.random() < self.twice)
            for _ in range(times):
                when = time.monotonic() + self.delay * self.chance.random()
                heapq.heappush(self._due, (when, next(self._number), deliver))
            self._changed.notify()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._number), call))
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._ended and (not self._due or self._due[0][0] > time.monotonic()):
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                if self._ended:
                    return
                *_, call = heapq.heappop(self._due)
            call()


@dataclass(eq=False)
class Pulled:
    """A message that is put together from its pieces."""

    size: int
    pieces: dict[int, bytes] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)

    @property
    def missing(self) -> list[int]:
        return [number for number in range(-(-self.size // PIECE)) if number not in self.pieces]

    def wanted(self) -> list[int]:
        """The pieces to pull now; `asked` is emptied at each beat, since what was asked for may be lost."""
        now = [number for number in self.missing[:WINDOW] if number not in self.asked]
        self.asked.update(now)
        return now

    def whole(self) -> bytes:
        return b"".join(self.pieces[number] for number in sorted(self.pieces))


def piece(raw: bytes, number: int) -> bytes:
    return raw[number * PIECE : (number + 1) * PIECE]


@dataclass(eq=False)
class Desk:
    """The site's end."""

    party: str
    answer: Callable[[bytes], bytes]
    line: Bad
    pool: ThreadPoolExecutor
    pulling: dict[bytes, Pulled] = field(default_factory=dict)
    working: set[bytes] = field(default_factory=set)
    answers: dict[bytes, bytes | None] = field(default_factory=dict)

    def asked(self, back: Link, digest: bytes, size: int) -> None:
        if digest in self.answers:
            reply = self.answers[digest]
            if reply is None:
                del self.answers[digest]
                self.line.carry(self.party, back.broke)
            else:
                self.line.carry(self.party, lambda: back.offered(len(reply)))
            return
        self.line.carry(self.party, back.alive)
        if digest not in self.working:
            self.pulling.setdefault(digest, Pulled(size)).asked.clear()
            self._pull(back, digest)

    def put(self, back: Link, digest: bytes, number: int, body: bytes) -> None:
        if digest in self.pulling:
            self.pulling[digest].pieces[number] = body
            self._pull(back, digest)

    def _pull(self, back: Link, digest: bytes) -> None:
        if not self.pulling[digest].missing:
            self.working.add(digest)
            self.pool.submit(self._work, back, digest, self.pulling.pop(digest).whole())
            return
        for number in self.pulling[digest].wanted():
            self.line.carry(self.party, partial(back.pulled, number))

    def _work(self, back: Link, digest: bytes, message: bytes) -> None:
        try:
            self.answers[digest] = self.answer(message)
        except Exception:
            self.answers[digest] = None
        self.working.discard(digest)
        self.line.carry(self.party, lambda: self.asked(back, digest, 0))

    def give(self, back: Link, digest: bytes, number: int) -> None:
        reply = self.answers.get(digest)
        if reply is not None:
            self.line.carry(self.party, lambda: back.got(number, piece(reply, number)))


@dataclass(eq=False)
class Link:
    """The coordinator's end of one ask of one party."""

    asking: PendingAsk
    desk: Desk
    message: Callable[[], bytes]
    digest: bytes
    size: int
    reply: Pulled | None = None

    def beat(self) -> None:
        party, line = self.desk.party, self.desk.line
        if not self.asking.waits_for(party):
            return
        if line.is_down:
            self.asking.excused()
        line.carry(party, lambda: self.desk.asked(self, self.digest, self.size))
        if self.reply is not None:
            self.reply.asked.clear()
            self._pull()
        line.later(BEAT, self.beat)

    def alive(self) -> None:
        self.asking.alive(self.desk.party)

    def broke(self) -> None:
        self.asking.lost(self.desk.party, FAILED)

    def pulled(self, number: int) -> None:
        if self.asking.waits_for(self.desk.party):
            body = piece(self.message(), number)
            self.desk.line.carry(self.desk.party, lambda: self.desk.put(self, self.digest, number, body))

    def offered(self, size: int) -> None:
        if self.reply is None and self.asking.claim(self.desk.party, size):
            self.reply = Pulled(size)
            self._pull()

    def got(self, number: int, body: bytes) -> None:
        if self.reply is not None and self.asking.waits_for(self.desk.party):
            self.reply.pieces[number] = body
            self.asking.alive(self.desk.party)
            self._pull()

    def _pull(self) -> None:
        assert self.reply is not None
        if not self.reply.missing:
            self.asking.replied(self.desk.party, self.reply.whole())
            self.reply = None
            return
        for number in self.reply.wanted():
            self.desk.line.carry(self.desk.party, partial(self.desk.give, self, self.digest, number))


class QueueChannel:
    def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]], line: Bad, *, most: int = MAX_BYTES) -> None:
        self._line, self._most = line, most
        self._pool = ThreadPoolExecutor(8)
        self._desks = {party: Desk(party, answer, line, self._pool) for party, answer in sites.items()}
        self._made: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()

    def ask(self, messages: Mapping[str, Message], *, timeouts: Timeouts = NO_TIMEOUT) -> PendingAsk:
        asking = PendingAsk(messages, timeouts, most=self._most)
        self._line.later(0, lambda: self._next(asking, iter(messages.items())))
        return asking

    def _next(self, asking: PendingAsk, left: object) -> None:
        """Announce one message after the other: each is made for its digest and size."""
        party, make = next(left, (None, None))  # type: ignore[call-overload]
        if party is None:
            return
        if asking.waits_for(party):
            try:
                raw = make()
            except Exception as error:
                asking.failed(error)
                return
            if asking.fits(party, len(raw)):
                digest = hashlib.sha256(raw).digest()
                again = lambda: self._remade(party, digest, make)  # noqa: E731
                Link(asking, self._desks[party], again, digest, len(raw)).beat()
        self._line.later(0, lambda: self._next(asking, left))

    def _remade(self, party: str, digest: bytes, make: Message) -> bytes:
        raw = self._made.pop((party, digest), None)
        if raw is None:
            raw = make()
        self._made[party, digest] = raw
        while len(self._made) > MADE:
            self._made.popitem(last=False)
        return raw

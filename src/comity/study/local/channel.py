"""A channel whose sites live in this process."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from os import cpu_count
from threading import Event, Lock, Thread
from typing import Protocol

from comity.errors import ComityError
from comity.federation.messages.channel import (
    ABSENT,
    BEAT,
    FAILED,
    MAX_BYTES,
    NO_TIMEOUT,
    Message,
    PendingAsk,
    Timeouts,
)
from comity.federation.owner.host import Answer

log = logging.getLogger("comity.site")

_LONG = 0.02
"""A step that takes more seconds than this is long: steps of other parties run beside it."""


class Answering(Protocol):
    """Answers the asks of one party, as a `Host` does."""

    def answer(self, raw: bytes) -> Answer: ...


class LocalChannel:
    """Calls each party's host, with the same bytes as a deployment.

    While steps are short, one thread calls the hosts in turn: threads that share an interpreter cost more than they
    gain. Beside a long step, other threads call a few more hosts. A party that waits for its turn or computes counts as
    alive, because it is in this process. A message is made when its turn comes: memory holds one for each thread.
    A step that is running when the ask is closed runs to its end. `refusals` are the owners' sentences by party: in a
    simulation the coordinator and the owner are one person.
    """

    def __init__(self, hosts: Mapping[str, Answering], *, most: int = MAX_BYTES, beat: float = BEAT) -> None:
        self._hosts = hosts
        self._most = most
        self._beat = beat
        # At least two: one slow site must not delay the others.
        self._workers = max(2, min(4, cpu_count() or 1))
        self.refusals: dict[str, ComityError] = {}

    def ask(self, messages: Mapping[str, Message], *, timeouts: Timeouts = NO_TIMEOUT) -> PendingAsk:
        asking = PendingAsk(
            messages, timeouts, most=self._most, showing=lambda: asking.open, beat=self._beat, every=_LONG
        )
        workers = min(self._workers, len(messages))
        turns = _Turns(messages, workers)
        for place in range(workers):
            Thread(target=self._work, args=(asking, turns, place == 0), name="local sites", daemon=True).start()
        return asking

    def _work(self, asking: PendingAsk, turns: _Turns, at_once: bool) -> None:
        error: BaseException | None = None
        try:
            for party, make in turns if at_once or turns.one_is_long() else ():
                if asking.waits_for(party):
                    self._answer(asking, party, make)
        except BaseException as raised:
            # The site is not at fault: a message can't be made, or the process is ending.
            error = raised
        if turns.leave(error) and turns.error is not None:
            asking.failed(turns.error)

    def _answer(self, asking: PendingAsk, party: str, make: Message) -> None:
        host = self._hosts.get(party)
        if host is None:
            asking.lost(party, ABSENT)
            return
        message = make()
        if not asking.fits(party, len(message)):
            return
        try:
            answer = host.answer(message)
        except Exception:
            log.exception("%s failed", party)
            asking.lost(party, FAILED)
            return
        del message
        if answer.refusal is not None:
            self.refusals[party] = answer.refusal
        asking.replied(party, answer.reply, wait=True)


class _Turns:
    """Hands each party and its message to one worker. After an error it hands out no more, and the last worker to leave
    reports the error: by then no step is running."""

    def __init__(self, messages: Mapping[str, Message], workers: int) -> None:
        self._left = iter(messages.items())
        self._workers = workers
        self._lock = Lock()
        self._handed_out = 0
        self._over = Event()
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[tuple[str, Message]]:
        while True:
            with self._lock:
                turn = None if self.error is not None else next(self._left, None)
                self._handed_out += 1
            if turn is None:
                self._over.set()
                return
            yield turn

    def one_is_long(self) -> bool:
        """Wait until no turn was taken for a while; False if all turns are taken before that."""
        while True:
            before = self._handed_out
            if self._over.wait(_LONG):
                return False
            if self._handed_out == before:
                return True

    def leave(self, error: BaseException | None) -> bool:
        """Count a worker out. Returns whether it was the last."""
        with self._lock:
            self.error = self.error or error
            self._workers -= 1
            return self._workers == 0

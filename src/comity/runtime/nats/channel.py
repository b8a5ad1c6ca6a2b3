"""The coordinator's side: a `Channel` over the relay.

At each beat the coordinator repeats its open asks, without the messages. That one habit finds silent sites, wakes up
those that restarted, and pulls again what was lost on the way; sites have no clock. Who is absent, because nobody
listens at its subject, the relay says at once; it is lost when it has stayed absent for `grace`, which a start takes,
and no patience of an ask counts until then. While our own connection is down nobody is counted as lost.

A few messages are held at once, while their sites pull them; a message that is wanted again is made again. Replies are
pulled when there is room for them, and all pieces that are on their way to us at once stay far below what the relay
keeps for one connection before it cuts it, however many parties there are.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from io import BytesIO
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from nats.aio.msg import Msg

from comity.errors import BadInput
from comity.federation.messages.asking import ABSENT, FAILED, SIZE, Asking
from comity.federation.messages.channel import FOR_EVER, MOST, Message, Patience
from comity.runtime.nats.dialling import Relay
from comity.runtime.nats.frames import ID_BYTES, PIECE, SHORT, WINDOW, Frame, Kind, Pulling, id_of, piece_of
from comity.runtime.nats.link import Link
from comity.runtime.nats.subjects import COORDINATOR, ask_subject, checked_party, reply_subject

log = logging.getLogger("comity.coordinator")

BEAT = 1.0
"""Seconds between two repetitions of an open ask."""
GRACE = 10.0
"""Seconds for which nobody may listen at a party's subject: a site that restarts is back by then."""
SILENT = 10.0
"""What a deployment's patience says of parties that show no life."""
PULLED = 64
"""Pieces of all replies that are on their way to us at once: 16 MiB, an eighth of what the relay keeps for us."""
_MADE, _MADE_BYTES = 4, 64 << 20
_STALLED = 3
_SOON = 0.02
_TRIES = 3


@dataclass(eq=False)
class _Call:
    """One ask of one party, until there is an outcome or nobody waits for it."""

    asking: Asking
    party: str
    make: Message
    kind: Kind = Kind.ASK
    id: bytes = b""
    size: int = 0
    message: bytes | None = None
    idle: int = 0
    making: bool = True
    pulls: set[int] = field(default_factory=set)
    absent: float | None = None
    reply: Pulling | None = None
    arrived: BytesIO = field(default_factory=BytesIO)
    offered: tuple[bytes, int] | None = None
    tries: int = 0


class NatsChannel:
    """Asks parties over the relay. Use it in a `with` block: it has a connection and two threads."""

    def __init__(
        self,
        relay: Relay,
        parties: Iterable[str],
        *,
        most: int = MOST,
        grace: float = GRACE,
        beat: float = BEAT,
    ) -> None:
        relay.require()
        self._parties = {reply_subject(checked_party(party)): party for party in parties}
        self._most, self._grace, self._beat = most, grace, beat
        # Of the loop's thread alone.
        self._calls: dict[tuple[str, bytes], list[_Call]] = {}
        self._pulling: dict[_Call, None] = {}
        self._offered: dict[_Call, None] = {}
        self._ticked = time.monotonic()
        # Shared with the thread that makes messages.
        self._wanted: SimpleQueue[_Call | None] = SimpleQueue()
        self._room = threading.Condition()
        self._held: dict[_Call, int] = {}
        self._waiting: set[_Call] = set()
        # Shared with whoever asks: those that are open, also while their messages are on the way to the loop.
        self._asked: set[Asking] = set()
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._link = Link(relay, COORDINATOR, self._parties, self._received)
        self._maker = threading.Thread(target=self._make_messages, name="messages to sites", daemon=True)
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()
        self._maker.start()

    def ask(self, messages: Mapping[str, Message], *, patience: Patience = FOR_EVER) -> Asking:
        return self._begin(messages, patience, Kind.ASK)

    def submit(self, packs: Mapping[str, Message], *, patience: Patience = FOR_EVER) -> Asking:
        """As `ask`, with packed studies for the inboxes of sites."""
        return self._begin(packs, patience, Kind.STUDY)

    def _begin(self, messages: Mapping[str, Message], patience: Patience, kind: Kind) -> Asking:
        known = set(self._parties.values())
        asking = Asking(
            messages, patience, most=self._most, showing=lambda: self._excused_if_starved(asking), beat=self._beat
        )
        calls = [_Call(asking, party, make, kind) for party, make in messages.items() if party in known]
        for party in messages:
            if party not in known:
                asking.lost(party, ABSENT)
        with self._room:
            self._waiting.update(calls)
            self._asked.add(asking)
        asking.at_close(lambda: self._soon(self._forget, calls, asking))
        for call in calls:
            self._wanted.put(call)
        return asking

    @property
    def is_up(self) -> bool:
        """Whether there is a connection to the relay now."""
        return self._link.is_up

    @property
    def trouble(self) -> str:
        """Why there is none, in the words of whoever said so; empty where nothing is wrong."""
        return self._link.trouble

    def close(self) -> None:
        """End the connection and the threads; asks that are open are told."""
        if self._closing:
            return
        self._do(self._end())
        with self._room:
            self._closing = True
            self._room.notify_all()
        self._wanted.put(None)
        self._maker.join()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> NatsChannel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Threads.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._tasks = [self._loop.create_task(work) for work in (self._link.run(), self._beats(), self._claims())]
        self._loop.run_forever()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.result()

    def _soon(self, call: Any, *arguments: Any) -> None:
        if not self._closing:
            self._loop.call_soon_threadsafe(call, *arguments)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    async def _end(self) -> None:
        for calls in list(self._calls.values()):
            for call in list(calls):
                call.asking.failed(BadInput("the channel was closed while an ask was open", code="closed"))
                await self._finish(call)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _excused_if_starved(self, asking: Asking) -> Iterable[str]:
        """Where this process did something else for long, nobody read what the parties said."""
        if time.monotonic() - self._ticked > 2 * self._beat:
            asking.excused()
        return ()

    # Messages, made one after the other while few are held.

    def _make_messages(self) -> None:
        while (call := self._wanted.get()) is not None:
            with self._room:
                self._room.wait_for(lambda: self._closing or self._has_room())
            if call.asking.waits_for(call.party) and not self._closing:
                self._make(call)
            with self._room:
                self._waiting.discard(call)

    def _has_room(self) -> bool:
        return len(self._held) < _MADE and sum(self._held.values()) < _MADE_BYTES

    def _make(self, call: _Call) -> None:
        try:
            raw = call.make()
        except BaseException as error:
            call.asking.failed(error)
            return
        if not call.asking.fits(call.party, len(raw)):
            return
        name = id_of(raw)
        if call.id not in (b"", name):
            call.asking.failed(BadInput(f"the message to {call.party} is another when it is made again", code="form"))
            return
        if len(raw) > SHORT:
            with self._room:
                self._held[call] = len(raw)
        self._soon(self._made, call, name, raw)

    def _let_go(self, call: _Call) -> None:
        call.message, call.idle = None, 0
        with self._room:
            if self._held.pop(call, None) is not None:
                self._room.notify_all()

    def _made(self, call: _Call, name: bytes, raw: bytes) -> None:
        call.making = False
        if not call.asking.waits_for(call.party):
            self._let_go(call)
            return
        if len(raw) > SHORT:
            call.message = raw
        if not call.id:
            call.id, call.size = name, len(raw)
            self._calls.setdefault((call.party, name), []).append(call)
            self._start(self._offer(call, raw if len(raw) <= SHORT else b""))
        else:
            numbers, call.pulls = sorted(call.pulls), set()
            self._start(self._give(call, raw, numbers))

    # Asks.

    async def _offer(self, call: _Call, body: bytes = b"") -> None:
        # With a subject to answer to, the relay says at once when nobody listens.
        frame = Frame(call.kind, call.id, call.size, body)
        await self._link.send(ask_subject(call.party), frame, reply_subject(call.party))

    async def _give(self, call: _Call, message: bytes, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number * PIECE < len(message):
                piece = Frame(Kind.PIECE, call.id, number, piece_of(message, number))
                await self._link.send(ask_subject(call.party), piece)

    async def _pulled(self, call: _Call, number: int) -> None:
        call.idle = 0
        if call.message is not None:
            await self._give(call, call.message, [number])
            return
        call.pulls.add(number)
        if not call.making:
            call.making = True
            with self._room:
                self._waiting.add(call)
            self._wanted.put(call)

    def _forget(self, calls: Iterable[_Call], asking: Asking) -> None:
        with self._room:
            self._asked.discard(asking)
        for call in calls:
            self._start(self._finish(call))

    async def _finish(self, call: _Call) -> None:
        """Nobody waits for this any more: the site may forget it."""
        self._let_go(call)
        self._pulling.pop(call, None)
        self._offered.pop(call, None)
        same = self._calls.get((call.party, call.id), [])
        if call in same:
            same.remove(call)
            if not same:
                del self._calls[call.party, call.id]
                await self._link.send(ask_subject(call.party), Frame(Kind.DONE, call.id))

    # The clock.

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(self._beat)
            with self._room:
                waiting, asked = list(self._waiting), list(self._asked)
            for asking in asked:
                self._excused_if_starved(asking)
            self._ticked = time.monotonic()
            for call in waiting:
                call.asking.excused(call.party)
            for call in [call for calls in self._calls.values() for call in calls]:
                try:
                    await self._repeat(call)
                except Exception as error:
                    # The beat goes on whatever happens to one ask: without it nothing would ever be noticed.
                    call.asking.failed(error)

    async def _repeat(self, call: _Call) -> None:
        if not call.asking.waits_for(call.party):
            await self._finish(call)
        elif not self._link.is_up:
            call.absent = None
            call.asking.excused(call.party)
        else:
            if call.absent is not None:
                self._still_absent(call)
            if call.message is not None:
                call.idle += 1
                if call.idle > _STALLED:
                    self._let_go(call)
            await self._offer(call)
            if call.reply is not None:
                call.reply.again()
                await self._pull()

    def _still_absent(self, call: _Call) -> None:
        assert call.absent is not None
        call.asking.excused(call.party)
        if time.monotonic() - call.absent >= self._grace:
            call.asking.lost(call.party, ABSENT)

    def _nobody_listens(self, party: str) -> None:
        for (asked, _), calls in self._calls.items():
            for call in calls if asked == party else ():
                if call.absent is None:
                    call.absent = time.monotonic()
                    log.info("%s: nobody listens there", party)
                self._let_go(call)
                self._still_absent(call)

    # What sites say.

    async def _received(self, message: Msg) -> None:
        party = self._parties[message.subject]
        if message.headers and message.headers.get("Status") == "503":
            self._nobody_listens(party)
            return
        frame = Frame.of(message.data)
        if frame is None:
            return
        if frame.kind is Kind.PIECE:
            await self._put(party, frame)
            return
        for call in list(self._calls.get((party, frame.id), ())):
            call.absent = None
            call.asking.alive(party)
            await self._said(call, frame)

    async def _said(self, call: _Call, frame: Frame) -> None:
        match frame.kind:
            case Kind.PULL:
                await self._pulled(call, frame.number)
            case Kind.HAVE:
                self._let_go(call)
            case Kind.REPLY if len(frame.body) == ID_BYTES + frame.number:
                await self._replied(call, bytes(frame.body[ID_BYTES:]))
            case Kind.REPLY if len(frame.body) == ID_BYTES:
                await self._offered_reply(call, bytes(frame.body), frame.number)
            case Kind.FAILED:
                call.asking.lost(call.party, SIZE if frame.body == b"size" else FAILED)
                await self._finish(call)

    async def _replied(self, call: _Call, reply: bytes) -> None:
        call.asking.replied(call.party, reply)
        await self._finish(call)

    async def _offered_reply(self, call: _Call, name: bytes, size: int) -> None:
        self._let_go(call)
        if call.reply is not None and call.reply.id == name:
            return
        self._pulling.pop(call, None)
        call.reply, call.offered = None, (name, size)
        await self._claim(call)

    async def _claim(self, call: _Call) -> None:
        """Begin to pull a reply if there is room for it; otherwise it is looked at again soon."""
        assert call.offered is not None
        name, size = call.offered
        if not call.asking.fits(call.party, size) or not call.asking.waits_for(call.party):
            await self._finish(call)
        elif call.asking.claim(call.party, size):
            self._offered.pop(call, None)
            call.reply, call.arrived = Pulling(name, size), BytesIO()
            self._pulling[call] = None
            await self._pull()
        else:
            self._offered[call] = None

    async def _claims(self) -> None:
        while True:
            await asyncio.sleep(_SOON if self._offered else self._beat / 10)
            for call in list(self._offered):
                # A reply that waits for us is nobody's silence.
                call.asking.excused(call.party)
                await self._claim(call)

    async def _pull(self) -> None:
        room = PULLED - sum(call.reply.under_way for call in self._pulling if call.reply is not None)
        for call in list(self._pulling):
            if room <= 0:
                return
            if call.reply is not None:
                for number in call.reply.wanted(min(room, WINDOW)):
                    room -= 1
                    await self._link.send(ask_subject(call.party), Frame(Kind.PULL, call.reply.id, number))

    async def _put(self, party: str, frame: Frame) -> None:
        for call in list(self._pulling):
            if call.party != party or call.reply is None or call.reply.id != frame.id:
                continue
            call.asking.alive(party)
            if call.reply.takes(frame.number, frame.body):
                call.arrived.write(frame.body)
            if call.reply.is_whole:
                await self._whole(call)
        await self._pull()

    async def _whole(self, call: _Call) -> None:
        assert call.reply is not None
        name, size, is_true = call.reply.id, call.reply.size, call.reply.is_true
        del self._pulling[call]
        if is_true:
            reply, call.arrived = call.arrived.getvalue(), BytesIO()
            await self._replied(call, reply)
            return
        call.tries += 1
        if call.tries < _TRIES:
            call.reply, call.offered = None, (name, size)
            await self._claim(call)
        else:
            call.asking.lost(call.party, FAILED)
            await self._finish(call)

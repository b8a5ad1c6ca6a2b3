"""The coordinator's side of the relay: a `Channel` over NATS.

Repeats    Once a second the coordinator repeats its open asks, without the messages. That alone finds silent sites,
           wakes restarted ones, and pulls again what was lost; sites need no clock.
Absence    The relay reports at once when nobody subscribes to a party's subject. That party is lost after the grace
           period, the time that a restart takes; until then no timeout of an ask counts. While the coordinator's own
           connection is down, no party is counted as lost.
Memory     `OutgoingQueue` holds a few messages at once while their sites pull them. `IncomingReplies` pulls replies
           when there is room, and keeps all pieces in flight far below what the relay buffers for one connection,
           however many parties there are.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from io import BytesIO
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from nats.aio.msg import Msg

from comity.errors import BadInput, Stopped
from comity.federation.coordinator.replies import plain
from comity.federation.messages.asking import ABSENT, FAILED, SIZE, Asking
from comity.federation.messages.channel import FOR_EVER, MOST, Message, Patience
from comity.relay.address import Relay, dial_relay
from comity.relay.link import Link
from comity.relay.wire import (
    COORDINATOR,
    ID_BYTES,
    PIECE,
    SHORT,
    WINDOW,
    Frame,
    Kind,
    Pulling,
    ask_subject,
    checked_party,
    id_of,
    piece_of,
    reply_subject,
)


@dataclass(eq=False)
class Call:
    """Until there is an outcome or nobody waits for it."""

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

    @property
    def is_waited_for(self) -> bool:
        return self.asking.waits_for(self.party)


_MADE, _MADE_BYTES = 4, 64 << 20


class Making:
    """`made(call, id, message)` is called on the thread that makes them, with each message that may go."""

    def __init__(self, made: Callable[[Call, bytes, bytes], None]) -> None:
        self._made = made
        self._wanted: SimpleQueue[Call | None] = SimpleQueue()
        # Guards all that follows: several threads want messages and let go of them.
        self._room = threading.Condition()
        self._held: dict[Call, int] = {}
        self._waiting: set[Call] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="messages to sites", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._room:
            self._closing = True
            self._room.notify_all()
        self._wanted.put(None)
        self._thread.join()

    def want(self, calls: Sequence[Call]) -> None:
        with self._room:
            self._waiting.update(calls)
        for call in calls:
            self._wanted.put(call)

    @property
    def waiting(self) -> list[Call]:
        """Those whose messages are not made yet, for which no party can be blamed."""
        with self._room:
            return list(self._waiting)

    def let_go(self, call: Call) -> None:
        """Whoever wants this message again has it made again."""
        call.message, call.idle = None, 0
        with self._room:
            if self._held.pop(call, None) is not None:
                self._room.notify_all()

    def _run(self) -> None:
        while (call := self._wanted.get()) is not None:
            with self._room:
                self._room.wait_for(lambda: self._closing or self._has_room())
            if call.is_waited_for and not self._closing:
                self._make(call)
            with self._room:
                self._waiting.discard(call)

    def _has_room(self) -> bool:
        return len(self._held) < _MADE and sum(self._held.values()) < _MADE_BYTES

    def _make(self, call: Call) -> None:
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
        self._made(call, name, raw)


PULLED = 64
"""Pieces of all replies that are on their way to us at once: 16 MiB, an eighth of what the relay keeps for us."""
_SOON = 0.02
_TRIES = 3


class Replies:
    """`send` brings a frame to a party, `replied` is told of a reply that is whole, `over` of a call without one."""

    def __init__(
        self,
        *,
        send: Callable[[str, Frame], Awaitable[None]],
        replied: Callable[[Call, bytes], Awaitable[None]],
        over: Callable[[Call], Awaitable[None]],
    ) -> None:
        self._send, self._replied, self._over = send, replied, over
        self._pulling: dict[Call, None] = {}
        self._offered: dict[Call, None] = {}

    def forget(self, call: Call) -> None:
        self._pulling.pop(call, None)
        self._offered.pop(call, None)

    async def offered(self, call: Call, name: bytes, size: int) -> None:
        """A site has a reply of this size."""
        if call.reply is not None and call.reply.id == name:
            return
        self._pulling.pop(call, None)
        call.reply, call.offered = None, (name, size)
        await self._claim(call)

    async def again(self, call: Call) -> None:
        """Pull again what was lost on the way."""
        if call.reply is not None:
            call.reply.again()
            await self._pull()

    async def put(self, party: str, frame: Frame) -> None:
        """A piece of a reply has arrived."""
        for call in list(self._pulling):
            if call.party != party or call.reply is None or call.reply.id != frame.id:
                continue
            call.asking.alive(party)
            if call.reply.takes(frame.number, frame.body):
                call.arrived.write(frame.body)
            if call.reply.is_whole:
                await self._whole(call)
        await self._pull()

    async def claims(self, pause: float) -> None:
        """For ever: replies that found no room are looked at again soon."""
        while True:
            await asyncio.sleep(_SOON if self._offered else pause)
            for call in list(self._offered):
                # A reply that waits for us is nobody's silence.
                call.asking.excused(call.party)
                await self._claim(call)

    async def _claim(self, call: Call) -> None:
        assert call.offered is not None
        name, size = call.offered
        if not call.asking.fits(call.party, size) or not call.is_waited_for:
            await self._over(call)
        elif call.asking.claim(call.party, size):
            self._offered.pop(call, None)
            call.reply, call.arrived = Pulling(name, size), BytesIO()
            self._pulling[call] = None
            await self._pull()
        else:
            self._offered[call] = None

    async def _pull(self) -> None:
        room = PULLED - sum(call.reply.under_way for call in self._pulling if call.reply is not None)
        for call in list(self._pulling):
            if room <= 0:
                return
            if call.reply is not None:
                for number in call.reply.wanted(min(room, WINDOW)):
                    room -= 1
                    await self._send(call.party, Frame(Kind.PULL, call.reply.id, number))

    async def _whole(self, call: Call) -> None:
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
            await self._over(call)


log = logging.getLogger("comity.coordinator")

BEAT = 1.0
"""Seconds between two repetitions of an open ask."""
GRACE = 10.0
"""Seconds for which nobody may listen at a party's subject: a site that restarts is back by then."""
REACHED_WITHIN = 5.0
"""Seconds for a first connection to the relay, after which whoever waits hears why there is none."""
SILENT = 10.0
"""What a deployment's patience says of parties that show no life."""
_STALLED = 3
_LOOK = 0.05


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
        self._relay = relay
        self._parties = {reply_subject(checked_party(party)): party for party in parties}
        self._most, self._grace, self._beat = most, grace, beat
        # Of the loop's thread alone.
        self._calls: dict[tuple[str, bytes], list[Call]] = {}
        self._replies = Replies(send=self._send, replied=self._replied, over=self._finish)
        self._ticked = time.monotonic()
        # Shared with whoever asks: those that are open, also while their messages are on the way to the loop.
        self._asked: set[Asking] = set()
        self._lock = threading.Lock()
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._link = Link(relay, COORDINATOR, self._parties, self._received)
        self._making = Making(lambda call, name, raw: self._soon(self._made, call, name, raw))
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()
        self._making.start()

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
        calls = [Call(asking, party, make, kind) for party, make in messages.items() if party in known]
        for party in messages:
            if party not in known:
                asking.lost(party, ABSENT)
        with self._lock:
            self._asked.add(asking)
        asking.at_close(lambda: self._soon(self._forget, calls, asking))
        self._making.want(calls)
        return asking

    @property
    def is_up(self) -> bool:
        """Whether there is a connection to the relay now."""
        return self._link.is_up

    def require_up(self, seconds: float = REACHED_WITHIN) -> None:
        """Wait so long for the first connection; stops with what is known of the reason where there is none."""
        end = time.monotonic() + seconds
        while not self.is_up:
            if time.monotonic() > end:
                reached = dial_relay(self._relay)
                why = reached.explain(self._relay.address)
                if reached.state == "answers":
                    why = f"{self._relay.address}: {plain(self.trouble) or 'no word of it'}"
                raise Stopped(f"the relay is not reached: {why}")
            time.sleep(_LOOK)

    @property
    def trouble(self) -> str:
        """Why there is none, in the words of whoever said so; empty where nothing is wrong."""
        return self._link.trouble

    def close(self) -> None:
        """End the connection and the threads; asks that are open are told."""
        if self._closing:
            return
        self._do(self._end())
        self._closing = True
        self._making.close()
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
        works = (self._link.run(), self._beats(), self._replies.claims(self._beat / 10))
        self._tasks = [self._loop.create_task(work) for work in works]
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

    # Asks.

    def _made(self, call: Call, name: bytes, raw: bytes) -> None:
        call.making = False
        if not call.is_waited_for:
            self._making.let_go(call)
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

    async def _offer(self, call: Call, body: bytes = b"") -> None:
        # With a subject to answer to, the relay says at once when nobody listens.
        frame = Frame(call.kind, call.id, call.size, body)
        await self._link.send(ask_subject(call.party), frame, reply_subject(call.party))

    async def _send(self, party: str, frame: Frame) -> None:
        await self._link.send(ask_subject(party), frame)

    async def _give(self, call: Call, message: bytes, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number * PIECE < len(message):
                piece = Frame(Kind.PIECE, call.id, number, piece_of(message, number))
                await self._send(call.party, piece)

    async def _pulled(self, call: Call, number: int) -> None:
        call.idle = 0
        if call.message is not None:
            await self._give(call, call.message, [number])
            return
        call.pulls.add(number)
        if not call.making:
            call.making = True
            self._making.want([call])

    def _forget(self, calls: Iterable[Call], asking: Asking) -> None:
        with self._lock:
            self._asked.discard(asking)
        for call in calls:
            self._start(self._finish(call))

    async def _finish(self, call: Call) -> None:
        """Nobody waits for this any more: the site may forget it."""
        self._making.let_go(call)
        self._replies.forget(call)
        same = self._calls.get((call.party, call.id), [])
        if call in same:
            same.remove(call)
            if not same:
                del self._calls[call.party, call.id]
                await self._send(call.party, Frame(Kind.DONE, call.id))

    # The clock.

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(self._beat)
            with self._lock:
                asked = list(self._asked)
            for asking in asked:
                self._excused_if_starved(asking)
            self._ticked = time.monotonic()
            for call in self._making.waiting:
                call.asking.excused(call.party)
            for call in [call for calls in self._calls.values() for call in calls]:
                try:
                    await self._repeat(call)
                except Exception as error:
                    # The beat goes on whatever happens to one ask: without it nothing would ever be noticed.
                    call.asking.failed(error)

    async def _repeat(self, call: Call) -> None:
        if not call.is_waited_for:
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
                    self._making.let_go(call)
            await self._offer(call)
            await self._replies.again(call)

    def _still_absent(self, call: Call) -> None:
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
                self._making.let_go(call)
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
            await self._replies.put(party, frame)
            return
        for call in list(self._calls.get((party, frame.id), ())):
            call.absent = None
            call.asking.alive(party)
            await self._said(call, frame)

    async def _said(self, call: Call, frame: Frame) -> None:
        match frame.kind:
            case Kind.PULL:
                await self._pulled(call, frame.number)
            case Kind.HAVE:
                self._making.let_go(call)
            case Kind.REPLY if len(frame.body) == ID_BYTES + frame.number:
                await self._replied(call, bytes(frame.body[ID_BYTES:]))
            case Kind.REPLY if len(frame.body) == ID_BYTES:
                self._making.let_go(call)
                await self._replies.offered(call, bytes(frame.body), frame.number)
            case Kind.FAILED:
                call.asking.lost(call.party, SIZE if frame.body == b"size" else FAILED)
                await self._finish(call)

    async def _replied(self, call: Call, reply: bytes) -> None:
        call.asking.replied(call.party, reply)
        await self._finish(call)

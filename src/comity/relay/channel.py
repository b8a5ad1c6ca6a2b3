"""The coordinator's side of the relay: a `Channel` over NATS.

Stages     An ask passes these stages. Each has one name, here and in the site's `agent`; frames are in capitals.
            1  make      the coordinator signs the ask, seals it, and queues it (`OutgoingQueue`)
            2  offer     it sends the message's id and size, and a short message itself: ASK. The first pieces of a
                         longer one follow unasked
            3  pull      the agent requests the pieces that it lacks: PULL
            4  give      the coordinator sends each: PIECE
            5  have      the agent has the whole message and passes it to the process that answers: HAVE
            6  answer    service, registry and host answer; the host stores the reply before it leaves. The agent
                         shows life meanwhile: ALIVE
            7  offer     the agent sends the reply's id and size, and a short reply itself: REPLY. The first pieces of
                         a longer one follow unasked, as many as the ask has room for
            8  pull      the coordinator requests the pieces of a longer reply (`IncomingReplies`): PULL
            9  give      the agent sends each: PIECE
           10  deliver   the coordinator hands the reply to the `PendingAsk`, which opens it
           11  finish    both sides forget the ask: DONE
           A packed study passes the same stages: STUDY in place of ASK, and the site receives it instead of answering.
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
from typing import Any

from nats.aio.msg import Msg

from comity.errors import BadInput, Stopped
from comity.federation.coordinator.replies import plain
from comity.federation.messages.channel import (
    ABSENT,
    FAILED,
    MAX_BYTES,
    NO_TIMEOUT,
    SIZE,
    Message,
    PendingAsk,
    Timeouts,
)
from comity.relay.address import RelayAddress, probe_relay
from comity.relay.link import Link
from comity.relay.wire import (
    COORDINATOR,
    ID_BYTES,
    INLINE_BYTES,
    MAX_PUSHED_PIECES,
    MAX_WINDOW_PIECES,
    PIECE_BYTES,
    TOO_LARGE,
    Frame,
    Kind,
    PulledMessage,
    ask_subject,
    count_pieces,
    get_piece,
    message_id,
    reply_subject,
    require_party_name,
)

log = logging.getLogger("comity.coordinator")


@dataclass(eq=False)
class RelayRequest:
    """One ask of one party, until there is an outcome or nobody waits for it."""

    pending: PendingAsk
    party: str
    make: Message
    kind: Kind = Kind.ASK
    room: int = 0
    id: bytes = b""
    size: int = 0
    message: bytes | None = None
    idle: int = 0
    queued: bool = True
    pulls: set[int] = field(default_factory=set)
    absent: float | None = None
    reply: PulledMessage | None = None
    received: BytesIO = field(default_factory=BytesIO)
    offered: tuple[bytes, int] | None = None
    tries: int = 0
    pause: float = 0.0
    offered_at: float = 0.0

    @property
    def is_waited_for(self) -> bool:
        return self.pending.waits_for(self.party)


_MAX_HELD, _MAX_HELD_BYTES = 4, 64 << 20


class OutgoingQueue:
    """Makes messages to sites one after the other, on one thread, while only a few are held in memory.

    It calls `made(request, id, message)` on that thread with each message that may be sent."""

    def __init__(self, made: Callable[[RelayRequest, bytes, bytes], None]) -> None:
        self._made = made
        self._queue: SimpleQueue[RelayRequest | None] = SimpleQueue()
        # Guards the attributes below, which several threads use.
        self._room = threading.Condition()
        self._held: dict[RelayRequest, int] = {}
        self._waiting: set[RelayRequest] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="messages to sites", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._room:
            self._closing = True
            self._room.notify_all()
        self._queue.put(None)
        self._thread.join()

    def add(self, requests: Sequence[RelayRequest]) -> None:
        with self._room:
            self._waiting.update(requests)
        for request in requests:
            self._queue.put(request)

    @property
    def waiting(self) -> list[RelayRequest]:
        """Requests whose messages are not made yet; their parties are not late."""
        with self._room:
            return list(self._waiting)

    def release(self, request: RelayRequest) -> None:
        """Drop a message from memory; it is made again if the site pulls it again."""
        request.message, request.idle = None, 0
        with self._room:
            if self._held.pop(request, None) is not None:
                self._room.notify_all()

    def _run(self) -> None:
        while (request := self._queue.get()) is not None:
            with self._room:
                self._room.wait_for(lambda: self._closing or self._has_room())
            if request.is_waited_for and not self._closing:
                self._make(request)
            with self._room:
                self._waiting.discard(request)

    def _has_room(self) -> bool:
        return len(self._held) < _MAX_HELD and sum(self._held.values()) < _MAX_HELD_BYTES

    def _make(self, request: RelayRequest) -> None:
        try:
            raw = request.make()
        except BaseException as error:
            request.pending.failed(error)
            return
        if not request.pending.fits(request.party, len(raw)):
            return
        name = message_id(raw)
        if request.id not in (b"", name):
            changed = f"the message to {request.party} changed when it was made again"
            request.pending.failed(BadInput(changed, code="form"))
            return
        if len(raw) > INLINE_BYTES:
            with self._room:
                self._held[request] = len(raw)
        self._made(request, name, raw)


MAX_PIECES_IN_FLIGHT = 64
"""Pieces of all replies together: 16 MiB, an eighth of what the relay buffers for this connection."""
_CLAIM_SECONDS = 0.02
_MAX_TRIES = 3


class IncomingReplies:
    """Pulls replies of sites when there is room for them. Belongs to the thread of the channel's loop.

    It calls `send` with a frame for a party, `deliver` with a whole reply, and `finish` with a request that gets no
    reply."""

    def __init__(
        self,
        *,
        send: Callable[[str, Frame], Awaitable[None]],
        deliver: Callable[[RelayRequest, bytes], Awaitable[None]],
        finish: Callable[[RelayRequest], Awaitable[None]],
    ) -> None:
        self._send, self._deliver, self._finish = send, deliver, finish
        self._pulling: dict[RelayRequest, None] = {}
        self._offered: dict[RelayRequest, None] = {}

    def forget(self, request: RelayRequest) -> None:
        self._pulling.pop(request, None)
        self._offered.pop(request, None)

    async def take_offer(self, request: RelayRequest, name: bytes, size: int, pushed: int = 0) -> None:
        """Note that a site offers a reply of this size, and pull it once there is room. `pushed` pieces follow unasked;
        they are lost where there is no room."""
        if request.reply is not None and request.reply.id == name:
            return
        self._pulling.pop(request, None)
        request.reply, request.offered = None, (name, size)
        await self._claim(request, min(pushed, request.room))

    async def retry(self, request: RelayRequest) -> None:
        """Request again the pieces that were lost."""
        if request.reply is not None:
            request.reply.retry()
            await self._pull()

    async def take_piece(self, party: str, frame: Frame) -> None:
        for request in list(self._pulling):
            if request.party != party or request.reply is None or request.reply.id != frame.id:
                continue
            request.pending.alive(party)
            if request.reply.accept(frame.number, frame.body):
                request.received.write(frame.body)
            if request.reply.is_whole:
                await self._take_whole(request)
        await self._pull()

    async def claim_waiting(self, pause: float) -> None:
        """Until cancelled: try again soon to claim room for the replies that found none."""
        while True:
            await asyncio.sleep(_CLAIM_SECONDS if self._offered else pause)
            for request in list(self._offered):
                # The site has answered: it is not silent while its reply waits for room here.
                request.pending.excused(request.party)
                await self._claim(request)

    async def _claim(self, request: RelayRequest, pushed: int = 0) -> None:
        assert request.offered is not None
        name, size = request.offered
        if not request.pending.fits(request.party, size) or not request.is_waited_for:
            await self._finish(request)
        elif request.pending.claim(request.party, size):
            self._offered.pop(request, None)
            request.reply, request.received = PulledMessage(name, size, pushed), BytesIO()
            self._pulling[request] = None
            await self._pull()
        else:
            self._offered[request] = None

    async def _pull(self) -> None:
        room = MAX_PIECES_IN_FLIGHT - sum(one.reply.in_flight for one in self._pulling if one.reply is not None)
        for request in list(self._pulling):
            if room <= 0:
                return
            if request.reply is not None:
                for number in request.reply.next_pieces(min(room, MAX_WINDOW_PIECES)):
                    room -= 1
                    await self._send(request.party, Frame(Kind.PULL, request.reply.id, number))

    async def _take_whole(self, request: RelayRequest) -> None:
        assert request.reply is not None
        name, size, is_intact = request.reply.id, request.reply.size, request.reply.is_intact
        del self._pulling[request]
        if is_intact:
            reply, request.received = request.received.getvalue(), BytesIO()
            await self._deliver(request, reply)
            return
        request.tries += 1
        if request.tries < _MAX_TRIES:
            request.reply, request.offered = None, (name, size)
            await self._claim(request)
        else:
            request.pending.lost(request.party, FAILED)
            await self._finish(request)


REPEAT_SECONDS = 1.0
"""Time between two repetitions of an open ask, while few are open."""
_MAX_REPEATS_PER_SECOND = 100
_MAX_REPEAT_SECONDS = 10.0
GRACE_SECONDS = 10.0
"""How long a party's subject may be without a subscriber: a restarting site is back by then."""
CONNECT_SECONDS = 5.0
"""How long to wait for the first connection to the relay before reporting why there is none."""
_MAX_IDLE_REPEATS = 3
_CHECK_SECONDS = 0.05


def longest_pause(requests: int, silent: float | None, every: float) -> float:
    """The longest time between two repetitions of an ask, while so many requests are open.

    Every second for a hundred parties; for more of them so much longer that the repetitions of all take no more
    messages. Otherwise a run over many sites would spend most of its time on repetitions: each makes the others later.
    A party shows that it lives by answering a repetition, so it has three chances to before it counts as silent."""
    most = _MAX_REPEAT_SECONDS if silent is None else min(_MAX_REPEAT_SECONDS, silent / 3)
    return max(every, min(requests / _MAX_REPEATS_PER_SECOND, most))


class NatsChannel:
    """Asks parties over the relay. Use it in a `with` block: it has a connection and two threads."""

    def __init__(
        self,
        relay: RelayAddress,
        parties: Iterable[str],
        *,
        max_bytes: int = MAX_BYTES,
        grace: float = GRACE_SECONDS,
        repeat_every: float = REPEAT_SECONDS,
    ) -> None:
        relay.check_files()
        self._relay = relay
        self._parties = {reply_subject(require_party_name(party)): party for party in parties}
        self._max_bytes, self._grace, self._repeat_every = max_bytes, grace, repeat_every
        # Used on the loop's thread alone.
        self._requests: dict[tuple[str, bytes], list[RelayRequest]] = {}
        self._replies = IncomingReplies(send=self._send, deliver=self._deliver, finish=self._finish)
        self._ticked = time.monotonic()
        # Shared with asking threads: the open asks, including those whose messages have not reached the loop.
        self._open: set[PendingAsk] = set()
        self._lock = threading.Lock()
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._link = Link(relay, COORDINATOR, self._parties, self._receive)
        self._outgoing = OutgoingQueue(lambda request, name, raw: self._call_soon(self._send_made, request, name, raw))
        self._thread = threading.Thread(target=self._run_loop, name="relay", daemon=True)
        self._thread.start()
        self._outgoing.start()

    def ask(self, messages: Mapping[str, Message], *, timeouts: Timeouts = NO_TIMEOUT) -> PendingAsk:
        return self._begin(messages, timeouts, Kind.ASK)

    def submit(self, packs: Mapping[str, Message], *, timeouts: Timeouts = NO_TIMEOUT) -> PendingAsk:
        """As `ask`, with packed studies for the sites' inboxes."""
        return self._begin(packs, timeouts, Kind.STUDY)

    def _begin(self, messages: Mapping[str, Message], timeouts: Timeouts, kind: Kind) -> PendingAsk:
        known = set(self._parties.values())
        pending = PendingAsk(
            messages,
            timeouts,
            most=self._max_bytes,
            showing=lambda: self._excuse_if_starved(pending),
            beat=self._repeat_every,
        )
        # All pieces that sites push are within what may be in flight.
        room = min(MAX_PUSHED_PIECES, MAX_PIECES_IN_FLIGHT // max(1, len(messages)))
        requests = [
            RelayRequest(pending, party, make, kind, room) for party, make in messages.items() if party in known
        ]
        for party in messages:
            if party not in known:
                pending.lost(party, ABSENT)
        with self._lock:
            self._open.add(pending)
        pending.at_close(lambda: self._call_soon(self._finish_all, requests, pending))
        self._outgoing.add(requests)
        return pending

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the relay now."""
        return self._link.is_connected

    def wait_until_connected(self, seconds: float = CONNECT_SECONDS) -> None:
        """Wait for the first connection; raise `Stopped` with the likely reason if there is none in time."""
        end = time.monotonic() + seconds
        while not self.is_connected:
            if time.monotonic() > end:
                probed = probe_relay(self._relay)
                why = probed.explain(self._relay.address)
                if probed.state == "answers":
                    why = f"{self._relay.address}: {plain(self.last_errors) or 'no reason given'}"
                raise Stopped(f"the relay is not reached: {why}")
            time.sleep(_CHECK_SECONDS)

    @property
    def last_errors(self) -> str:
        """Why there is no connection, as client and relay reported it; empty if nothing is wrong."""
        return self._link.last_errors

    def close(self) -> None:
        """End the connection and the threads; open asks fail."""
        if self._closing:
            return
        self._run_on_loop(self._end())
        self._closing = True
        self._outgoing.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> NatsChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Threads.

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        works = (self._link.run(), self._repeat_all(), self._replies.claim_waiting(self._repeat_every / 10))
        self._tasks = [self._loop.create_task(work) for work in works]
        self._loop.run_forever()

    def _run_on_loop(self, work: Coroutine[Any, Any, None]) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.result()

    def _call_soon(self, call: Any, *arguments: Any) -> None:
        if not self._closing:
            self._loop.call_soon_threadsafe(call, *arguments)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    async def _end(self) -> None:
        for requests in list(self._requests.values()):
            for request in list(requests):
                request.pending.failed(BadInput("the channel was closed while an ask was open", code="closed"))
                await self._finish(request)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _excuse_if_starved(self, pending: PendingAsk) -> Iterable[str]:
        """If this process was busy for long, it did not read what the parties sent, so none of them is late."""
        if time.monotonic() - self._ticked > 2 * self._repeat_every:
            pending.excused()
        return ()

    # Asks.

    def _send_made(self, request: RelayRequest, name: bytes, raw: bytes) -> None:
        request.queued = False
        if not request.is_waited_for:
            self._outgoing.release(request)
            return
        if len(raw) > INLINE_BYTES:
            request.message = raw
        if not request.id:
            request.id, request.size = name, len(raw)
            self._requests.setdefault((request.party, name), []).append(request)
            self._start(self._offer(request, raw) if len(raw) <= INLINE_BYTES else self._push(request, raw))
        else:
            numbers, request.pulls = sorted(request.pulls), set()
            self._start(self._give_pieces(request, raw, numbers))

    async def _push(self, request: RelayRequest, message: bytes) -> None:
        """Offer a long message, and send its first pieces unasked. A message that they hold all of is not kept here."""
        pushed = min(MAX_PUSHED_PIECES, count_pieces(len(message)))
        await self._offer(request, pushed=pushed)
        await self._give_pieces(request, message, range(pushed))
        if pushed == count_pieces(len(message)):
            self._outgoing.release(request)

    async def _offer(self, request: RelayRequest, body: bytes = b"", pushed: int = 0) -> None:
        request.offered_at = time.monotonic()
        # With a reply subject set, the relay reports at once that a subject has no subscriber.
        frame = Frame(request.kind, request.id, request.size, body, pushed, request.room)
        await self._link.send(ask_subject(request.party), frame, reply_subject(request.party))

    async def _send(self, party: str, frame: Frame) -> None:
        await self._link.send(ask_subject(party), frame)

    async def _give_pieces(self, request: RelayRequest, message: bytes, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number * PIECE_BYTES < len(message):
                piece = Frame(Kind.PIECE, request.id, number, get_piece(message, number))
                await self._send(request.party, piece)

    async def _give(self, request: RelayRequest, number: int) -> None:
        """Send a piece that the site pulls; make the message again if it is no longer held."""
        request.idle = 0
        if request.message is not None:
            await self._give_pieces(request, request.message, [number])
            return
        request.pulls.add(number)
        if not request.queued:
            request.queued = True
            self._outgoing.add([request])

    def _finish_all(self, requests: Iterable[RelayRequest], pending: PendingAsk) -> None:
        with self._lock:
            self._open.discard(pending)
        for request in requests:
            self._start(self._finish(request))

    async def _finish(self, request: RelayRequest) -> None:
        """Forget a request that nobody waits for, and tell the site that it may forget the ask too."""
        self._outgoing.release(request)
        self._replies.forget(request)
        same = self._requests.get((request.party, request.id), [])
        if request in same:
            same.remove(request)
            if not same:
                del self._requests[request.party, request.id]
                await self._send(request.party, Frame(Kind.DONE, request.id))

    # Repetitions.

    async def _repeat_all(self) -> None:
        while True:
            await asyncio.sleep(self._repeat_every)
            with self._lock:
                asked = list(self._open)
            for pending in asked:
                self._excuse_if_starved(pending)
            self._ticked = time.monotonic()
            for request in self._outgoing.waiting:
                request.pending.excused(request.party)
            open_now = [request for requests in self._requests.values() for request in requests]
            for request in open_now:
                try:
                    await self._repeat(request, len(open_now))
                except Exception as error:
                    # One failing ask must not stop the repetitions, which are what detects losses.
                    request.pending.failed(error)

    async def _repeat(self, request: RelayRequest, requests: int) -> None:
        if not request.is_waited_for:
            await self._finish(request)
        elif not self._link.is_connected:
            request.absent = None
            request.pending.excused(request.party)
        else:
            if request.absent is not None:
                self._still_absent(request)
            if request.message is not None:
                request.idle += 1
                if request.idle > _MAX_IDLE_REPEATS:
                    self._outgoing.release(request)
            await self._replies.retry(request)
            # A party that may be gone, or has just come back, is asked each time.
            since = time.monotonic() - request.offered_at
            if request.absent is not None or since >= request.pause - self._repeat_every / 2:
                limit = longest_pause(requests, request.pending.silent, self._repeat_every)
                request.pause = min(max(self._repeat_every, 2 * request.pause), limit)
                await self._offer(request)

    def _still_absent(self, request: RelayRequest) -> None:
        assert request.absent is not None
        request.pending.excused(request.party)
        if time.monotonic() - request.absent >= self._grace:
            request.pending.lost(request.party, ABSENT)

    def _mark_absent(self, party: str) -> None:
        for (asked, _), requests in self._requests.items():
            for request in requests if asked == party else ():
                if request.absent is None:
                    request.absent = time.monotonic()
                    log.info("%s is not connected to the relay; it has %.0f s to come back", party, self._grace)
                self._outgoing.release(request)
                self._still_absent(request)

    # Frames from sites.

    async def _receive(self, message: Msg) -> None:
        party = self._parties[message.subject]
        if message.headers and message.headers.get("Status") == "503":
            self._mark_absent(party)
            return
        frame = Frame.of(message.data)
        if frame is None:
            return
        if frame.kind is Kind.PIECE:
            await self._replies.take_piece(party, frame)
            return
        for request in list(self._requests.get((party, frame.id), ())):
            request.absent = None
            request.pending.alive(party)
            await self._handle(request, frame)

    async def _handle(self, request: RelayRequest, frame: Frame) -> None:
        match frame.kind:
            case Kind.PULL:
                await self._give(request, frame.number)
            case Kind.HAVE:
                self._outgoing.release(request)
            case Kind.REPLY if len(frame.body) == ID_BYTES + frame.number:
                await self._deliver(request, bytes(frame.body[ID_BYTES:]))
            case Kind.REPLY if len(frame.body) == ID_BYTES:
                self._outgoing.release(request)
                await self._replies.take_offer(request, bytes(frame.body), frame.number, frame.pushed)
            case Kind.FAILED:
                request.pending.lost(request.party, SIZE if frame.body == TOO_LARGE else FAILED)
                await self._finish(request)

    async def _deliver(self, request: RelayRequest, reply: bytes) -> None:
        request.pending.replied(request.party, reply)
        await self._finish(request)

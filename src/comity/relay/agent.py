"""The process that talks to the relay for one or more sites: it takes asks in, sends signs of life, hands replies out.

For each site it has a connection under that site's key. It subscribes to the site's subject and needs no clock: the
coordinator repeats its asks. The messages of asks pass through to the process that answers, piece by piece; a copy of
each reply stays here until the coordinator has it. If something is lost, on the way or with either process, the
coordinator asks again, and the site gives its stored reply. The stages of an ask are listed in `channel`.

    python -m comity.relay.agent LOG_FORM MAX_BYTES    (stdin: a JSON list of the sites, each with its pipe's number)
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from dataclasses import dataclass, field
from enum import Enum, auto
from io import BytesIO
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg

from comity.relay.address import RelayAddress
from comity.relay.link import CHECK_SECONDS, Link
from comity.relay.wire import (
    ID_BYTES,
    INLINE_BYTES,
    MAX_PUSHED_PIECES,
    NOT_A_FRAME,
    PIECE_BYTES,
    TOO_LARGE,
    WINDOW_PIECES,
    WRONG_HASH,
    Frame,
    Kind,
    PulledMessage,
    ask_subject,
    count_pieces,
    get_piece,
    message_id,
    pack_frame,
    read_frame,
    reply_subject,
)
from comity.site.logs import Form, log_to_stderr
from comity.site.pack_limits import MAX_PACK_BYTES, SEAL_BYTES

_MAX_CONNECTING = 4
"""Sites of one process that connect at once: of a hundred at once, many would take longer than the relay allows."""
_CHECKS_PER_SECOND = 40
"""Connections that a process checks in a second: many sites of one process check theirs less often. One that is closed
is noticed at once, one that vanished after three checks."""
MAX_OPEN_ASKS = 64
"""Further asks wait for the next repetition."""
MAX_SEALED_PACK_BYTES = MAX_PACK_BYTES + SEAL_BYTES
MAX_OPEN_BYTES = 256 << 20
"""Bytes of the messages of open asks together; a single message may be larger."""
STALLED_SECONDS = 30.0
"""An ask that nobody repeats for this long gives way; a waiting coordinator repeats it every second."""
REPORT_SECONDS = 1.0
"""Time between two reports to the owner of what was dropped: a flood does not fill the owner's files."""
MAX_HELD_BYTES = 64 << 20
"""Bytes of replies that the coordinator has not taken yet; the newest reply is kept in any case."""


class State(Enum):
    ARRIVING, IN_PROGRESS, ANSWERED = auto(), auto(), auto()


@dataclass(eq=False)
class _Ask:
    id: bytes
    kind: Kind
    message: PulledMessage
    state: State = State.ARRIVING
    reply: bytes = b""
    reply_id: bytes = b""
    room: int = 0
    wanted: bool = True
    touched: float = field(default_factory=time.monotonic)


class RelayAgent:
    """`line` is the pipe to the process that answers; `max_bytes` bounds the message of one ask."""

    def __init__(
        self,
        party: str,
        relay: RelayAddress,
        line: socket.socket,
        *,
        max_bytes: int,
        connecting: asyncio.Semaphore | None = None,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self._subject = reply_subject(party)
        self._max_bytes = max_bytes
        self._line = line
        self._open: dict[bytes, _Ask] = {}
        self._replies: dict[bytes, _Ask] = {}
        self._partial_replies: dict[bytes, tuple[int, BytesIO]] = {}
        self._delayed_pulls: set[asyncio.Task[None]] = set()
        self._reported = -REPORT_SECONDS
        self._link = Link(relay, party, [ask_subject(party)], self._receive, connecting, check_seconds)
        self._writer: asyncio.StreamWriter

    async def run(self) -> None:
        """Run until the other process closes the pipe, or until cancelled."""
        reader, self._writer = await asyncio.open_connection(sock=self._line, limit=2 * PIECE_BYTES)
        linked = asyncio.create_task(self._link.run())
        try:
            while (frame := await read_frame(reader)) is not None:
                await self._receive_from_worker(frame)
        finally:
            linked.cancel()
            await asyncio.gather(linked, *self._delayed_pulls, return_exceptions=True)
            self._writer.close()

    # Frames from the coordinator.

    async def _receive(self, message: Msg) -> None:
        frame = Frame.of(message.data)
        if frame is None:
            self._report_dropped(bytes(ID_BYTES), NOT_A_FRAME)
            return
        match frame.kind:
            case Kind.ASK | Kind.STUDY:
                await self._take_offer(frame)
            case Kind.PIECE if (ask := self._open.get(frame.id)) is not None and ask.state is State.ARRIVING:
                await self._take_piece(ask, frame)
            case Kind.PULL if (ask := self._replies.get(frame.id)) is not None:
                await self._give(ask, frame.number)
            case Kind.DONE if (ask := self._open.get(frame.id)) is not None:
                self._finish(ask)

    async def _take_offer(self, frame: Frame) -> None:
        ask = self._open.get(frame.id)
        if ask is None:
            if frame.number > (MAX_SEALED_PACK_BYTES if frame.kind is Kind.STUDY else self._max_bytes):
                self._report_dropped(frame.id, TOO_LARGE)
                await self._send(Kind.FAILED, frame.id, 0, TOO_LARGE)
                return
            if not self._has_room(frame.number):
                await self._send(Kind.ALIVE, frame.id)
                return
            ask = self._open[frame.id] = _Ask(
                frame.id,
                frame.kind,
                PulledMessage(frame.id, frame.number, frame.pushed),
                room=min(frame.room, MAX_PUSHED_PIECES),
            )
            if len(frame.body) == frame.number and ask.message.accept(0, frame.body):
                self._send_to_worker(Frame(Kind.PIECE, frame.id, 0, frame.body))
            else:
                await self._send(Kind.ALIVE, frame.id)
            await self._pull(ask)
            return
        ask.wanted, ask.touched = True, time.monotonic()
        if ask.state is State.ANSWERED:
            await self._offer(ask)
            return
        await self._send(Kind.ALIVE, ask.id)
        if ask.state is State.ARRIVING:
            ask.message.retry()
            await self._pull(ask)

    async def _take_piece(self, ask: _Ask, frame: Frame) -> None:
        if ask.message.accept(frame.number, frame.body):
            self._send_to_worker(frame)
        await self._pull(ask)

    async def _pull(self, ask: _Ask) -> None:
        """Request missing pieces while the process that answers keeps up; start that process on a whole message."""
        if ask.message.is_whole:
            if not ask.message.is_intact:
                self._drop(ask)
                self._report_dropped(ask.id, WRONG_HASH)
                return
            ask.state = State.IN_PROGRESS
            self._send_to_worker(Frame(Kind.HAVE, ask.id, ask.kind))
            if ask.message.size > INLINE_BYTES:
                await self._send(Kind.HAVE, ask.id)
            return
        if self._writer.transport.get_write_buffer_size() > WINDOW_PIECES * PIECE_BYTES:
            # A step may hold the other process's interpreter lock. This callback must not wait: it sends signs of life.
            task = asyncio.create_task(self._pull_later(ask))
            self._delayed_pulls.add(task)
            task.add_done_callback(self._delayed_pulls.discard)
            return
        for number in ask.message.next_pieces():
            await self._send(Kind.PULL, ask.id, number)

    async def _pull_later(self, ask: _Ask) -> None:
        await self._writer.drain()
        if self._open.get(ask.id) is ask and ask.state is State.ARRIVING:
            await self._pull(ask)

    def _finish(self, ask: _Ask) -> None:
        """The coordinator has the reply or no longer wants it. An answer in progress is finished and stored."""
        ask.wanted = False
        if ask.state is not State.IN_PROGRESS:
            self._drop(ask)

    def _drop(self, ask: _Ask) -> None:
        del self._open[ask.id]
        self._replies.pop(ask.reply_id, None)
        if ask.state is State.ARRIVING:
            self._send_to_worker(Frame(Kind.DONE, ask.id))

    def _report_dropped(self, name: bytes, why: bytes) -> None:
        """Report to the owner what never reached the process that answers."""
        if time.monotonic() - self._reported >= REPORT_SECONDS:
            self._reported = time.monotonic()
            self._send_to_worker(Frame(Kind.FAILED, name, 0, why))

    def _has_room(self, size: int) -> bool:
        """Make room by forgetting idle asks: the coordinator can repeat them, and their replies are stored."""
        idle = [ask for ask in self._open.values() if ask.state is not State.IN_PROGRESS]
        if len(self._open) >= MAX_OPEN_ASKS and idle:
            self._drop(idle.pop(0))
        for ask in idle:
            if ask.state is State.ARRIVING and time.monotonic() - ask.touched > STALLED_SECONDS:
                self._drop(ask)
        taken = sum(ask.message.size for ask in self._open.values() if ask.state is not State.ANSWERED)
        return len(self._open) < MAX_OPEN_ASKS and (not taken or taken + size <= MAX_OPEN_BYTES)

    # Frames from the process that answers.

    async def _receive_from_worker(self, frame: Frame) -> None:
        match frame.kind:
            case Kind.REPLY:
                self._partial_replies[frame.id] = frame.number, BytesIO()
            case Kind.PIECE if frame.id in self._partial_replies:
                self._partial_replies[frame.id][1].write(frame.body)
            case Kind.FAILED if (ask := self._open.get(frame.id)) is not None:
                # The same ask may succeed later, once its cause is removed.
                del self._open[frame.id]
                await self._send(Kind.FAILED, ask.id)
                return
        size, reply = self._partial_replies.get(frame.id, (-1, BytesIO()))
        if reply.tell() == size:
            del self._partial_replies[frame.id]
            await self._take_reply(frame.id, reply.getvalue())

    async def _take_reply(self, name: bytes, reply: bytes) -> None:
        ask = self._open.get(name)
        if ask is None:
            return
        ask.state = State.ANSWERED
        if not ask.wanted:
            self._drop(ask)
            return
        ask.reply, ask.reply_id = reply, message_id(reply)
        self._replies[ask.reply_id] = ask
        total = sum(len(one.reply) for one in self._replies.values())
        for other in list(self._replies.values()):
            if total > MAX_HELD_BYTES and other is not ask:
                total -= len(other.reply)
                self._drop(other)
        await self._offer(ask, ask.room)

    async def _offer(self, ask: _Ask, room: int = 0) -> None:
        """Offer the reply. Its first pieces follow unasked, where the coordinator has said that it has room."""
        is_short = len(ask.reply) <= INLINE_BYTES
        pushed = 0 if is_short else min(room, count_pieces(len(ask.reply)))
        body = ask.reply_id + (ask.reply if is_short else b"")
        await self._link.send(self._subject, Frame(Kind.REPLY, ask.id, len(ask.reply), body, pushed))
        for number in range(pushed):
            await self._give(ask, number)

    async def _give(self, ask: _Ask, number: int) -> None:
        if number * PIECE_BYTES < len(ask.reply):
            await self._send(Kind.PIECE, ask.reply_id, number, get_piece(ask.reply, number))

    def _send_to_worker(self, frame: Frame) -> None:
        self._writer.write(pack_frame(frame))

    async def _send(self, kind: Kind, name: bytes, number: int = 0, body: bytes | memoryview = b"") -> None:
        await self._link.send(self._subject, Frame(kind, name, number, body))


async def run_agents(sites: list[dict[str, Any]], max_bytes: int) -> None:
    """Run until the pipes of all sites are closed."""
    connecting = asyncio.Semaphore(_MAX_CONNECTING)
    check_seconds = max(CHECK_SECONDS, len(sites) / _CHECKS_PER_SECOND)
    await asyncio.gather(
        *(
            RelayAgent(
                site["party"],
                RelayAddress(site["address"], Path(site["invitation"]), Path(site["keys"])),
                socket.socket(fileno=site["pipe"]),
                max_bytes=max_bytes,
                connecting=connecting,
                check_seconds=check_seconds,
            ).run()
            for site in sites
        )
    )


def main(log_form: str, max_bytes: str) -> None:
    log_to_stderr(Form(log_form))
    asyncio.run(run_agents(json.load(sys.stdin), int(max_bytes)))


if __name__ == "__main__":
    main(*sys.argv[1:])

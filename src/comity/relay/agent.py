"""The site's side of the relay, in a process of its own: takes asks in, shows life, hands replies out.

It listens at its own subject and knows no clock: the coordinator repeats what it wants. The messages of asks go
through to the process that answers, piece by piece; of replies it holds a copy until the coordinator has them. Whatever
is lost, on the way or with either process, is asked again, and a site gives the reply that it stored.

    python -m comity.relay.agent FORM PARTY MOST ADDRESS CERTIFICATE KEY AUTHORITY    (the pipe is standard input)
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from dataclasses import dataclass, field
from enum import Enum, auto
from io import BytesIO
from pathlib import Path

from nats.aio.msg import Msg

from comity.relay.address import Relay
from comity.relay.link import Link
from comity.relay.wire import (
    FRAME,
    ID_BYTES,
    PIECE,
    SHORT,
    SIZE,
    UNTRUE,
    WINDOW,
    Frame,
    Kind,
    Pulling,
    ask_subject,
    id_of,
    next_frame,
    packed,
    piece_of,
    reply_subject,
)
from comity.site.logs import Form, log_to_stderr
from comity.site.pack_limits import MAX_PACK_BYTES, SEAL_BYTES

OPEN = 64
"""Asks that are here at once; further ones wait for the next beat."""
MAX_SEALED_PACK = MAX_PACK_BYTES + SEAL_BYTES
TAKEN = 256 << 20
"""Bytes of the messages of these asks; one that is alone may be larger."""
STALLED = 30.0
"""Seconds after which an ask that nobody repeats gives way: a coordinator that waits repeats it each second."""
TOLD = 1.0
"""Seconds between two words to the owner about what was dropped here: whoever floods a site fills none of its files."""
HELD = 64 << 20
"""Bytes of replies that are kept for whoever has not taken them; the newest is kept in any case."""


class State(Enum):
    PULLED, WORKED_ON, ANSWERED = auto(), auto(), auto()


@dataclass(eq=False)
class _Ask:
    id: bytes
    kind: Kind
    pulling: Pulling
    state: State = State.PULLED
    reply: bytes = b""
    reply_id: bytes = b""
    wanted: bool = True
    touched: float = field(default_factory=time.monotonic)


class Desk:
    """`line` leads to the process that answers."""

    def __init__(self, party: str, relay: Relay, line: socket.socket, *, most: int) -> None:
        self._subject = reply_subject(party)
        self._most = most
        self._line = line
        self._open: dict[bytes, _Ask] = {}
        self._replies: dict[bytes, _Ask] = {}
        self._coming: dict[bytes, tuple[int, BytesIO]] = {}
        self._continued: set[asyncio.Task[None]] = set()
        self._told = -TOLD
        self._link = Link(relay, party, [ask_subject(party)], self._received)
        self._writer: asyncio.StreamWriter

    async def run(self) -> None:
        """Until the other end of the line is gone, or this is cancelled."""
        reader, self._writer = await asyncio.open_connection(sock=self._line, limit=2 * PIECE)
        linked = asyncio.create_task(self._link.run())
        try:
            while (frame := await next_frame(reader)) is not None:
                await self._from_worker(frame)
        finally:
            linked.cancel()
            await asyncio.gather(linked, *self._continued, return_exceptions=True)
            self._writer.close()

    # From the coordinator.

    async def _received(self, message: Msg) -> None:
        frame = Frame.of(message.data)
        if frame is None:
            self._dropped(bytes(ID_BYTES), FRAME)
            return
        match frame.kind:
            case Kind.ASK | Kind.STUDY:
                await self._asked(frame)
            case Kind.PIECE if (ask := self._open.get(frame.id)) is not None and ask.state is State.PULLED:
                if ask.pulling.takes(frame.number, frame.body):
                    self._to_worker(frame)
                await self._pull(ask)
            case Kind.PULL if (ask := self._replies.get(frame.id)) is not None:
                if frame.number * PIECE < len(ask.reply):
                    await self._say(Kind.PIECE, frame.id, frame.number, piece_of(ask.reply, frame.number))
            case Kind.DONE if (ask := self._open.get(frame.id)) is not None:
                self._unwanted(ask)

    async def _asked(self, frame: Frame) -> None:
        ask = self._open.get(frame.id)
        if ask is None:
            if frame.number > (MAX_SEALED_PACK if frame.kind is Kind.STUDY else self._most):
                self._dropped(frame.id, SIZE)
                await self._say(Kind.FAILED, frame.id, 0, SIZE)
                return
            if not self._has_room(frame.number):
                await self._say(Kind.ALIVE, frame.id)
                return
            ask = self._open[frame.id] = _Ask(frame.id, frame.kind, Pulling(frame.id, frame.number))
            if len(frame.body) == frame.number and ask.pulling.takes(0, frame.body):
                self._to_worker(Frame(Kind.PIECE, frame.id, 0, frame.body))
            else:
                await self._say(Kind.ALIVE, frame.id)
            await self._pull(ask)
            return
        ask.wanted, ask.touched = True, time.monotonic()
        if ask.state is State.ANSWERED:
            await self._offer(ask)
            return
        await self._say(Kind.ALIVE, ask.id)
        if ask.state is State.PULLED:
            ask.pulling.again()
            await self._pull(ask)

    async def _pull(self, ask: _Ask) -> None:
        """Pull what is missing, while the process that answers takes it; when all is there, let it begin."""
        if ask.pulling.is_whole:
            if not ask.pulling.is_true:
                self._drop(ask)
                self._dropped(ask.id, UNTRUE)
                return
            ask.state = State.WORKED_ON
            self._to_worker(Frame(Kind.HAVE, ask.id, ask.kind))
            if ask.pulling.size > SHORT:
                await self._say(Kind.HAVE, ask.id)
            return
        if self._writer.transport.get_write_buffer_size() > WINDOW * PIECE:
            # It may hold its lock: this callback must not wait, because it gives the signs of life.
            task = asyncio.create_task(self._pull_later(ask))
            self._continued.add(task)
            task.add_done_callback(self._continued.discard)
            return
        for number in ask.pulling.wanted():
            await self._say(Kind.PULL, ask.id, number)

    async def _pull_later(self, ask: _Ask) -> None:
        await self._writer.drain()
        if self._open.get(ask.id) is ask and ask.state is State.PULLED:
            await self._pull(ask)

    def _unwanted(self, ask: _Ask) -> None:
        """The coordinator has the reply or wants it no more. What is worked on is worked on to its end and stored."""
        ask.wanted = False
        if ask.state is not State.WORKED_ON:
            self._drop(ask)

    def _drop(self, ask: _Ask) -> None:
        del self._open[ask.id]
        self._replies.pop(ask.reply_id, None)
        if ask.state is State.PULLED:
            self._to_worker(Frame(Kind.DONE, ask.id))

    def _dropped(self, name: bytes, why: bytes) -> None:
        """Let the owner know of what never reached the process that answers."""
        if time.monotonic() - self._told >= TOLD:
            self._told = time.monotonic()
            self._to_worker(Frame(Kind.FAILED, name, 0, why))

    def _has_room(self, size: int) -> bool:
        """If need be, forget what nobody works on: it can be asked again, and its reply is stored."""
        idle = [ask for ask in self._open.values() if ask.state is not State.WORKED_ON]
        if len(self._open) >= OPEN and idle:
            self._drop(idle.pop(0))
        for ask in idle:
            if ask.state is State.PULLED and time.monotonic() - ask.touched > STALLED:
                self._drop(ask)
        taken = sum(ask.pulling.size for ask in self._open.values() if ask.state is not State.ANSWERED)
        return len(self._open) < OPEN and (not taken or taken + size <= TAKEN)

    # From the process that answers.

    async def _from_worker(self, frame: Frame) -> None:
        match frame.kind:
            case Kind.REPLY:
                self._coming[frame.id] = frame.number, BytesIO()
            case Kind.PIECE if frame.id in self._coming:
                self._coming[frame.id][1].write(frame.body)
            case Kind.FAILED if (ask := self._open.get(frame.id)) is not None:
                # After the cause is removed the same ask may be answered.
                del self._open[frame.id]
                await self._say(Kind.FAILED, ask.id)
                return
        if frame.id in self._coming and self._coming[frame.id][1].tell() == self._coming[frame.id][0]:
            await self._answered(frame.id, self._coming.pop(frame.id)[1].getvalue())

    async def _answered(self, name: bytes, reply: bytes) -> None:
        ask = self._open.get(name)
        if ask is None:
            return
        ask.state = State.ANSWERED
        if not ask.wanted:
            self._drop(ask)
            return
        ask.reply, ask.reply_id = reply, id_of(reply)
        self._replies[ask.reply_id] = ask
        held = sum(len(one.reply) for one in self._replies.values())
        for other in list(self._replies.values()):
            if held > HELD and other is not ask:
                held -= len(other.reply)
                self._drop(other)
        await self._offer(ask)

    async def _offer(self, ask: _Ask) -> None:
        body = ask.reply if len(ask.reply) <= SHORT else b""
        await self._say(Kind.REPLY, ask.id, len(ask.reply), ask.reply_id + body)

    def _to_worker(self, frame: Frame) -> None:
        self._writer.write(packed(frame))

    async def _say(self, kind: Kind, name: bytes, number: int = 0, body: bytes | memoryview = b"") -> None:
        await self._link.send(self._subject, Frame(kind, name, number, body))


def main(log_form: str, party: str, most: str, address: str, *files: str) -> None:
    log_to_stderr(Form(log_form))
    relay = Relay(address, *map(Path, files))
    asyncio.run(Desk(party, relay, socket.socket(fileno=0), most=int(most)).run())


if __name__ == "__main__":
    main(*sys.argv[1:])

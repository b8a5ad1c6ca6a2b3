"""Replies of sites, pulled piece by piece when there is room for them.

All pieces that are on their way to us at once stay far below what the relay keeps for one connection before it cuts it,
however many parties there are. Everything here belongs to the thread of the channel's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from io import BytesIO

from comity.federation.messages.asking import FAILED
from comity.relay.call import Call
from comity.relay.frames import WINDOW, Frame, Kind, Pulling

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

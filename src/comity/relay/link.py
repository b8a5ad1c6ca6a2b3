"""A connection to the relay that is made again for ever.

The client's own reconnecting is not used: it closes for good when the relay says no (a member that is not admitted yet,
too many connections), and goes on with the certificate that it read first, which runs out. Here each attempt reads the
files again, and no answer of the relay ends the attempts. Delivery is never relied on: what is sent while there is no
connection is dropped, and so is what the client or the relay drops; the coordinator repeats what matters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from comity.relay.address import Relay
from comity.relay.wire import PIECE, WINDOW, Frame

log = logging.getLogger("comity.relay")


def _says_something(record: logging.LogRecord) -> bool:
    return "eof_received" not in record.getMessage()


# The client's protocol makes asyncio warn of this at the end of every TLS connection; it means nothing.
logging.getLogger("asyncio").addFilter(_says_something)

_FIRST, _LONGEST = 0.1, 1.0
"""Seconds between two attempts: at first, and after many."""
_ATTEMPT = 15.0
"""Seconds for one attempt: a relay that stands still in the middle of it is as good as none."""
_LOOK = 0.5
_QUIET = 3
"""Looks in a row at which the relay owes an answer and nothing came from it: the line is as good as down."""
_ANSWERED_BY = 24 * 3600
_PING_SECONDS = 5.0
_HELD = 4 * WINDOW * PIECE
"""Bytes that wait here for one subscription; the client drops what is beyond."""


class Link:
    """Listens at some subjects, whatever happens to the connection. Belongs to one event loop."""

    def __init__(
        self,
        relay: Relay,
        name: str,
        subjects: Iterable[str],
        receive: Callable[[Msg], Awaitable[None]],
    ) -> None:
        self._relay = relay
        self._name = name
        self._subjects = tuple(subjects)
        self._receive = receive
        self._client: Client | None = None
        self._said: dict[str, None] = {}
        self._owed = 0

    @property
    def is_up(self) -> bool:
        """Whether there is a connection over which something comes when it should. One whose other end is gone without
        a word looks alive until the client loses patience."""
        return self._client is not None and self._client.is_connected and self._owed < _QUIET

    @property
    def trouble(self) -> str:
        """What there was to say since the last time that there was a connection."""
        return "; ".join(self._said)

    async def run(self) -> None:
        """Stay connected until cancelled."""
        pause = _FIRST
        while True:
            closed = asyncio.Event()
            client = Client()
            try:
                async with asyncio.timeout(_ATTEMPT):
                    await self._connect(client, closed)
                self._client, pause = client, _FIRST
                self._said.clear()
                log.info("%s is connected to the relay", self._name)
                await self._stay(client, closed)
                await self._complain(ConnectionError("the connection ended"))
            except Exception as error:
                # Of whatever kind: a client whose connection dies under it fails in many ways, and each is an outage.
                await self._complain(error)
            finally:
                self._client = None
                with suppress(Exception):
                    async with asyncio.timeout(_LONGEST):
                        await client.close()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST)

    async def _stay(self, client: Client, closed: asyncio.Event) -> None:
        """Until the connection ends. Looks are counted, not seconds: while this process did something else, nobody read
        what the relay said."""
        asked, heard = _pinged(client), -1
        try:
            # Looked at too: the client does not always say that it has closed.
            while client.is_connected and not closed.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(closed.wait(), _LOOK)
                came = client.stats["in_msgs"]
                self._owed = 0 if asked.done() or came != heard else self._owed + 1
                heard = came
                if asked.done():
                    asked = _pinged(client)
        finally:
            self._owed = 0
            asked.cancel()

    async def send(self, subject: str, frame: Frame, answer_to: str = "") -> None:
        """Send, or drop it: whoever needs it asks again."""
        client = self._client
        if client is not None and client.is_connected:
            try:
                await client.publish(subject, frame.to_bytes(), reply=answer_to)
            except Exception as error:
                await self._complain(error)

    async def _complain(self, error: Exception) -> None:
        """An outage of a night is one line, not one for every attempt."""
        sentence = f"{type(error).__name__}: {error}"
        if sentence not in self._said:
            log.warning("%s and the relay: %s", self._name, sentence)
        self._said[sentence] = None

    async def _connect(self, client: Client, closed: asyncio.Event) -> None:
        async def close() -> None:
            closed.set()

        options: dict[str, Any] = {
            "name": self._name,
            "tls": self._relay.context(),
            "tls_handshake_first": not self._relay.is_websocket,
            "connect_timeout": 5,
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": _FIRST,
            "ping_interval": _PING_SECONDS,
            "max_outstanding_pings": 2,
            "error_cb": self._complain,
            "closed_cb": close,
        }
        await client.connect(self._relay.address, **options)
        for subject in self._subjects:
            await client.subscribe(subject, cb=self._receive, pending_bytes_limit=_HELD)
        await client.flush(5)


def _pinged(client: Client) -> asyncio.Task[None]:
    """Done when the relay has answered. It is not given up while the connection lives: the client does not survive an
    answer that nobody waits for any more."""
    asked = asyncio.create_task(client.flush(_ANSWERED_BY))
    asked.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return asked

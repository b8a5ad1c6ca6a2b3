"""A connection to the relay that reconnects without end.

The NATS client's reconnection is not used. It gives up when the relay refuses it (a member not admitted yet, too many
connections), and it keeps the pinned certificate and the key that it first read, which may be replaced. Here each
attempt reads the files again, and no answer of the relay ends the attempts. The client's handling of keys is not used
either: it signs every text that a server calls a nonce, and `RelayKey.answer` does not. Delivery is not guaranteed:
frames sent while there is no connection are dropped, and client and relay may drop frames too. The coordinator repeats
what matters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from comity.crypto.relay_key import RelayKey
from comity.relay.address import RelayAddress
from comity.relay.wire import MAX_WINDOW_PIECES, PIECE_BYTES, Frame

log = logging.getLogger("comity.relay")


def _is_useful(record: logging.LogRecord) -> bool:
    return "eof_received" not in record.getMessage()


# asyncio logs this at the end of every TLS connection of the client; it is harmless.
logging.getLogger("asyncio").addFilter(_is_useful)

_FIRST_PAUSE, _MAX_PAUSE = 0.1, 1.0
"""Seconds between two attempts: at first, and after many."""
_ATTEMPT_SECONDS = 15.0
"""A relay that stops answering in the middle of an attempt counts as unreachable."""
CHECK_SECONDS = 0.5
_MAX_SILENT_CHECKS = 3
"""The connection counts as down after so many checks in a row without anything from the relay, which owes a pong."""
_PONG_SECONDS = 24 * 3600
_PING_SECONDS = 5.0
_PENDING_BYTES = 2 * MAX_WINDOW_PIECES * PIECE_BYTES
"""Bytes that wait here for one subscription; the client drops the rest."""


class Link:
    """Subscribes to some subjects, through any number of connections. Belongs to one event loop. Each attempt to
    connect is made within `connecting`, which several links may share. Every `check_seconds` the relay has to answer a
    ping."""

    def __init__(
        self,
        relay: RelayAddress,
        name: str,
        subjects: Iterable[str],
        receive: Callable[[Msg], Awaitable[None]],
        connecting: AbstractAsyncContextManager[Any] | None = None,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self._relay = relay
        self._name = name
        self._subjects = tuple(subjects)
        self._receive = receive
        self._connecting = connecting or nullcontext()
        self._check_seconds = check_seconds
        self._client: Client | None = None
        self._errors: dict[str, None] = {}
        self._silent_checks = 0

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection and the relay answers on it. A connection whose other end vanished looks alive
        to the client for much longer."""
        return self._client is not None and self._client.is_connected and self._silent_checks < _MAX_SILENT_CHECKS

    @property
    def last_errors(self) -> str:
        """The errors since the last connection; empty if there were none."""
        return "; ".join(self._errors)

    async def run(self) -> None:
        """Stay connected until cancelled."""
        pause = _FIRST_PAUSE
        while True:
            closed = asyncio.Event()
            client = Client()
            try:
                async with self._connecting, asyncio.timeout(_ATTEMPT_SECONDS):
                    await self._connect(client, closed)
                self._client, pause = client, _FIRST_PAUSE
                self._errors.clear()
                log.info("%s is connected to the relay", self._name)
                await self._stay(client, closed)
                await self._log_once(ConnectionError("the connection ended"))
            except Exception as error:
                # A client whose connection dies raises errors of many types; each of them is an outage.
                await self._log_once(error)
            finally:
                self._client = None
                with suppress(Exception):
                    async with asyncio.timeout(_MAX_PAUSE):
                        await client.close()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)

    async def _stay(self, client: Client, closed: asyncio.Event) -> None:
        """Return when the connection ends. Silence is counted in checks, not seconds: while this process was busy, it
        did not read what the relay sent."""
        pong, heard = _ping(client), -1
        try:
            # The client does not always call back when it closes, so its state is checked too.
            while client.is_connected and not closed.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(closed.wait(), self._check_seconds)
                received = client.stats["in_msgs"]
                self._silent_checks = 0 if pong.done() or received != heard else self._silent_checks + 1
                heard = received
                if pong.done():
                    pong = _ping(client)
        finally:
            self._silent_checks = 0
            pong.cancel()

    async def send(self, subject: str, frame: Frame, answer_to: str = "") -> None:
        """Send a frame, or drop it; the other side asks again if it needs it."""
        client = self._client
        if client is not None and client.is_connected:
            try:
                await client.publish(subject, frame.to_bytes(), reply=answer_to)
            except Exception as error:
                await self._log_once(error)

    async def _log_once(self, error: Exception) -> None:
        """Log each error once per outage, not once per attempt."""
        sentence = f"{type(error).__name__}: {error}"
        if sentence not in self._errors:
            log.warning("%s: relay connection error: %s", self._name, sentence)
        self._errors[sentence] = None

    async def _connect(self, client: Client, closed: asyncio.Event) -> None:
        async def close() -> None:
            closed.set()

        options: dict[str, Any] = {
            "name": self._name,
            "tls": self._relay.tls_context(),
            "tls_handshake_first": not self._relay.is_websocket,
            "connect_timeout": 5,
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": _FIRST_PAUSE,
            "ping_interval": _PING_SECONDS,
            "max_outstanding_pings": 2,
            "error_cb": self._log_once,
            "closed_cb": close,
            **sign_in(client, self._relay.relay_key()),
        }
        await client.connect(self._relay.address, **options)
        for subject in self._subjects:
            await client.subscribe(subject, cb=self._receive, pending_bytes_limit=_PENDING_BYTES)
        await client.flush(5)


def sign_in(client: Client, key: RelayKey) -> dict[str, Any]:
    """Options of `connect` by which a client answers the server's nonce with this key."""
    # The client has no public option for the name of a user whose key it does not hold.
    client._public_nkey = key.user
    return {"signature_cb": key.answer}


def _ping(client: Client) -> asyncio.Task[None]:
    """A task that is done when the relay has answered. It does not time out while the connection lives: the client
    fails on a pong that nobody awaits."""
    pong = asyncio.create_task(client.flush(_PONG_SECONDS))
    pong.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return pong

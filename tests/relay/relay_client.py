"""A NATS client without our rules, with any key, and what the server answers it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from nats.aio.client import Client

from comity.relay.link import sign_in

SOON = 10


class RawClient:
    """A client that may try anything; `errors` are what the server answered. Without a key it answers no nonce."""

    def __init__(self, relay: Any, *, has_key: bool = True, **options: Any) -> None:
        self.client, self.closed = Client(), asyncio.Event()
        self.errors: list[Any] = []
        self.options = {"tls": relay.tls_context(), "tls_handshake_first": not relay.is_websocket}
        self.options |= sign_in(self.client, relay.relay_key()) if has_key else {}
        self.options |= options
        self.address = relay.address

    async def __aenter__(self) -> Any:
        async def heard(error: Any) -> None:
            self.errors.append(str(error))

        async def closed() -> None:
            self.closed.set()

        await self.client.connect(
            self.address,
            connect_timeout=5,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            error_cb=heard,
            closed_cb=closed,
            **self.options,
        )
        return self

    async def __aexit__(self, *_: Any) -> None:
        with contextlib.suppress(Exception):
            await self.client.close()

    async def refused(self, what: Any, *, soon: Any = SOON) -> Any:
        """The errors that the server sends after `what`; they may come after its next answer."""
        before, end = len(self.errors), time.monotonic() + soon
        await what
        await self.client.flush(SOON)
        while len(self.errors) == before and time.monotonic() < end and self.client.is_connected:
            await asyncio.sleep(0.005)
        return self.errors[before:]

    async def allowed(self, what: Any) -> Any:
        return await self.refused(what, soon=0.2) == []

    async def hears(self, subject: Any) -> Any:
        heard = []

        async def take(message: Any) -> None:
            heard.append(message.data)

        await self.client.subscribe(subject, cb=take)
        await self.client.flush(SOON)
        return heard


async def can_connect(relay: Any, **options: Any) -> Any:
    try:
        async with RawClient(relay, **options) as one:
            await one.client.flush(SOON)
            return not one.errors and one.client.is_connected
    except Exception:
        return False


def is_admitted(relay: Any, **options: Any) -> Any:
    return asyncio.run(can_connect(relay, **options))


def connection_errors(relay: Any, **options: Any) -> Any:
    """What the server or TLS reports to someone who connects; empty if it is admitted."""

    async def tried() -> Any:
        one = RawClient(relay, **options)
        try:
            async with one:
                await one.client.flush(SOON)
        except Exception as error:
            one.errors.append(f"{type(error).__name__}: {error}")
        return "; ".join(one.errors)

    return asyncio.run(tried())

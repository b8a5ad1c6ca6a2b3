"""A connection that looks alive and brings nothing counts as down, and as up again with the first frame."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from comity.relay import link
from comity.relay.address import RelayAddress
from comity.relay.channel import longest_pause


class Client:
    """Answers a ping when it is let."""

    is_connected = True

    def __init__(self) -> None:
        self.stats, self.may, self.pings = {"in_msgs": 0}, asyncio.Event(), 0

    async def flush(self, seconds: Any) -> None:
        self.pings += 1
        await self.may.wait()


def stayed(tried: Any) -> None:
    """Call with a link, its client and an event that ends the connection."""

    async def run() -> None:
        client: Any = Client()
        closed, hears = asyncio.Event(), cast(Any, None)
        made = link.Link(
            RelayAddress("tls://127.0.0.1:1", Path("consortium.toml"), Path("north.keys")),
            "north",
            (),
            hears,
            check_seconds=0.002,
        )
        made._client = client
        staying = asyncio.create_task(made._stay(client, closed))
        try:
            await tried(made, client)
        finally:
            closed.set()
            await staying

    asyncio.run(run())


async def until(true: Any) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.001)


def test_a_relay_that_answers_nothing_is_not_up_and_one_ping_waits_for_it() -> None:
    async def tried(made: Any, client: Any) -> None:
        assert made.is_connected
        await until(lambda: not made.is_connected)
        await asyncio.sleep(0.02)
        assert client.pings == 1
        client.may.set()
        await until(lambda: made.is_connected and client.pings > 3)

    stayed(tried)


def test_a_line_on_which_messages_come_is_up_whatever_a_ping_waits_behind() -> None:
    async def tried(made: Any, client: Any) -> None:
        for number in range(30):
            client.stats["in_msgs"] = number
            await asyncio.sleep(0.002)
            assert made.is_connected

    stayed(tried)


@pytest.mark.parametrize(
    ("requests", "silent", "every", "longest"),
    [
        (1, 10.0, 1.0, 1.0),
        (100, 10.0, 1.0, 1.0),
        (200, 10.0, 1.0, 2.0),
        (5_000, 9.0, 1.0, 3.0),
        (5_000, None, 1.0, 10.0),
    ],
)
def test_asks_of_many_parties_are_repeated_less_often_and_in_time_to_show_life(
    requests: int, silent: float | None, every: float, longest: float
) -> None:
    assert longest_pause(requests, silent, every) == pytest.approx(longest)

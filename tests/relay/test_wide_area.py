"""What a message costs in trips between coordinator and site, over a connection that delays."""

from __future__ import annotations

import time
from typing import Any

import pytest

from comity.relay.channel import NatsChannel
from comity.relay.wire import INLINE_BYTES, PIECE_BYTES
from experiments.bench.running.delay import Delay
from tests.support.channels import carry_messages
from tests.support.relays import needs_server

pytestmark = [needs_server, pytest.mark.deploy]

DELAY = 0.5


@pytest.mark.parametrize("size", [INLINE_BYTES + 1, 20 * PIECE_BYTES])
def test_a_long_message_and_its_long_reply_take_one_trip_each(line: Any, size: int) -> None:
    """Two delays are one ask and one reply. Before, a message above 64 KiB took three trips each way: six delays."""
    relay = line.loopback.relay_of("coordinator")
    line.channel({"ash": lambda raw: raw})
    with Delay(relay, DELAY) as wide, NatsChannel(wide.behind(relay), ["ash"], grace=20) as channel:
        channel.wait_until_connected(20)
        assert carry_messages(channel, {"ash": b"first"}) == {"ash": b"first"}
        started = time.monotonic()
        assert carry_messages(channel, {"ash": bytes(size)}) == {"ash": bytes(size)}
        assert time.monotonic() - started < 4.5 * DELAY

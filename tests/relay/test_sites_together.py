"""Several sites in one process: each answers under its own name, and stopping the process stops them all."""

from __future__ import annotations

import threading
from typing import Any

from comity.errors import ComityError
from comity.federation.owner.host import Answer
from comity.relay.channel import NatsChannel
from comity.relay.endpoint import serve_together
from tests.support.channels import carry_messages
from tests.support.relays import needs_server

pytestmark = needs_server


class Named:
    def __init__(self, party: str) -> None:
        self.party = party

    def answer(self, raw: bytes) -> Answer:
        return Answer(self.party.encode() + b" " + raw)

    def receive(self, raw: bytes) -> bytes:
        return b""

    def record_refusal(self, error: ComityError) -> None:
        raise AssertionError(error)


def test_sites_that_share_a_process_answer_each_for_itself(line: Any) -> None:
    names, stop = ("ash", "birch", "cedar"), threading.Event()
    ends = [(Named(name), line.loopback.relay_of(name)) for name in names]
    serving = threading.Thread(target=serve_together, args=(ends,), kwargs={"stop": stop})
    serving.start()
    try:
        asked = {name: name.encode() + bytes(300_000) for name in names}
        with NatsChannel(line.loopback.relay_of("coordinator"), names, grace=20) as channel:
            assert carry_messages(channel, asked) == {name: name.encode() + b" " + raw for name, raw in asked.items()}
    finally:
        stop.set()
        serving.join(20)
    assert not serving.is_alive()

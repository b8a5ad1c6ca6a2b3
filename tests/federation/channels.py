"""Channels for tests of other things: each ask is carried as a whole, by a method that sees and gives plain bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comity.federation.messages.channel import (
    ABSENT,
    MAX_BYTES,
    NO_TIMEOUT,
    Channel,
    Message,
    PendingAsk,
    Replied,
    Timeouts,
)
from comity.federation.owner.host import Host
from comity.study.local.channel import LocalChannel


class Whole:
    """Say in `carry` what becomes of all messages of an ask; a party whose reply is missing is lost."""

    def ask(self, messages: Mapping[str, Message], *, timeouts: Timeouts = NO_TIMEOUT) -> PendingAsk:
        asking = PendingAsk(messages, timeouts, most=MAX_BYTES)
        replies = self.carry({party: make() for party, make in messages.items()})
        for party in messages:
            if party in replies:
                asking.replied(party, replies[party])
            else:
                asking.lost(party, ABSENT)
        return asking

    def carry(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        raise NotImplementedError


def carried(channel: Channel, messages: Mapping[str, bytes]) -> dict[str, bytes]:
    """What a channel brings back for these messages."""
    made = {party: lambda message=message: message for party, message in messages.items()}
    with channel.ask(made) as asking:
        return {event.party: event.reply for event in asking if isinstance(event, Replied)}


class WholeLocal(Whole):
    """The channel of the embedded runtime, an ask at a time."""

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self.local = LocalChannel(hosts)

    @property
    def refusals(self) -> Any:
        return self.local.refusals

    def carry(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        return carried(self.local, messages)

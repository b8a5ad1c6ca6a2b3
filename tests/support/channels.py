"""Channels for tests: one that carries each ask as a whole, one that loses parties, one that records every byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from comity.errors import ComityError
from comity.federation.coordinator.parties import Parties
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
from comity.federation.messages.codec import decode
from comity.federation.messages.signatures import SIGNATURE_BYTES
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


def carry_messages(channel: Channel, messages: Mapping[str, bytes]) -> dict[str, bytes]:
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
        return carry_messages(self.local, messages)


class LossyChannel(Whole):
    """Loses a party for good when a chosen step is asked of it."""

    def __init__(self, hosts: Mapping[str, Host], lose: Iterable[tuple[str, str]] = ()) -> None:
        self.hosts = hosts
        self.lose = set(lose)
        self.lost: set[str] = set()
        self.asked: list[tuple[str, bytes]] = []
        self.refusals: dict[str, ComityError] = {}

    def carry(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = {}
        for party, message in messages.items():
            self.asked.append((party, message))
            if (party, str(decode(message[:-SIGNATURE_BYTES])[2])) in self.lose:
                self.lost.add(party)
            if party not in self.lost:
                answer = self.hosts[party].answer(message)
                replies[party] = answer.reply
                if answer.refusal is not None:
                    self.refusals[party] = answer.refusal
        return replies


class Recorded(Whole):
    """A channel that keeps a copy of all that it carries."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.asks: list[tuple[str, bytes]] = []
        self.replies: list[tuple[str, bytes]] = []

    def carry(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = carry_messages(self._channel, messages)
        self.asks += messages.items()
        self.replies += replies.items()
        return replies

    def holds(self, secret: bytes) -> bool:
        """Whether these bytes stand in any message."""
        return any(secret in raw for _, raw in (*self.asks, *self.replies))

    def asked(self, party: str, name: str) -> Iterator[Any]:
        """The values of this name in the asks of a party, as they crossed."""
        for to, raw in self.asks:
            _, _, _, shared, own, *_ = decode(raw[:-SIGNATURE_BYTES])
            values = {**decode(shared), **decode(own)}
            if to == party and name in values:
                yield values[name]

    def replied(self, party: str, name: str) -> Iterator[Any]:
        """The values of this name in the replies of a party, as they crossed."""
        for sender, raw in self.replies:
            values = decode(raw[:-SIGNATURE_BYTES]).get("ok", {})
            if sender == party and name in values:
                yield values[name]


def record_channel(parties: Parties) -> Recorded:
    """Record everything that the channel of a run carries from now on."""
    parties.channel = Recorded(parties.channel)
    return parties.channel


def pieces(value: Any) -> Iterator[bytes]:
    """Every secret in a dealt value, as bytes: seeds whole, matrices by their first words."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, np.ndarray):
        yield value.tobytes()[:32]
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from pieces(one)


class Stumbling(Whole):
    """Loses the reply of one party to one step, once, after the party has answered."""

    def __init__(self, hosts: Any, party: str, step: str) -> None:
        self.hosts, self.party, self.step = hosts, party, step

    def carry(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = {}
        for party, message in messages.items():
            replies[party] = self.hosts[party].answer(message).reply
            path = decode(message[:-SIGNATURE_BYTES])[2]
            if (party, path) == (self.party, self.step):
                self.step = ""
                del replies[party]
        return replies

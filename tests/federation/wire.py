"""Whoever records what passes between the coordinator and the sites: every byte, and no key but its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from comity.federation.coordinator.parties import Parties
from comity.federation.messages.channel import Channel
from comity.federation.messages.codec import decode
from comity.federation.messages.signatures import SIGNATURE_BYTES

from .channels import Whole, carried


class Recorded(Whole):
    """A channel that keeps a copy of all that it carries."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.asks: list[tuple[str, bytes]] = []
        self.replies: list[tuple[str, bytes]] = []

    def carry(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = carried(self._channel, messages)
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


def recorded(parties: Parties) -> Recorded:
    """Lay the recorder on the line of a run that has not begun."""
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

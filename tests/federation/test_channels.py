"""The conformance suite on each channel there is, and on one over a bad line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from comity.federation.messages.channel import MAX_BYTES, Channel
from comity.federation.messages.sealed_channel import SealedChannel, open_ask
from comity.federation.owner.host import Answer
from comity.study.local.channel import LocalChannel
from tests.support.consortia import make_identity

from .channel_conformance import ChannelConformance
from .queue_channel import Bad, QueueChannel


class Function:
    """A site that is a function, as the local channel calls it."""

    def __init__(self, site: Any) -> None:
        self._site = site

    def answer(self, raw: Any) -> Answer:
        return Answer(self._site(raw))


class Local:
    can_go_down = False
    copies = 0
    margin = 0

    def __init__(self) -> None:
        self.gone: set[str] = set()

    def channel(self, sites: Any, *, most: Any = MAX_BYTES) -> Channel:
        return LocalChannel({name: Function(site) for name, site in sites.items() if name not in self.gone}, most=most)

    def take_away(self, party: Any) -> None:
        self.gone.add(party)

    def cut(self, party: Any) -> bool:
        """Hosts are called: there is no connection."""
        return False

    def worsen(self, **bad: Any) -> bool:
        """Nothing is on a way either."""
        return False


class Sealed(Local):
    """Boxes over the local channel; a box is larger than what is in it."""

    margin = 500

    def channel(self, sites: Any, *, most: Any = MAX_BYTES) -> SealedChannel:
        inner = super().channel({name: self._boxed(name, site) for name, site in sites.items()}, most=most + 2_000)
        return SealedChannel(inner, {name: make_identity(name).public for name in sites})

    @staticmethod
    def _boxed(name: Any, site: Any) -> Any:
        def answer(raw: Any) -> bytes:
            ask = open_ask(make_identity(name), name, raw)
            return ask.seal_reply(site(ask.raw))

        return answer


class Queues(Bad):
    can_go_down = True
    copies = 0
    margin = 0

    def channel(self, sites: Any, *, most: Any = MAX_BYTES) -> QueueChannel:
        return QueueChannel(sites, self, most=most)

    def take_away(self, party: Any) -> None:
        self.gone.add(party)

    def down(self, seconds: Any) -> None:
        self.down_until = time.monotonic() + seconds

    def cut(self, party: Any) -> bool:
        """Frames have no connections: what is on the way is lost, for a moment."""
        self.down(0.1)
        return True

    def worsen(self, *, loss: float = 0.0, twice: float = 0.0, swapped: float = 0.0, delay: float = 0.0) -> bool:
        """Frames that are delayed differently overtake each other."""
        self.loss, self.twice, self.delay = loss, twice, max(delay, 0.01 if swapped else 0.002)
        return True


class TestLocal(ChannelConformance):
    @pytest.fixture
    def line(self) -> Local:
        return Local()


class TestSealed(ChannelConformance):
    @pytest.fixture
    def line(self) -> Sealed:
        return Sealed()


class TestOverABadLine(ChannelConformance):
    @pytest.fixture
    def line(self, request: pytest.FixtureRequest) -> Iterator[Any]:
        line = Queues(seed=len(request.node.name))
        yield line
        line.end()

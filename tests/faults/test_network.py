"""The network between members and the relay is cut, for a while or for good: who is lost for it, and who is not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comity.federation.messages.channel import SILENT, Lost, Replied, Timeouts
from comity.relay.channel import NatsChannel
from comity.relay.wire import COORDINATOR
from tests.faults.proxy import Stretch
from tests.support.relays import Loop, Loopback, Site, needs_server, wait_until

pytestmark = [needs_server, pytest.mark.deploy]
NAMES = ("north", "south")


class Cuttable(Loopback):
    """A loopback whose members reach the relay over a stretch of network each."""

    stretches: dict[str, Stretch]

    def relay_of(self, name: Any) -> Any:
        direct = super().relay_of(name)
        if name not in self.stretches:
            self.stretches[name] = Stretch(int(direct.address.rpartition(":")[2]))
        return replace(direct, address=f"tls://127.0.0.1:{self.stretches[name].port}")


class Answers:
    """A site that counts what it answers, once it is let."""

    def __init__(self) -> None:
        self.asked, self.may = threading.Event(), threading.Event()
        self.times = 0

    def __call__(self, ask: Any) -> Any:
        self.asked.set()
        self.may.wait(60)
        self.times += 1
        return b"reply to " + ask


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Any]:
    made = Cuttable.make(tmp_path / "members", NAMES)
    object.__setattr__(made, "stretches", {})
    made.start()
    loop, answers = Loop(), {name: Answers() for name in NAMES}
    sites = [Site(loop, made, name, answers[name]) for name in NAMES]
    for site in sites:
        site.up()
    with NatsChannel(made.relay_of(COORDINATOR), NAMES, repeat_every=0.2, grace=2.0) as channel:
        wait_until(lambda: channel.is_connected)
        yield made, answers, channel
        for stretch in made.stretches.values():
            stretch.mend()
    for site in sites:
        site.end()
    loop.close()
    made.stop()
    for stretch in made.stretches.values():
        stretch.close()


def asked(channel: Any, answers: Any, what: Any, timeouts: Any, meanwhile: Any) -> Any:
    """Outcomes of an ask by party, of which something happens in the middle."""
    found = {}
    with channel.ask({name: lambda: what for name in NAMES}, timeouts=timeouts) as asking:
        for one in answers.values():
            assert one.asked.wait(20)
        threading.Thread(target=meanwhile, daemon=True).start()
        for event in asking:
            if isinstance(event, Replied | Lost):
                found[event.party] = event
    return found


def let(answers: Any) -> None:
    for one in answers.values():
        one.may.set()


def after(seconds: Any, *calls: Any) -> Any:
    def meanwhile() -> None:
        threading.Event().wait(seconds)
        for call in calls:
            call()

    return meanwhile


def test_a_short_cut_of_any_line_loses_nobody(net: Any) -> None:
    made, answers, channel = net
    for member, way in ((COORDINATOR, "hold"), ("north", "hold"), (COORDINATOR, "cut"), ("north", "cut")):
        for one in answers.values():
            one.asked.clear()
            one.may.clear()
        stretch = made.stretches[member]

        def meanwhile(stretch: Any = stretch, way: Any = way) -> None:
            getattr(stretch, way)()
            after(1.0, stretch.mend, lambda: let(answers))()

        found = asked(channel, answers, f"{member} {way}".encode(), Timeouts(silent=4), meanwhile)
        assert all(isinstance(one, Replied) for one in found.values()), (member, way, found)


def test_nobody_is_lost_for_a_long_cut_of_the_coordinators_own_line(net: Any) -> None:
    """The coordinator receives nothing, and its connection looks alive: the line is silent, not the parties."""
    made, answers, channel = net
    stretch = made.stretches[COORDINATOR]
    stretch.hold()
    for one in answers.values():
        one.asked.set()
    found = asked(channel, answers, b"one", Timeouts(silent=4), after(9.0, lambda: let(answers), stretch.mend))
    assert all(isinstance(one, Replied) for one in found.values()), found


def test_a_party_behind_a_long_cut_is_lost_alone_and_gives_the_same_reply_later(net: Any) -> None:
    made, answers, channel = net
    stretch = made.stretches["north"]

    def meanwhile() -> None:
        stretch.hold()
        let(answers)

    found = asked(channel, answers, b"one", Timeouts(silent=2), meanwhile)
    assert found["north"] == Lost("north", SILENT) and found["south"] == Replied("south", b"reply to one")
    stretch.mend()
    again = asked(channel, answers, b"one", Timeouts(silent=20), lambda: None)
    assert again["north"] == Replied("north", b"reply to one")

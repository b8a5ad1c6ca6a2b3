"""What every `Channel` keeps, whatever carries its bytes. An implementation runs this by a subclass with its `line`.

A line makes channels to sites, which are functions from the bytes of an ask to those of a reply. It may be asked to
take a site away or to go down itself, where its kind can.
"""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import pytest

from comity.federation.messages.channel import (
    ABSENT,
    CANCELLED,
    FAILED,
    LATE,
    MAX_BYTES,
    SILENT,
    SIZE,
    Alive,
    Channel,
    Lost,
    PendingAsk,
    Replied,
    Timeouts,
)

Site = Callable[[bytes], bytes]
MEGA = 1 << 20
SOON = 20.0
"""Seconds that a test waits for what must happen, on however busy a machine."""


class Line(Protocol):
    can_go_down: bool
    copies: int
    """Of each reply that wait at the sites, where these live in the test's own process."""
    margin: int
    """Bytes by which what is carried may fall short of `most`, because it grows on the way."""

    def channel(self, sites: Mapping[str, Site], *, most: int = MAX_BYTES) -> Channel:
        """A channel to these sites."""

    def take_away(self, party: str) -> None:
        """Nobody is there any more, or it says nothing for ever. Before the channel is made."""

    def down(self, seconds: float) -> None:
        """Carry nothing for a while, beginning now."""

    def cut(self, party: str) -> bool:
        """Break the connection of a party, or that of whoever asks (""), once; whether there is one. After the channel
        is made."""

    def worsen(self, *, loss: float = 0.0, twice: float = 0.0, swapped: float = 0.0, delay: float = 0.0) -> bool:
        """Lose, repeat, swap and delay what is carried from now on; whether there is something to worsen. After the
        channel is made."""


def echo(raw: bytes) -> bytes:
    return b"echo of " + raw


def asks(parties: Mapping[str, bytes]) -> dict[str, Callable[[], bytes]]:
    return {party: partial(bytes, raw) for party, raw in parties.items()}


def outcomes(asking: PendingAsk) -> dict[str, bytes | str]:
    """What became of each party, with which nothing may happen twice."""
    found: dict[str, bytes | str] = {}
    with asking:
        for event in asking:
            if isinstance(event, Replied | Lost):
                assert event.party not in found, "a party has one outcome"
                found[event.party] = event.reply if isinstance(event, Replied) else event.why
    return found


class Slow:
    """A site that works on an ask until it is let go."""

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Event()

    def __call__(self, raw: bytes) -> bytes:
        self.begun.set()
        assert self.go.wait(SOON)
        return echo(raw)


class LocalRecords:
    """Makes messages and counts how many of them there are at once."""

    def __init__(self) -> None:
        self.made = self.now = self.most = 0
        self._lock = threading.Lock()

    def make(self, raw: bytes) -> bytes:
        with self._lock:
            self.made += 1
            self.now += 1
            self.most = max(self.most, self.now)
        return _Counted(raw, self)


class _Counted(bytes):
    held: LocalRecords

    def __new__(cls, raw: bytes, held: LocalRecords) -> _Counted:
        made = super().__new__(cls, raw)
        made.held = held
        return made

    def __del__(self) -> None:
        with self.held._lock:
            self.held.now -= 1


class ChannelConformance:
    @pytest.fixture
    def line(self) -> Line:
        raise NotImplementedError

    def test_each_party_is_asked_its_own_and_its_reply_comes_whole(self, line: Any) -> None:
        sizes = {"ash": 0, "birch": 1, "cedar": 70_001, "doum": 3 * MEGA + 7}
        sent = {party: party.encode() * (size // len(party) + 1) for party, size in sizes.items()}
        found = outcomes(line.channel(dict.fromkeys(sent, echo)).ask(asks(sent)))
        assert found == {party: echo(raw) for party, raw in sent.items()}

    def test_a_reply_is_handed_over_when_it_arrives_not_when_all_are_there(self, line: Any) -> None:
        slow = Slow()
        with line.channel({"ash": slow, "birch": echo}).ask(asks({"ash": b"1", "birch": b"2"})) as asking:
            replied = (event for event in asking if isinstance(event, Replied))
            assert next(replied).party == "birch"
            slow.go.set()
            assert next(replied) == Replied("ash", echo(b"1"))
            assert next(replied, None) is None

    def test_messages_are_made_when_they_are_sent_and_not_held(self, line: Any) -> None:
        names = [f"site-{number}" for number in range(40)]
        held = LocalRecords()
        channel = line.channel(dict.fromkeys(names, lambda raw: raw[:8].strip()))
        found = outcomes(channel.ask({name: lambda name=name: held.make(name.encode().ljust(MEGA)) for name in names}))
        assert found == {name: name.encode() for name in names}
        assert held.made >= 40 and held.most <= 8

    def test_a_message_may_be_made_again_and_is_the_same(self, line: Any) -> None:
        channel = line.channel({"ash": echo})
        once = asks({"ash": b"the same"})
        assert outcomes(channel.ask(once)) == outcomes(channel.ask(once)) == {"ash": echo(b"the same")}

    def test_replies_that_nobody_takes_are_not_piled_up(self, line: Any) -> None:
        names = [f"site-{number}" for number in range(24)]
        reply = bytes(4 * MEGA)
        channel = line.channel(dict.fromkeys(names, lambda raw: reply))
        tracemalloc.start()
        try:
            with channel.ask(asks(dict.fromkeys(names, b"more"))) as asking:
                time.sleep(0.3)
                assert sum(len(event.reply) for event in asking if isinstance(event, Replied)) == 24 * 4 * MEGA
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < (70 + line.copies * 24 * 4) * MEGA

    def test_a_party_that_is_gone_is_lost_and_the_others_count(self, line: Any) -> None:
        line.take_away("birch")
        channel = line.channel({"ash": echo, "birch": echo, "cedar": echo})
        found = outcomes(channel.ask(asks(dict.fromkeys(("ash", "birch", "cedar"), b"?")), timeouts=Timeouts(silent=2)))
        assert found.pop("birch") in (ABSENT, SILENT)
        assert found == dict.fromkeys(("ash", "cedar"), echo(b"?"))

    def test_a_party_that_computes_shows_life_and_is_not_gone(self, line: Any) -> None:
        slow, seen = Slow(), []
        with line.channel({"ash": slow}).ask(asks({"ash": b"a long step"}), timeouts=Timeouts(silent=1.0)) as asking:
            timer = threading.Timer(2.5, slow.go.set)
            timer.start()
            seen = list(asking)
        assert seen[-1] == Replied("ash", echo(b"a long step"))
        assert len(seen) > 2 and set(seen[:-1]) == {Alive("ash")}

    def test_who_answers_after_the_deadline_is_late_and_has_answered_the_next_time(self, line: Any) -> None:
        slow = Slow()
        channel = line.channel({"ash": slow, "birch": echo})
        both = asks({"ash": b"1", "birch": b"2"})
        assert outcomes(channel.ask(both, timeouts=Timeouts(deadline=2))) == {"ash": LATE, "birch": echo(b"2")}
        slow.go.set()
        assert outcomes(channel.ask(both)) == {"ash": echo(b"1"), "birch": echo(b"2")}

    def test_whoever_asked_may_hurry_and_a_nearer_deadline_stays(self, line: Any) -> None:
        slow = Slow()
        began = time.monotonic()
        with line.channel({"ash": slow}).ask(asks({"ash": b"1"}), timeouts=Timeouts(deadline=SOON)) as asking:
            asking.hurry(0.3)
            asking.hurry(SOON)
            assert [event for event in asking if not isinstance(event, Alive)] == [Lost("ash", LATE)]
        slow.go.set()
        assert time.monotonic() - began < SOON / 2

    @pytest.mark.parametrize("way", ["ask", "reply"])
    def test_what_is_too_large_loses_its_party_alone(self, line: Any, way: str) -> None:
        big = bytes(3000)
        channel = line.channel({"ash": lambda raw: big if way == "reply" else b"no", "birch": echo}, most=2000)
        found = outcomes(channel.ask(asks({"ash": big if way == "ask" else b"?", "birch": b"?"})))
        assert found == {"ash": SIZE, "birch": echo(b"?")}

    def test_an_ask_is_cancelled_from_another_thread(self, line: Any) -> None:
        slow = {name: Slow() for name in ("ash", "birch")}
        made: Any = []
        late = [f"site-{number}" for number in range(30)]

        def stuck(raw: bytes) -> bytes:
            return slow["ash"](raw)

        channel = line.channel({**slow, **dict.fromkeys(late, stuck)})
        messages = {name: lambda name=name: made.append(name) or b"?" for name in (*slow, *late)}
        with channel.ask(messages) as asking:
            assert slow["ash"].begun.wait(SOON)
            threading.Timer(0.1, asking.cancel).start()
            seen = [event for event in asking if not isinstance(event, Alive)]
        assert {event.party for event in seen} == set(messages) and {event.why for event in seen} == {CANCELLED}
        assert asking.cancelled
        count = len(made)
        for one in slow.values():
            one.go.set()
        time.sleep(0.3)
        assert len(made) <= count + 4, "what was being made then, and no more"

    def test_after_the_block_is_left_nothing_is_sent_and_nothing_is_heard(self, line: Any) -> None:
        made: Any
        slow, made = Slow(), []
        names = ["ash", *(f"site-{number}" for number in range(30))]
        channel = line.channel(dict.fromkeys(names, slow))

        class Enough(Exception):
            pass

        with pytest.raises(Enough):  # noqa: SIM117
            with channel.ask({name: lambda name=name: made.append(name) or b"?" for name in names}) as asking:
                assert slow.begun.wait(SOON)
                raise Enough
        count = len(made)
        slow.go.set()
        time.sleep(0.3)
        assert list(asking) == [] and len(made) <= count + 4
        assert outcomes(channel.ask(asks({"ash": b"again"}))) == {"ash": echo(b"again")}

    def test_many_asks_at_once_do_not_mix(self, line: Any) -> None:
        names = ("ash", "birch", "cedar")
        channel = line.channel({name: lambda raw, name=name: name.encode() + raw for name in names})
        wrong: list[object] = []

        def asking(thread: int) -> None:
            for number in range(10):
                sent = {name: f"{thread}/{number}/{name}".encode() for name in names}
                found = outcomes(channel.ask(asks(sent)))
                if found != {name: name.encode() + raw for name, raw in sent.items()}:
                    wrong.append((sent, found))

        threads = [threading.Thread(target=asking, args=(number,)) for number in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(3 * SOON)
        assert not wrong and not any(one.is_alive() for one in threads)

    def test_a_site_that_raises_is_a_lost_party(self, line: Any) -> None:
        def broken(raw: bytes) -> bytes:
            raise ZeroDivisionError("/home/owner/secret.csv")

        found = outcomes(line.channel({"ash": broken, "birch": echo}).ask(asks({"ash": b"?", "birch": b"?"})))
        assert found == {"ash": FAILED, "birch": echo(b"?")}

    def test_a_message_that_can_not_be_made_ends_the_ask_with_its_error(self, line: Any) -> None:
        def unmakeable() -> bytes:
            raise LookupError("the journal lacks a box")

        with pytest.raises(LookupError, match="lacks a box"):
            outcomes(line.channel({"ash": echo, "birch": echo}).ask({**asks({"birch": b"?"}), "ash": unmakeable}))

    def test_nobody_is_lost_while_the_line_itself_is_down(self, line: Any) -> None:
        if not line.can_go_down:
            return
        channel = line.channel({"ash": echo, "birch": echo})
        line.down(2.0)
        found = outcomes(channel.ask(asks(dict.fromkeys(("ash", "birch"), b"?")), timeouts=Timeouts(silent=1.5)))
        assert found == dict.fromkeys(("ash", "birch"), echo(b"?"))

    @pytest.mark.parametrize(
        "bad",
        [
            {"loss": 0.1},
            {"twice": 0.5},
            {"swapped": 0.3},
            {"delay": 0.05},
            {"loss": 0.05, "twice": 0.2, "swapped": 0.2},
        ],
        ids=["loss", "duplicate", "reordering", "slow", "all of it"],
    )
    def test_a_bad_line_changes_nothing_that_is_heard(self, line: Any, bad: Any) -> None:
        """Each is answered once, whole, whatever became of the pieces on the way."""
        sizes = {"ash": 1, "birch": 70_001, "cedar": MEGA + 7}
        answered: Any = {party: [] for party in sizes}

        def site(party: str) -> Site:
            return lambda raw: answered[party].append(raw) or echo(raw)

        channel = line.channel({party: site(party) for party in sizes})
        line.worsen(**bad)
        for number in (1, 2):
            sent = {party: bytes([number]) * size for party, size in sizes.items()}
            assert outcomes(channel.ask(asks(sent))) == {party: echo(raw) for party, raw in sent.items()}
        assert {party: set(heard) for party, heard in answered.items()} == {
            party: {bytes([1]) * size, bytes([2]) * size} for party, size in sizes.items()
        }

    @pytest.mark.parametrize("ends", [("ash",), ("",), ("", "ash", "birch")], ids=["a site's", "the asker's", "all"])
    def test_a_connection_that_breaks_is_made_again_and_nobody_is_lost(self, line: Any, ends: Any) -> None:
        slow = Slow()
        channel = line.channel({"ash": slow, "birch": echo})
        both = asks({"ash": b"1", "birch": b"2"})
        with channel.ask(both, timeouts=Timeouts(silent=SOON)) as asking:
            assert slow.begun.wait(SOON)
            for end in ends:
                line.cut(end)
            slow.go.set()
            assert outcomes(asking) == {"ash": echo(b"1"), "birch": echo(b"2")}
        assert outcomes(channel.ask(both, timeouts=Timeouts(silent=SOON))) == {"ash": echo(b"1"), "birch": echo(b"2")}

    def test_cancelling_one_of_two_asks_for_the_same_leaves_the_other(self, line: Any) -> None:
        slow = Slow()
        channel = line.channel({"ash": slow})
        same = asks({"ash": b"the same"})
        with channel.ask(same) as one, channel.ask(same) as other:
            assert slow.begun.wait(SOON)
            one.cancel()
            assert outcomes(one) == {"ash": CANCELLED}
            slow.go.set()
            assert outcomes(other) == {"ash": echo(b"the same")}
        # Nor is what was cancelled lost: asked again, it is answered.
        assert outcomes(channel.ask(same)) == {"ash": echo(b"the same")}

    def test_what_is_as_large_as_allowed_is_carried_both_ways(self, line: Any) -> None:
        raw = bytes(2000 - line.margin)
        channel = line.channel({"ash": lambda asked: asked}, most=2000)
        assert outcomes(channel.ask(asks({"ash": raw}))) == {"ash": raw}

    def test_a_line_that_breaks_in_the_middle_of_a_long_message_carries_it_all_the_same(self, line: Any) -> None:
        sent = {"ash": bytes(range(256)) * (40 * MEGA // 256), "birch": b"?"}
        channel = line.channel(dict.fromkeys(sent, lambda raw: raw[::-1]))
        with channel.ask(asks(sent), timeouts=Timeouts(silent=SOON)) as asking:
            if line.can_go_down:
                time.sleep(0.05)
                line.down(0.3)
            assert outcomes(asking) == {party: raw[::-1] for party, raw in sent.items()}

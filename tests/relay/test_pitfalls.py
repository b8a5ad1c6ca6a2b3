"""What a bus, its client or a site can do to an ask: it is still answered, or its party is lost as it should be."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import random
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from comity.crypto import key_file
from comity.federation.messages.channel import ABSENT, FAILED, LATE, SILENT, Replied, Timeouts
from comity.relay import agent, membership
from comity.relay import channel as channels
from comity.relay import link as links
from comity.relay.channel import NatsChannel
from comity.relay.wire import PIECE_BYTES, Frame, Kind
from tests.federation.channel_conformance import MEGA, SOON, asks, echo, outcomes
from tests.support.relays import Loopback, NatsLine, Site, needs_server, wait_until

pytestmark = needs_server

LONG = random.Random(3).randbytes(3 * MEGA + 5)


def test_who_is_absent_is_noticed_at_once_and_lost_after_the_grace(line: Any) -> None:
    line.take_away("birch")
    channel = line.channel({"ash": echo, "birch": echo})
    channel._grace = 0.0
    began = time.monotonic()
    assert outcomes(channel.ask(asks({"ash": b"?", "birch": b"?"})))["birch"] == ABSENT
    assert time.monotonic() - began < 2


def test_a_site_that_starts_late_is_waited_for_whatever_the_patience_with_silence(loopback: Any) -> None:
    """The grace period for a start does not count as silence: the site has not subscribed yet."""
    line = NatsLine(loopback, grace=SOON)
    try:
        line.take_away("ash")
        channel = line.channel({"ash": echo})

        def begin() -> None:
            line.sites["ash"] = Site(line.loop, loopback, "ash", echo)

        threading.Timer(1.2, begin).start()
        assert outcomes(channel.ask(asks({"ash": b"?"}), timeouts=Timeouts(silent=0.6))) == {"ash": echo(b"?")}
    finally:
        line.end()


def test_who_listens_and_says_nothing_is_silent(line: Any) -> None:
    channel = line.channel({"ash": echo, "birch": echo})

    async def nothing(message: Any) -> None:
        pass

    line.sites["ash"].agent._link._receive = nothing
    line.sites["ash"].agent._send = nothing
    line.sites["ash"].agent._take_offer = nothing
    found = outcomes(channel.ask(asks({"ash": b"?", "birch": b"?"}), timeouts=Timeouts(silent=1)))
    assert found == {"ash": SILENT, "birch": echo(b"?")}


def test_a_site_that_dies_in_the_middle_and_comes_back_answers(line: Any) -> None:
    """The message is pulled again, and made again, because it was no longer held."""
    made: Any
    made, answered = [], threading.Event()

    def dies(raw: Any) -> bytes:
        answered.set()
        time.sleep(SOON)
        return b"never"

    channel = line.channel({"ash": dies})
    channel._grace = SOON
    with channel.ask({"ash": lambda: made.append(1) or LONG}) as asking:
        assert answered.wait(SOON)
        line.sites["ash"].line.close()
        line.sites["ash"].running.cancel()
        line.sites["ash"] = Site(line.loop, line.loopback, "ash", lambda raw: raw[::-1])
        assert [event.reply for event in asking if isinstance(event, Replied)] == [LONG[::-1]]
    assert len(made) == 2


def test_a_message_that_is_another_when_it_is_made_again_is_an_error_not_a_mixture(line: Any) -> None:
    channel = line.channel({"ash": echo})
    channel._grace = SOON
    made = []

    def other() -> bytes:
        made.append(1)
        return LONG + bytes([len(made)])

    line.end_sites()
    asking = channel.ask({"ash": other})
    wait_until(lambda: len(made) == 1)
    wait_until(lambda: not channel._outgoing._held)
    line.sites["ash"] = Site(line.loop, line.loopback, "ash", echo)
    with pytest.raises(Exception, match="changed when it was made again"):
        outcomes(asking)


@pytest.mark.deploy
def test_pieces_on_their_way_stay_few_however_many_parties(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MAX_PIECES_IN_FLIGHT", 6)
    names = [f"site-{number}" for number in range(12)]
    channel = line.channel(dict.fromkeys(names, lambda raw: LONG))
    most, send = [], channel._link.send

    async def counted(subject: Any, frame: Any, answer_to: str = "") -> None:
        most.append(sum(call.reply.in_flight for call in channel._replies._pulling if call.reply is not None))
        await send(subject, frame, answer_to)

    channel._link.send = counted
    assert outcomes(channel.ask(asks(dict.fromkeys(names, b"?")))) == dict.fromkeys(names, LONG)
    assert 1 < max(most) <= 6


def test_a_site_keeps_few_asks_and_answers_all(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "MAX_OPEN_ASKS", 2)
    slow = threading.Semaphore(0)

    def wait(raw: Any) -> bytes:
        assert slow.acquire(timeout=SOON)
        return echo(raw)

    channel = line.channel({"ash": wait})
    found = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(outcomes(channel.ask(asks({"ash": str(n).encode()})))))
        for n in range(6)
    ]
    for one in threads:
        one.start()
    slow.release(6)
    for one in threads:
        one.join(SOON)
    assert sorted(one["ash"] for one in found) == [echo(str(n).encode()) for n in range(6)]


def test_a_site_takes_long_messages_one_after_the_other(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks decides how long messages are, not how much memory a site gives to all of them at once."""
    monkeypatch.setattr(agent, "MAX_OPEN_BYTES", 4 * MEGA)
    most: Any = []
    channel = line.channel({"ash": lambda raw: most.append(taken()) or raw[:9]})
    site = line.sites["ash"].agent

    def taken() -> Any:
        return sum(ask.message.size for ask in list(site._open.values()) if ask.state is not agent.State.ANSWERED)

    askings = [channel.ask(asks({"ash": bytes([number]) * 3 * MEGA})) for number in range(3)]
    assert [outcomes(asking)["ash"] for asking in askings] == [bytes([number]) * 9 for number in range(3)]
    assert max(most) <= 4 * MEGA


def test_an_ask_that_nobody_repeats_gives_way(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "MAX_OPEN_BYTES", 4 * MEGA)
    channel = line.channel({"ash": lambda raw: raw[:9]})
    frame = Frame(Kind.ASK, bytes(16), 3 * MEGA)
    asyncio.run_coroutine_threadsafe(channel._link.send("comity.ask.ash", frame), channel._loop).result(SOON)
    wait_until(lambda: bytes(16) in line.sites["ash"].agent._open)
    long = asks({"ash": b"x" * 3 * MEGA})
    assert outcomes(channel.ask(long, timeouts=Timeouts(deadline=1))) == {"ash": LATE}
    monkeypatch.setattr(agent, "STALLED_SECONDS", 0.0)
    assert outcomes(channel.ask(long)) == {"ash": b"x" * 9}


def test_replies_that_nobody_takes_are_forgotten_and_given_again(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "MAX_HELD_BYTES", 4 * MEGA)
    channel = line.channel({"ash": lambda raw: raw * MEGA})
    site = line.sites["ash"].agent
    for letter in (b"a", b"b", b"c", b"d", b"e", b"f"):
        assert outcomes(channel.ask(asks({"ash": letter})))["ash"] == letter * MEGA
    wait_until(lambda: not site._open and not site._replies)


def test_a_member_that_is_not_admitted_yet_connects_once_it_is(tmp_path: Path) -> None:
    """The client's own reconnecting gives up for good when the relay says no."""
    made = Loopback.make(tmp_path, ["north"])
    made.start()
    try:
        key_file.create(made.keys_of("east"))
        line = NatsLine(made)
        site = Site(line.loop, made, "east", echo)
        wait_until(lambda: any("Authorization" in said for said in site.agent._link._errors))
        assert not site.agent._link.is_connected
        made.admit("east")
        site.up()
        site.end()
        line.end()
    finally:
        made.stop()


def test_new_keys_and_a_new_invitation_are_taken_up_at_the_next_connection(tmp_path: Path) -> None:
    made = Loopback.make(tmp_path, ["north"])
    made.start()
    try:
        line = NatsLine(made)
        site = Site(line.loop, made, "north", echo)
        site.up()
        made.keys_of("north").rename(tmp_path / "old")
        membership.revoke_member(made.folder, "north")
        made.admit("north")
        wait_until(lambda: "Authorization" in site.agent._link.last_errors or site.agent._link.is_connected)
        site.up()
        # The relay's certificate: removed, made again, and pinned by the invitation that is written again.
        made.stop()
        for name in ("key.pem", "certificate.pem"):
            (made.folder / "relay" / name).unlink()
        before = made.invitation.read_text()
        membership.create_consortium(made.folder, address=made.relay_of("north").address)
        assert made.invitation.read_text() != before
        pinned = made.invitation.read_text()
        made.invitation.write_text(before)
        made.start()
        wait_until(lambda: "certificate verify failed" in site.agent._link.last_errors.lower())
        made.invitation.write_text(pinned)
        site.up()
        site.end()
        line.end()
    finally:
        made.stop()


def test_garbage_at_both_ends_is_dropped(line: Any) -> None:
    channel = line.channel({"ash": echo})
    site = line.sites["ash"].agent
    chance = random.Random(1)
    for end, subject, link in (
        (channel._loop, "comity.ask.ash", channel._link),
        (None, "comity.reply.ash", site._link),
    ):
        loop = end or line.loop.loop
        for size in (0, 1, 24, 25, 26, 200, 5000):
            raw = chance.randbytes(size)
            forged = [raw, bytes([chance.randrange(1, 9)]) + raw[1:]]
            for one in forged:
                asyncio.run_coroutine_threadsafe(link._client.publish(subject, one), loop).result(SOON)
    assert outcomes(channel.ask(asks({"ash": LONG}))) == {"ash": echo(LONG)}


def test_an_ask_that_claims_a_size_it_has_not_is_dropped(line: Any) -> None:
    """Pieces that do not give what was announced are never answered."""
    answered: Any = []
    channel = line.channel({"ash": lambda raw: answered.append(raw) or echo(raw)})
    asking = channel.ask(asks({"ash": b"true"}))
    assert outcomes(asking) == {"ash": echo(b"true")}
    for number, body in ((4, b"fake"), (9, b"fake"), (1 << 62, b"x")):
        frame = Frame(Kind.ASK, bytes(16), number, body)
        asyncio.run_coroutine_threadsafe(channel._link.send("comity.ask.ash", frame), channel._loop).result(SOON)
    assert outcomes(channel.ask(asks({"ash": b"more"}))) == {"ash": echo(b"more")}
    assert answered == [b"true", b"more"]


def test_what_the_client_drops_is_pulled_again(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client drops what a subscription holds beyond its limit, and reports it only to its callback."""
    received = agent.RelayAgent._receive

    async def slowly(self: Any, message: Any) -> None:
        await asyncio.sleep(0.02)
        await received(self, message)

    monkeypatch.setattr(agent.RelayAgent, "_receive", slowly)
    monkeypatch.setattr(links, "_PENDING_BYTES", 2 * PIECE_BYTES)
    channel = line.channel({"ash": echo})
    assert outcomes(channel.ask(asks({"ash": LONG}))) == {"ash": echo(LONG)}
    assert "slow consumer" in line.sites["ash"].agent._link.last_errors.lower(), "the control: something was dropped"


def test_two_coordinators_with_one_key_hear_each_its_own(line: Any) -> None:
    """Both hear all replies, and ignore what they did not ask."""
    first = line.channel({"ash": echo})
    second = NatsChannel(line.loopback.relay_of("coordinator"), ["ash"], repeat_every=0.2, grace=SOON)
    line.channels.append(second)
    wait_until(lambda: second.is_connected)
    with first.ask(asks({"ash": LONG})) as one, second.ask(asks({"ash": b"other"})) as other:
        assert outcomes(other) == {"ash": echo(b"other")} and outcomes(one) == {"ash": echo(LONG)}


def test_the_end_of_a_connection_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """What asyncio says at the end of every TLS connection of the client means nothing."""
    logging.getLogger("asyncio").warning("returning true from eof_received() has no effect when using ssl")
    logging.getLogger("asyncio").warning("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]


HOLDS_THE_LOCK = """
    import ctypes, pathlib, sys, threading
    from comity.federation.owner.host import Answer
    from comity.relay.address import RelayAddress
    from comity.relay.endpoint import serve

    party, relay = sys.argv[1], RelayAddress.load(*map(pathlib.Path, sys.argv[2:]))

    class Site:
        def answer(self, raw):
            if raw == b"hold":
                ctypes.PyDLL(None).usleep(3_000_000)    # PyDLL keeps the interpreter's lock
            return Answer(raw[::-1])

    Site.party = party
    serve(Site(), relay)
"""


@pytest.mark.deploy
def test_a_step_that_holds_the_interpreter_lock_shows_life(loopback: Any) -> None:
    """A deployed site has two processes. It ends on a signal, and its agent with it."""
    script = textwrap.dedent(HOLDS_THE_LOCK)
    process = subprocess.Popen(
        [sys.executable, "-c", script, "cedar", str(loopback.invitation), str(loopback.keys_of("cedar"))],
        stderr=subprocess.PIPE,
    )
    try:
        with NatsChannel(loopback.relay_of("coordinator"), ["cedar"], repeat_every=0.2, grace=SOON) as channel:
            assert outcomes(channel.ask(asks({"cedar": LONG}))) == {"cedar": LONG[::-1]}
            found = outcomes(channel.ask(asks({"cedar": b"hold"}), timeouts=Timeouts(silent=1.5)))
            assert found == {"cedar": b"dloh"}
            process.terminate()
            assert process.wait(SOON) == 0
            channel._grace = 0.0
            wait_until(
                lambda: outcomes(channel.ask(asks({"cedar": b"?"}), timeouts=Timeouts(deadline=2)))["cedar"] == ABSENT
            )
    finally:
        process.kill()
        process.wait()


def test_a_coordinator_that_did_something_else_for_long_loses_nobody(line: Any) -> None:
    """The coordinator did not read what the parties sent meanwhile, so no party was silent."""
    slow = threading.Event()
    channel = line.channel({"ash": lambda raw: slow.wait(SOON) and echo(raw)})
    with channel.ask(asks({"ash": b"?"}), timeouts=Timeouts(silent=2.5)) as asking:
        ctypes.PyDLL(None).usleep(3_000_000)
        threading.Timer(0.3, slow.set).start()
        assert [event.reply for event in asking if isinstance(event, Replied)] == [echo(b"?")]


def test_an_ask_whose_message_is_on_its_way_to_the_loop_is_excused_too(
    line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = line.channel({"ash": echo})
    # What was made for the loop does not reach it.
    monkeypatch.setattr(channel, "_call_soon", lambda *_: None)
    with channel.ask(asks({"ash": b"?"}), timeouts=Timeouts(silent=SOON)) as asking:
        wait_until(lambda: not channel._outgoing.waiting)
        begun = asking._open["ash"]
        # As if nothing of this process had run for long.
        channel._ticked -= 100
        wait_until(lambda: asking._open["ash"] > begun)
        monkeypatch.undo()


def test_a_site_whose_desk_sends_something_else_than_it_offered_is_lost(line: Any) -> None:
    channel = line.channel({"ash": lambda raw: LONG, "birch": echo})
    site = line.sites["ash"].agent
    say = site._send

    async def lies(kind: Any, name: Any, number: int = 0, body: bytes = b"") -> None:
        await say(kind, name, number, bytes(len(body)) if kind is Kind.PIECE and number == 2 else body)

    site._send = lies
    assert outcomes(channel.ask(asks({"ash": b"?", "birch": b"?"}))) == {"ash": FAILED, "birch": echo(b"?")}


def test_a_packed_study_goes_to_the_inbox_and_not_to_the_hosts(line: Any) -> None:
    """Also where its bytes are those of an ask that was answered."""
    answered: Any = []
    channel = line.channel({"ash": lambda raw: answered.append(raw) or echo(raw)})
    assert outcomes(channel.submit(asks({"ash": b"pack" + LONG}))) == {"ash": b""}
    assert outcomes(channel.submit(asks({"ash": b"other"}))) == {"ash": b"policy"}
    assert answered == []
    assert outcomes(channel.ask(asks({"ash": b"other"}))) == {"ash": echo(b"other")}

"""Boxes around asks and replies: what opens where, and what is made again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from comity.errors import Malformed, Refused
from comity.federation.messages.channel import NO_TIMEOUT, PendingAsk, Replied, Timeouts
from comity.federation.messages.sealed_channel import SealedChannel, open_ask, seal_messages
from tests.support.consortia import make_identity

PARTIES = ("ash", "birch")
ROSTER = {name: make_identity(name).public for name in PARTIES}


class Echo:
    """Sites that open what comes and reply with it; keeps what was carried."""

    def __init__(self, change: Any = lambda party, reply: reply) -> None:
        self.asked: dict[str, tuple[bytes, bytes]] = {}
        self.replies: dict[str, bytes] = {}
        self.change = change

    def ask(self, messages: Any, *, timeouts: Timeouts = NO_TIMEOUT) -> PendingAsk:
        asking = PendingAsk(messages, timeouts, most=1 << 30)
        for party, make in messages.items():
            self.asked[party] = make(), make()
            opened = open_ask(make_identity(party), party, self.asked[party][0])
            self.replies[party] = opened.seal_reply(b"reply to " + opened.raw)
            asking.replied(party, self.change(party, self.replies[party]))
        return asking


def heard(channel: Any, body: bytes = b"a message") -> dict[Any, Any]:
    found = channel.ask({party: lambda: body for party in PARTIES})
    return {event.party: event.reply for event in found if isinstance(event, Replied)}


def test_what_is_asked_and_replied_arrives_and_is_not_seen() -> None:
    line = Echo()
    assert heard(SealedChannel(line, ROSTER)) == dict.fromkeys(PARTIES, b"reply to a message")
    for carried in (*(one for pair in line.asked.values() for one in pair), *line.replies.values()):
        assert b"message" not in carried and b"reply" not in carried and b"ash" not in carried
    for first, again in line.asked.values():
        assert first == again, "a message that is made again is the same bytes"
    before = dict(line.asked)
    heard(SealedChannel(line, ROSTER))
    assert all(line.asked[party][0] != before[party][0] for party in PARTIES), "another ask has another key"


def test_every_box_has_a_key_of_its_own() -> None:
    """Two parties are asked the same: under one key, and its one nonce, they would be sent the same bytes."""
    line = Echo()
    heard(SealedChannel(line, ROSTER))
    bodies = [box[6 + int.from_bytes(box[4:6], "big") :] for box, _ in line.asked.values()]
    assert len(bodies[0]) == len(bodies[1]) > 1_200
    same = sum(one == other for one, other in zip(*bodies))
    assert same < len(bodies[0]) / 20


def test_a_box_opens_for_its_party_alone() -> None:
    line = Echo()
    heard(SealedChannel(line, ROSTER))
    box = line.asked["ash"][0]
    assert open_ask(make_identity("ash"), "ash", box).raw == b"a message"
    for keys, party in (("birch", "ash"), ("ash", "birch"), ("coordinator", "ash")):
        with pytest.raises(Malformed):
            open_ask(make_identity(keys), party, box)


@pytest.mark.parametrize("place", [0, 3, 4, 5, 6, 40, 1_200, -100, -1])
def test_a_box_that_was_altered_opens_nowhere(place: int) -> None:
    line = Echo()
    heard(SealedChannel(line, ROSTER))
    box = bytearray(line.asked["ash"][0])
    box[place] ^= 1
    with pytest.raises(Malformed):
        open_ask(make_identity("ash"), "ash", bytes(box))


@pytest.mark.parametrize(
    "raw", [b"", b"CMS1", b"CMS1\x00\x00", b"CMS1\xff\xff" + bytes(9), bytes(2_000), b"CMS1" + bytes(2_000)]
)
def test_whatever_is_no_box_is_malformed(raw: Any) -> None:
    with pytest.raises(Malformed) as error:
        open_ask(make_identity("ash"), "ash", raw)
    assert error.value.code == "sealed"


def test_replies_open_for_whoever_asked_and_only_there() -> None:
    line: Echo = Echo(change=lambda party, reply: line.replies.get("ash", reply) if party == "birch" else reply)
    assert heard(SealedChannel(line, ROSTER)) == {"ash": b"reply to a message", "birch": b""}, "one of another party"
    kept = dict(line.replies)
    line.change = lambda party, reply: kept[party]
    assert heard(SealedChannel(line, ROSTER)) == dict.fromkeys(PARTIES, b""), "those of an earlier ask"


def test_a_box_opens_for_its_purpose_alone() -> None:
    """Whoever carries it may call it what it likes."""
    purpose: Any
    other: Any
    for purpose, other in (("ask", "study"), ("study", "ask")):
        boxes = seal_messages({"ash": lambda: b"what is inside"}, ROSTER, purpose)
        box = boxes.messages["ash"]()
        found = open_ask(make_identity("ash"), "ash", box, purpose)
        assert found.raw == b"what is inside" and boxes.open_reply("ash", found.seal_reply(b"yes")) == b"yes"
        with pytest.raises(Malformed, match="does not open"):
            open_ask(make_identity("ash"), "ash", box, other)


def test_a_party_without_a_pinned_key_is_not_asked() -> None:
    with pytest.raises(Refused, match="birch has no pinned key") as error:
        heard(SealedChannel(Echo(), {"ash": ROSTER["ash"]}))
    assert error.value.code == "stranger"


def test_a_pinned_key_that_is_none_of_the_sites_opens_nothing() -> None:
    line = Echo()
    wrong = {**ROSTER, "ash": replace(ROSTER["ash"], mlkem=ROSTER["birch"].mlkem)}
    with pytest.raises(Malformed):
        heard(SealedChannel(line, wrong))

"""Attacks by the relay's operator, who receives every message and publishes at any subject."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from comity.crypto.sealing import Identity
from comity.errors import Stopped
from comity.federation.messages.sealed_channel import seal_messages
from comity.federation.owner.registry import Registry
from comity.relay import agent
from comity.relay.agent import MAX_SEALED_PACK_BYTES
from comity.relay.wire import Frame, Kind, message_id
from comity.site.service import SiteService
from tests.support.asks import sign_ask, write_ask
from tests.support.relays import needs_server, wait_until

from .attacked import decoded
from .matrix import NOTHING, PAGE, attack

pytestmark = needs_server

SITE = "the site"
NORTH = "comity.ask.north"


@attack(
    "reading what is carried: studies on their way to inboxes, asks and replies",
    by="the seals of both ends",
    told="sizes and times",
    sees=NOTHING,
)
def test_what_the_relay_carries_holds_no_plain_value(
    row: Any, consortium_under_attack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = consortium_under_attack
    inside = []

    def listening(of: Any, name: Any) -> None:
        inner = getattr(of, name)

        def heard(self: Any, raw: Any) -> Any:
            found = inner(self, raw)
            inside.extend([raw, getattr(found, "reply", b"")])
            return found

        monkeypatch.setattr(of, name, heard)

    listening(Registry, "answer")
    listening(SiteService, "take_in")
    start = len(one.operator.carried)
    one.deliver_study(one.study)
    outcome = one.run(one.study)
    carried = one.operator.since(start)
    outside, within = b"".join(each.raw for each in carried), b"".join(inside)
    values = [value.tobytes()[:32] for value in outcome.released.values() if isinstance(value, np.ndarray)]
    words = [one.study.hash, one.study.hash[:12], "readmission", "averaging", "attack-", "run.begin[0]", "epsilon"]
    plain = [*values, *(word.encode() for word in words), (one.study.folder / "schema.toml").read_bytes()[:60]]
    # The control: all of it crosses, inside the boxes.
    assert len(values) >= 1 and [word for word in plain if word not in within] == []
    assert [word for word in plain if word in outside] == []
    windows = {outside[at : at + 12] for at in range(len(outside))}
    assert not [at for raw in inside for at in range(0, len(raw) - 12, 7) if raw[at : at + 12] in windows]
    # What is left to it: who, how much, when.
    assert {each.subject for each in carried} == {
        f"comity.{way}.{member}" for way in ("ask", "reply") for member in one.services
    }


@attack(
    "key swap by the relay: an ask of its own, signed by itself, with its own key for the reply",
    by=SITE,
    told="study",
    sees="its coordinator did not sign this for us",
)
def test_an_ask_that_the_relay_made_is_refused(row: Any, attacked: Any) -> None:
    """Swapping the coordinator's key for its own: the box opens, as anybody can seal to a pinned key, and says who
    signed it."""
    raw = sign_ask(Identity(), "north", write_ask("run.ready[0]", study=attacked.study.hash))
    boxes = seal_messages({"north": lambda: raw}, attacked.study.consortium.roster)
    box = boxes.messages["north"]()
    before = len(attacked.operator.carried)
    attacked.operator.says(NORTH, Frame(Kind.ASK, message_id(box), len(box), box).to_bytes())
    wait_until(lambda: replies(attacked, before))
    (reply,) = replies(attacked, before)
    assert decoded(boxes.open_reply("north", reply)) == {"refused": row.told, "key": ""} and attacked.sees(row.sees)


def replies(attacked: Any, since: Any) -> list[Any]:
    found = [one.frame for one in attacked.operator.carried[since:] if one.subject == "comity.reply.north"]
    return [bytes(frame.body[16:]) for frame in found if frame.kind is Kind.REPLY]


@attack("an ask that is not sealed", by=SITE, told="sealed", sees="comes in a sealed box")
def test_an_ask_that_is_not_sealed_is_refused(row: Any, attacked: Any) -> None:
    raw = sign_ask(attacked.sites.coordinator, "north", write_ask("run.ready[0]", study=attacked.study.hash))
    assert decoded(attacked.carry({"north": lambda: raw})["north"])["refused"] == row.told and attacked.sees(row.sees)


@attack("a packed study that is not sealed", by=SITE, told="sealed", sees="comes in a sealed box")
def test_a_study_that_is_not_sealed_is_refused(row: Any, attacked: Any) -> None:
    raw = attacked.sites.pack(attacked.study)
    found = attacked.carry({"north": lambda: raw}, "study")["north"]
    assert decoded(found)["refused"] == row.told and attacked.sees(row.sees)


@attack("an ask handed over as a study, and the other way round", by=SITE, told="sealed", sees="does not open")
def test_boxes_say_what_they_are_for(row: Any, attacked: Any) -> None:
    raw = sign_ask(attacked.sites.coordinator, "north", write_ask("run.ready[0]", study=attacked.study.hash))
    pack = attacked.sites.pack(attacked.study)
    purpose: Any
    for inner, purpose, other in ((raw, "ask", "study"), (pack, "study", "ask")):
        boxes = seal_messages({"north": partial(bytes, inner)}, attacked.study.consortium.roster, purpose)
        found = attacked.carry(boxes.messages, other)["north"]
        assert decoded(found)["refused"] == row.told and attacked.sees(row.sees)


@attack(
    "replaying recorded asks and studies, of a run that is over",
    by="the site, which has answered each once",
    told="boxes that it can't open",
    sees="closed and its replies are deleted",
)
def test_what_is_replayed_is_not_done_again(row: Any, consortium_under_attack: Any) -> None:
    one = consortium_under_attack
    start = len(one.operator.carried)
    one.deliver_study(one.study)
    # Under an id that would lead elsewhere, were it a path.
    run = one.new_run()
    one.run(one.study, f"../../{run}")
    kept = sorted(path.parent.name for path in one.sites.folder.rglob(f"*{run}") if path.is_dir())
    assert kept == ["own-models"] * 2 + ["results"] * 2
    recorded = {each.frame.id: each.raw for each in one.operator.since(start) if is_whole_ask(each)}
    before, since = one.heads(), len(one.operator.carried)
    one.operator.says(NORTH, *recorded.values())
    wait_until(lambda: len(replies(one, since)) >= len(recorded))
    assert len(recorded) > 10 and one.heads() == before
    assert any(row.sees in sentence for sentence in one.refusals())


def is_whole_ask(carried: Any) -> Any:
    frame = carried.frame
    return carried.subject == NORTH and frame.kind in (Kind.ASK, Kind.STUDY) and len(frame.body) == frame.number


@attack(
    "a reply of its own, or a recorded one, in place of a site's",
    by="the coordinator: the party counts as lost, and the run can be resumed",
    told=NOTHING,
    sees=NOTHING,
)
def test_a_reply_that_the_relay_made_counts_for_nothing(
    row: Any, attacked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, begun = threading.Event(), threading.Event()
    received = SiteService.receive

    def slow(self: Any, raw: Any) -> bytes:
        begun.set()
        assert go.wait(20)
        return received(self, raw)

    monkeypatch.setattr(SiteService, "receive", slow)
    said = []

    def tried() -> None:
        try:
            attacked.deliver_study(attacked.study)
        except Stopped as error:
            said.append(str(error))

    start = len(attacked.operator.carried)
    asking = threading.Thread(target=tried)
    asking.start()
    assert begun.wait(20)
    wait_until(lambda: {one.subject for one in attacked.operator.carried[start:]} >= {NORTH, "comity.ask.south"})
    for party in attacked.services:
        asks = [one.frame for one in attacked.operator.carried[start:] if one.subject == f"comity.ask.{party}"]
        yes = b"\x00" * 80
        forged = Frame(Kind.REPLY, asks[0].id, len(yes), message_id(yes) + yes)
        attacked.operator.says(f"comity.reply.{party}", forged.to_bytes())
    asking.join(20)
    go.set()
    assert len(said) == 1 and "its reply is not signed with its key" in said[0]


# What a site's service drops before anything of it is looked at; its owner hears of it once a second.


def told_again(attacked: Any) -> None:
    for end in attacked.ends:
        end.agent._reported = -agent.REPORT_SECONDS


@attack(
    "malformed frames, and a flood of them", by="the site, which drops them", told=NOTHING, sees="no message of Comity"
)
def test_a_flood_of_garbage_is_dropped_and_told_once(row: Any, attacked: Any) -> None:
    told_again(attacked)
    path = attacked.sites.home("north") / "refusals.jsonl"
    lines = len(path.read_text().splitlines())
    junk, began = [b"", b"\xff" * 30, b"INFO {}", bytes(200)], time.monotonic()
    attacked.operator.says(NORTH, *(junk[number % 4] for number in range(600)))
    assert "ok" in attacked.ask("run.ready[0]"), "the site answers meanwhile"
    wait_until(lambda: attacked.sees(row.sees))
    assert len(path.read_text().splitlines()) - lines <= 2 + (time.monotonic() - began) / agent.REPORT_SECONDS


@attack(
    "an oversized message, announced",
    by="the site, before it pulls any of it",
    told="size",
    sees="larger than a site takes",
)
def test_an_oversized_message_is_not_pulled(row: Any, attacked: Any) -> None:
    told_again(attacked)
    since = len(attacked.operator.carried)
    attacked.operator.says(NORTH, Frame(Kind.ASK, b"o" * 16, 1 << 50).to_bytes())
    wait_until(lambda: attacked.sees(row.sees))
    wait_until(lambda: any(one.subject == "comity.reply.north" for one in attacked.operator.carried[since:]))
    said = [one.frame for one in attacked.operator.carried[since:] if one.subject == "comity.reply.north"]
    assert [(frame.kind, bytes(frame.body)) for frame in said] == [(Kind.FAILED, row.told.encode())]


@attack(
    "an oversized study, announced",
    by="the site, before it pulls any of it",
    told="size",
    sees="larger than a site takes",
)
def test_an_oversized_study_is_not_pulled(row: Any, attacked: Any) -> None:
    told_again(attacked)
    since = len(attacked.operator.carried)
    attacked.operator.says(NORTH, Frame(Kind.STUDY, b"s" * 16, MAX_SEALED_PACK_BYTES + 1).to_bytes())
    wait_until(lambda: attacked.sees(row.sees))
    wait_until(lambda: any(one.subject == "comity.reply.north" for one in attacked.operator.carried[since:]))
    said = [one.frame for one in attacked.operator.carried[since:] if one.subject == "comity.reply.north"]
    assert [(frame.kind, bytes(frame.body)) for frame in said] == [(Kind.FAILED, row.told.encode())]


@attack(
    "another message than was announced",
    by="the site, which drops it",
    told=NOTHING,
    sees="not the one that was announced",
)
def test_a_message_that_is_not_what_was_announced_is_dropped(row: Any, attacked: Any) -> None:
    told_again(attacked)
    attacked.operator.says(NORTH, Frame(Kind.ASK, b"u" * 16, 4, b"fake").to_bytes())
    wait_until(lambda: attacked.sees(row.sees))
    assert b"u" * 16 not in attacked.ends[0].agent._open


def sizes(one: Any) -> list[Any]:
    """Bytes of every ask and reply of a run of the study, by subject. Beats, which say the same again without its
    message, are left out."""
    start = len(one.operator.carried)
    one.run(one.study)
    seen = {
        (each.subject, each.frame.id, each.frame.kind): len(each.raw) for each in one.operator.carried[start:][::-1]
    }
    return sorted((subject, size) for (subject, _, kind), size in seen.items() if kind in (Kind.ASK, Kind.REPLY))


@pytest.mark.deploy
def test_sizes_of_what_is_carried_do_not_depend_on_records(consortium_under_attack: Any) -> None:
    """What the relay counts is the same for any records: runs with every record of north replaced, and with its own
    before and after. An ask tells how many commits each ledger has had, and grows by a byte where that number does: so
    a message is as long as before or afterwards, or between. The page has the figures."""
    one = consortium_under_attack
    path = one.sites.home("north") / "patients.csv"
    text, page = path.read_text(), PAGE.read_text("utf-8")
    try:
        sizes(one)
        before = sizes(one)
        lines = text.splitlines()
        path.write_text("\n".join([lines[0], *[lines[1]] * (len(lines) - 1)]) + "\n")
        one.sites.write("north")
        replaced = sizes(one)
    finally:
        path.write_text(text)
        one.sites.write("north")
    after = sizes(one)
    assert [name for name, _ in replaced] == [name for name, _ in before] == [name for name, _ in after]
    sized = [(least, other, most) for (_, least), (_, other), (_, most) in zip(before, replaced, after)]
    assert all(least <= other <= most <= least + 2 for least, other, most in sized)
    for way, subject in (("asks", "comity.ask"), ("replies", "comity.reply")):
        found = {member: [size for name, size in before if name == f"{subject}.{member}"] for member in one.services}
        least, most = (f"{of(size for one in found.values() for size in one):,}" for of in (min, max))
        sums = sorted({round(sum(each) / 1000) for each in found.values()})
        kilobytes = " to ".join(map(str, dict.fromkeys((sums[0], sums[-1]))))
        assert {len(each) for each in found.values()} == {10}
        shown = f"| {way} | 10 | {least} to {most} each, {kilobytes} kB in all |"
        assert shown in page, shown


@pytest.mark.deploy
def test_whether_a_party_refused_can_be_told_from_sizes(consortium_under_attack: Any) -> None:
    """A limit that the page states: a refusal is shorter than an answer."""
    one = consortium_under_attack

    def length(**more: Any) -> int:
        start = len(one.operator.carried)
        one.ask("run.ready[0]", **more)
        one.operator.since(start)
        return len(replies(one, start)[0])

    assert length(study="0" * 64) < length()

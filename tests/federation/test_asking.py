"""How the coordinator waits: messages made when sent, replies counted as they are verified, deadlines, cancelling."""

from __future__ import annotations

import threading
import time
import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from comity.errors import SiteLost, Stopped
from comity.federation.coordinator import exchange as rounds
from comity.federation.coordinator.exchange import Terms, exchange
from comity.federation.coordinator.journal import Journal, PartyAsk
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.protection import Noised
from comity.federation.messages.ask import StepPath
from comity.federation.messages.channel import (
    ABSENT,
    MAX_BYTES,
    NO_TIMEOUT,
    ROOM,
    Alive,
    Lost,
    PendingAsk,
    Replied,
    Timeouts,
)
from comity.federation.messages.codec import encode
from comity.federation.messages.signatures import sign_reply
from comity.federation.owner.host import Answer
from comity.study.local import channel as local
from comity.study.local.channel import LocalChannel
from tests.support.asks import path_of
from tests.support.consortia import STUDY, make_identity
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, set_up_run

SOON = 20.0


class LocalRecords:
    """A host that keeps its reply to one step back until it is let go."""

    def __init__(self, host: Any, path: Any, change: Any = lambda reply: reply) -> None:
        self.host, self.path, self.change = host, path, change
        self.go, self.begun = threading.Event(), threading.Event()

    def answer(self, raw: Any) -> Any:
        answer = self.host.answer(raw)
        if path_of(raw) != self.path:
            return answer
        self.begun.set()
        assert self.go.wait(SOON)
        return Answer(self.change(answer.reply))


def held(party: Any, path: Any, **options: Any) -> Any:
    """A run whose `party` keeps its reply to `path` back; options are those of the coordinator."""
    parties, hosts = set_up_run(Rounds(protection=Noised, rounds=1), noise=NoNoise())
    for name, value in options.items():
        setattr(parties, name, value)
    slow = LocalRecords(hosts[party], path)
    parties.channel = LocalChannel({**hosts, party: slow}, beat=0.05)
    return parties, hosts, slow


# The journal.


def test_nothing_is_locked_while_a_value_is_made_that_is_made_once() -> None:
    journal, making, go = Journal(None), threading.Event(), threading.Event()
    values = []

    def long() -> str:
        making.set()
        assert go.wait(SOON)
        return "slow"

    slow = threading.Thread(target=lambda: values.append(journal.once("run-1", "name", long)), daemon=True)
    slow.start()
    assert making.wait(SOON)
    other = threading.Thread(
        target=lambda: values.append(journal.once("run-2", "name", lambda: "other run")), daemon=True
    )
    other.start()
    other.join(SOON / 4)
    assert values == ["other run"]
    # The first that is written counts, for whoever makes it at the same time.
    assert journal.once("run-1", "name", lambda: "quick") == "quick"
    go.set()
    slow.join(SOON)
    assert values == ["other run", "quick"] and journal.recall("run-1", "name") == "quick"


# Messages are made when they are sent.


class Dropping:
    """Makes every message, as a channel that sends does, and lets go of it."""

    def ask(self, messages: Any, *, timeouts: Any = NO_TIMEOUT) -> PendingAsk:
        asking = PendingAsk(messages, timeouts, most=MAX_BYTES)
        for party, make in messages.items():
            make()
            asking.lost(party, ABSENT)
        return asking


def test_a_broadcast_to_many_is_held_once_not_once_for_each() -> None:
    size, names = 2 << 20, [f"p{number}" for number in range(60)]
    journal, path = Journal(None), StepPath("", "average", "0")
    own = ((name, PartyAsk(encode({}), encode([]), [])) for name in names)
    journal.open("run-1", str(path), encode({"centre": np.zeros(size // 8)}), own)
    reader: Any = SimpleNamespace(agreement=SimpleNamespace(study=STUDY), run="run-1", path=path)
    tracemalloc.start()
    try:
        done = exchange(
            reader, names, make_identity("coordinator"), Dropping(), journal, Terms(need=60), lambda _: None
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert set(done.faults) == set(names)
    # What all get, one message of it, and that message with its signature.
    assert peak < 5 * size


def test_what_each_party_gets_of_its_own_is_written_down_one_after_the_other() -> None:
    size, names = 1 << 20, [f"p{number}" for number in range(40)]
    journal = Journal(None)
    tracemalloc.start()
    try:
        journal.open("run-1", "average[0]", encode({}), ((n, PartyAsk(bytes(size), encode([]), [])) for n in names))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert list(journal.asked("run-1", "average[0]")) == names
    assert peak < 6 * size


def test_replies_that_are_taken_out_together_wait_no_longer_than_said() -> None:
    asking = PendingAsk(["ash", "birch"], NO_TIMEOUT, most=MAX_BYTES, beat=2 * SOON, every=0.05)
    found = []
    taker = threading.Thread(target=lambda: found.append(next(iter(asking))), daemon=True)
    taker.start()
    # Nobody is woken for one reply of two, which is seen all the same.
    asking.replied("ash", b"reply")
    taker.join(SOON / 2)
    assert found == [Replied("ash", b"reply")]


def test_a_carrier_that_can_wait_waits_while_replies_are_taken_out() -> None:
    asking = PendingAsk(["ash", "birch"], NO_TIMEOUT, most=MAX_BYTES, every=0.05)
    asking.replied("ash", b"first")
    events = iter(asking)
    assert next(events) == Replied("ash", b"first")
    handed = threading.Thread(target=lambda: asking.replied("birch", b"second", wait=True), daemon=True)
    handed.start()
    handed.join(0.1)
    # What was taken out is being looked at: the other thread is not at work meanwhile.
    assert handed.is_alive() and asking.open == ["birch"]
    assert list(events) == [Replied("birch", b"second")]
    handed.join(SOON)
    assert not handed.is_alive()


def test_a_carrier_that_waits_is_let_go_where_nobody_takes_anything_out_any_more() -> None:
    asking = PendingAsk(["ash", "birch"], NO_TIMEOUT, most=MAX_BYTES, every=0.05)
    asking.replied("ash", b"first")
    next(iter(asking))
    handed = threading.Thread(target=lambda: asking.replied("birch", b"second", wait=True), daemon=True)
    handed.start()
    asking.close()
    handed.join(SOON)
    assert not handed.is_alive()


class Counted:
    """Hosts that count how many of them are at work at once."""

    def __init__(self, seconds: Any) -> None:
        self.seconds, self.now, self.most, self.lock = seconds, 0, 0, threading.Lock()

    def answer(self, raw: Any) -> Answer:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self.seconds)
        with self.lock:
            self.now -= 1
        return Answer(b"reply")


@pytest.mark.parametrize(("seconds", "at_once"), [(0.0, {1}), (0.2, {2, 3, 4})])
def test_hosts_run_one_at_a_time_while_their_steps_are_short(
    seconds: float, at_once: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_LONG", 0.05 if seconds else SOON)
    host, names = Counted(seconds), [f"p{number}" for number in range(6)]
    with LocalChannel(dict.fromkeys(names, host)).ask(dict.fromkeys(names, lambda: b"ask")) as asking:
        assert {event.party for event in asking if isinstance(event, Replied)} == set(names)
    assert host.most in at_once


def test_a_carrier_that_can_wait_waits_until_there_is_room() -> None:
    half = bytes(ROOM // 2 + 1)
    asking = PendingAsk(["ash", "birch", "cedar"], NO_TIMEOUT, most=MAX_BYTES)
    assert asking.replied("ash", half, wait=True) and asking.replied("birch", half, wait=True)
    third = threading.Thread(target=asking.replied, args=("cedar", half), kwargs={"wait": True}, daemon=True)
    third.start()
    third.join(0.2)
    assert third.is_alive() and not asking.claim("cedar", len(half))
    assert [event.party for event in asking] == ["ash", "birch", "cedar"]
    third.join(SOON)
    assert not third.is_alive()


def test_room_is_claimed_before_a_reply_is_pulled_and_one_always_has_room() -> None:
    asking = PendingAsk(["ash", "birch"], NO_TIMEOUT, most=4 * ROOM)
    assert asking.claim("ash", 2 * ROOM) and not asking.claim("birch", 1)
    assert asking.replied("ash", b"shorter in the end")
    assert asking.claim("birch", 1) and not asking.claim("ash", 1)


def test_the_first_outcome_of_a_party_counts_and_what_comes_after_the_end_is_dropped() -> None:
    asking = PendingAsk(["ash", "birch"], NO_TIMEOUT, most=MAX_BYTES)
    asking.alive("ash")
    assert asking.replied("ash", b"first") and not asking.replied("ash", b"second")
    asking.lost("ash", ABSENT)
    asking.lost("birch", ABSENT)
    assert not asking.replied("birch", b"after all")
    assert list(asking) == [Replied("ash", b"first"), Lost("birch", ABSENT)]
    closed = []
    asking.at_close(lambda: closed.append(1))
    asking.close()
    asking.close()
    asking.at_close(lambda: closed.append(2))
    assert closed == [1, 2] and not asking.replied("ash", b"third")


def test_whoever_is_busy_with_a_reply_takes_nobodys_silence_for_a_loss() -> None:
    """Signs of life that a carrier shows itself are looked for before the clock is."""
    asking = PendingAsk(["ash", "birch"], Timeouts(silent=0.2), most=MAX_BYTES, showing=lambda: ["birch"])
    asking.replied("ash", b"a long one")
    seen = []
    for event in asking:
        seen.append(event)
        if isinstance(event, Replied):
            time.sleep(0.5)
        elif isinstance(event, Alive):
            asking.replied("birch", b"done")
    assert seen[0] == Replied("ash", b"a long one") and seen[-1] == Replied("birch", b"done")


# How long is waited, and for how many.


def test_when_enough_have_answered_the_others_get_a_grace_and_no_more() -> None:
    parties, _, slow = held("elm", "average[0]", timeouts=Timeouts(grace=0.1))
    began = time.monotonic()
    run(parties)
    slow.go.set()
    assert parties.lost == {"elm": "average[0]: no answer in time"} and time.monotonic() - began < SOON


def test_without_a_grace_the_last_one_is_waited_for() -> None:
    parties, _, slow = held("elm", "average[0]")
    threading.Timer(0.3, slow.go.set).start()
    run(parties)
    assert parties.lost == {}


def test_a_reply_that_does_not_verify_is_not_one_of_those_that_are_enough() -> None:
    """Else whoever carries the bytes could push honest parties out by inventing replies."""
    parties, hosts, slow = held("elm", "average[0]")
    begin(parties)
    forged = LocalRecords(hosts["ash"], "average[0]", change=lambda reply: reply[:-1] + bytes([reply[-1] ^ 1]))
    forged.go.set()
    parties.channel = LocalChannel({"ash": forged, **{n: hosts[n] for n in ("birch", "cedar", "doum")}, "elm": slow})
    threading.Timer(0.3, slow.go.set).start()
    assert list(parties.ask("average", need=4, timeouts=Timeouts(grace=0.0))) == ["birch", "cedar", "doum", "elm"]
    assert list(parties.lost) == ["ash"] and "altered" in parties.lost["ash"]


def test_too_few_before_the_deadline_stop_the_run_and_it_is_resumed() -> None:
    parties, hosts, slow = held("elm", "average[0]")
    begin(parties)
    with pytest.raises(SiteLost, match=r"4 of the 5 needed .* elm \(no answer in time\)"):
        parties.ask("average", need=5, timeouts=Timeouts(deadline=0.3))
    slow.go.set()
    assert list(parties.ask("average", need=5)) == list(hosts)


def test_once_too_few_can_answer_the_rest_is_not_waited_for() -> None:
    parties, hosts, slow = held("elm", "average[0]", timeouts=Timeouts(grace=0.1))
    begin(parties)
    hosts.pop("ash"), hosts.pop("birch")
    parties.channel = LocalChannel({**hosts, "elm": slow})
    with pytest.raises(SiteLost, match="2 of the 4 needed"):
        parties.ask("average", need=4)
    slow.go.set()


def test_a_last_word_waits_for_all_whatever_one_says() -> None:
    """The end of a run is everybody's: a refusal decides nothing there, and no grace begins."""
    parties, hosts, slow = held("elm", "run.abandon[0]", timeouts=Timeouts(grace=0.0))

    class Refusing:
        def answer(self, raw: Any) -> Answer:
            return Answer(sign_reply(make_identity("ash"), "ash", raw, encode({"refused": "closed", "key": "run"})))

    parties.channel = LocalChannel({**hosts, "ash": Refusing(), "elm": slow})
    threading.Timer(0.3, slow.go.set).start()
    assert parties.under("run").tell("abandon", parties.consortium.parties)


def test_whoever_watches_hears_who_computes_who_answered_and_who_is_lost() -> None:
    heard = []
    parties, hosts, slow = held("elm", "average[0]", watch=lambda *what: heard.append(what))
    hosts.pop("doum")
    parties.channel = LocalChannel({**hosts, "elm": slow}, beat=0.05)
    threading.Timer(0.4, slow.go.set).start()
    run(parties)
    of = {word for path, party, word in heard if (path, party) == ("average[0]", "elm")}
    assert of == {"alive", "replied"}
    assert ("run.ready[0]", "doum", ABSENT) in heard and ("average[0]", "ash", "replied") in heard


# Cancelling.


def test_a_cancelled_run_stops_decides_nothing_and_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MAX_UNSTORED_BYTES", 1)
    parties, hosts, slow = held("elm", "average[0]")

    def cancel() -> None:
        assert slow.begun.wait(SOON)
        while len(parties.journal.answered("run-1", "average[0]")) < 4:
            time.sleep(0.01)
        parties.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(Stopped, match=r"average\[0\]: cancelled. Nothing is lost"):
        run(parties)
    canceller.join()
    # Replies were written down as they came, enough of them to go on: yet the fifth is not lost.
    assert parties.journal.answered("run-1", "average[0]") == ["ash", "birch", "cedar", "doum"]
    assert not parties.journal.is_closed("run-1", "average[0]") and parties.lost == {}
    slow.go.set()
    again, _ = set_up_run(Rounds(protection=Noised, rounds=1), noise=NoNoise(), hosts=hosts)
    again.journal = parties.journal
    run(again)
    assert again.lost == {}
    assert [party for party, raw in cast(Any, again.channel).asked if path_of(raw) == "average[0]"] == ["elm"]
    for host in hosts.values():
        assert [entry.kind for entry in host.store.ledger.entries()].count("draw") == 2


def test_a_run_that_was_cancelled_asks_no_more() -> None:
    parties, _ = set_up_run()
    parties.under("run").cancel()
    with pytest.raises(Stopped, match="cancelled"):
        run(parties)
    assert cast(Any, parties.channel).asked == []


def test_replies_are_written_down_when_enough_of_them_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MAX_UNSTORED_BYTES", 1)
    parties, _ = set_up_run(Rounds(protection=Noised, rounds=0), noise=NoNoise())
    got, batches = parties.journal.record, []

    def counting(run_id: Any, path: Any, replies: Any, **rest: Any) -> None:
        batches.append((path, len(replies), rest["decided"]))
        got(run_id, path, replies, **rest)

    cast(Any, parties.journal).record = counting
    run(parties)
    assert [batch for batch in batches if batch[0] == "average[0]"] == [("average[0]", 1, False)] * 5 + [
        ("average[0]", 0, True)
    ]


@pytest.mark.parametrize("key", ["deadline", "silent", "grace"])
@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_patience_is_a_number_of_seconds(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"timeouts.{key}"):
        Timeouts(**{key: value})

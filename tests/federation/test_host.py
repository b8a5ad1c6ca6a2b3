"""One ask, one answer; what is not declared does not leave; errors tell nothing."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest

from comity.data import Records
from comity.errors import BadInput, BudgetExceeded, DataError, Refused
from comity.federation.agreement import Agreement
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.policy import Policy
from comity.federation.declare.protection import Noised, Public, Sealed
from comity.federation.declare.release import Blob, Count
from comity.federation.lifecycle import Lifecycle
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.federation.owner.host import Host
from comity.federation.protocol import Protocol, step
from comity.federation.sum.site import SecureSum
from comity.study.local.channel import LocalChannel
from tests.support.asks import answer_ask, ask_host, sign_ask, write_ask
from tests.support.consortia import STUDY, list_draws, make_consortium, make_identity
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, begin_host, host_party, set_up_run


def test_the_same_ask_gets_the_same_bytes_and_is_debited_once() -> None:
    one = begin_host()
    first = ask_host(one, "average[0]")
    assert "ok" in decode(first)
    assert [ask_host(one, "average[0]") for _ in range(3)] == [first] * 3
    assert len(list_draws(one)) == 1


def test_a_different_ask_under_the_same_key_is_refused() -> None:
    one = begin_host()
    assert "ok" in decode(ask_host(one, "lean[0]", centre=np.zeros(3)))
    assert decode(ask_host(one, "lean[0]", centre=np.ones(3)))["refused"] == "asked-before"
    assert len(list_draws(one)) == 1


def test_without_the_rule_two_asks_would_average_the_noise_away() -> None:
    """Positive control: a site that forgets its replies draws again for one reservation, were it not for the ledger."""
    one = begin_host()
    first = decode(ask_host(one, "average[0]"))["ok"]["mean"]
    with one.store.ledger.transaction() as transaction:
        transaction.connection.execute("delete from reply where path = 'average[0]'")
    assert decode(ask_host(one, "average[0]"))["refused"] != ""
    assert len(list_draws(one)) == 1 and first.shape == (3,)


@pytest.mark.parametrize(
    ("path", "values", "code"),
    [
        ("average[1]", {}, "too-often"),
        ("lean[2]", {"centre": np.zeros(3)}, "too-often"),
        ("average[-1]", {}, "too-often"),
        ("average[00]", {}, "too-often"),
        ("average[0]x", {}, "no-step"),
        ("average", {}, "no-step"),
        (".average[0]", {}, "no-step"),
        ("..average[0]", {}, "no-step"),
        ("average[0]\n", {}, "no-step"),
        (" average[0]", {}, "no-step"),
        ("average[ 0]", {}, "no-step"),
        ("average[+0]", {}, "no-step"),
        ("average[0_0]", {}, "too-often"),
        ("average[٠]", {}, "no-step"),
        ("average[0][0]", {}, "no-step"),
        ("average[0]]", {}, "no-step"),
        ("average[]", {}, "no-step"),
        ("Average[0]", {}, "no-step"),
        ("ａverage[0]", {}, "no-step"),
        ("sum..unmask[mean/0]", {}, "no-step"),
        (".sum.unmask[mean/0]", {}, "no-step"),
        ("sum.sum.unmask[mean/0]", {}, "no-step"),
        ("run.begin[1]", {}, "too-often"),
        (".run.begin[0]", {}, "no-step"),
        ("features[0]", {}, "no-step"),
        ("coordinate[0]", {}, "no-step"),
        ("nothing.average[0]", {}, "no-step"),
        ("run.__class__[0]", {}, "no-step"),
        ("average[0]", {"extra": 1.0}, "form"),
        ("lean[0]", {}, "form"),
        ("lean[0]", {"centre": np.zeros(4)}, "form"),
        ("lean[0]", {"centre": np.full(3, np.nan)}, "form"),
        ("lean[0]", {"centre": "zero"}, "form"),
    ],
)
def test_asks_that_are_not_declared_are_refused_and_cost_nothing(path: str, values: Any, code: str) -> None:
    one = begin_host()
    assert decode(ask_host(one, path, **values))["refused"] == code
    assert list_draws(one) == []


@dataclass(frozen=True)
class Aliased(Rounds):
    """A step under two attributes."""

    @step()
    def note(self, site: Any) -> None:
        site.keep("noted", site.kept("noted", 0) + 1)

    again = note


def test_a_step_has_one_path_and_is_answered_once() -> None:
    """A second way to write its path would run it again, outside of how often it may be asked for."""
    one = begin_host(protocol=Aliased(protection=Noised))
    assert "ok" in decode(ask_host(one, "note[0]"))
    for other in (".note[0]", "again[0]", "note[00]", "note[0]", "NOTE[0]", "note[0] "):
        ask_host(one, other)
    assert decode(one.store.state("run-1", "noted") or b"") == 1
    assert set(one.store.replies("run-1")) == {"run.begin[0]", "note[0]"}


def test_a_run_id_is_plain_text() -> None:
    one = begin_host()
    for run_id in ("run\x1b[2J", "run\n1", "r\u0301un", "x" * 201):
        assert decode(ask_host(one, "average[0]", run=run_id))["refused"] == "form"


def test_another_study_a_run_that_did_not_begin_and_garbage_are_refused() -> None:
    one = begin_host()
    assert decode(ask_host(one, "average[0]", study="6" * 64))["refused"] == "study"
    assert "refused" in decode(ask_host(one, "average[0]", run="run-2"))
    assert decode(answer_ask(one, b"garbage"))["refused"] == "malformed"
    assert decode(answer_ask(one, encode([1, 2, 3])))["refused"] == "form"
    assert decode(ask_host(one, "average[0]", run=""))["refused"] == "form"
    assert list_draws(one) == []


def test_an_exhausted_ledger_refuses_with_a_code_and_keeps_the_figures_at_home() -> None:
    one = host_party(Rounds(), make_consortium(), "ash", epsilon=0.5)
    answered = one.answer(sign_ask(make_identity(COORDINATOR), "ash", write_ask("run.begin[0]")))
    reply = answered.reply[:-SIGNATURE_BYTES]
    assert decode(reply) == {"refused": "budget", "key": "privacy.epsilon"}
    assert "0.50 is left" in str(answered.refusal) and "short" in str(answered.refusal)
    assert "0.5" not in repr(decode(reply))
    assert [e.kind for e in one.store.ledger.entries()] == ["create"]


def test_a_run_that_ended_never_draws_again() -> None:
    one = begin_host()
    assert "ok" in decode(ask_host(one, "run.end[0]", heads={}))
    assert decode(ask_host(one, "average[0]"))["refused"] == "closed"
    assert (
        decode(ask_host(one, "run.begin[0]", coordinator_key=make_identity("other").public.sealing()))["refused"]
        == "closed"
    )
    assert list_draws(one) == []


@dataclass(frozen=True)
class Leaky(Rounds):
    @step(gives=("features",))
    def peek(self, site: Any) -> dict[str, Any]:
        return {"features": site.features}

    @step(gives=("mean",))
    def misuse(self, site: Any) -> dict[str, Any]:
        return {"mean": np.zeros(3)}

    @step()
    def whisper(self, site: Any) -> None:
        site.send("birch", "mean", np.zeros(3, "<i8"))

    @step(sends="mean")
    def twice(self, site: Any) -> None:
        site.contribute(np.zeros(3))
        site.contribute(np.ones(3))

    @step(sends="mean")
    def fails_after(self, site: Any) -> None:
        site.contribute(np.zeros(3))
        raise MemoryError

    @step(sends="mean")
    def fails_before(self, site: Any) -> None:
        raise ZeroDivisionError("value 17 of patient 4")

    @step(sends="mean")
    def wrong_shape(self, site: Any) -> None:
        site.contribute(np.zeros(7))


@pytest.mark.parametrize("name", ["peek", "misuse", "whisper", "wrong_shape"])
def test_a_step_can_send_only_what_is_declared(name: str) -> None:
    one = begin_host(protocol=Leaky(protection=Noised))
    assert decode(ask_host(one, f"{name}[0]"))["refused"] in ("undeclared", "form")
    assert list_draws(one) == []


def test_a_failure_after_the_draw_is_spent_and_stopped_for_ever() -> None:
    one = begin_host(protocol=Leaky(protection=Noised))
    for name in ("fails_after", "twice"):
        fresh = begin_host(protocol=Leaky(protection=Noised))
        reply = ask_host(fresh, f"{name}[0]")
        assert set(decode(reply)) == {"stopped", "head"}
        assert ask_host(fresh, f"{name}[0]") == reply
        assert list_draws(fresh) == [("mean", 0)]
    assert list_draws(one) == []


def test_a_failed_fit_takes_part_neutrally() -> None:
    one = begin_host(protocol=Leaky(protection=Noised), noise=NoNoise())
    np.testing.assert_array_equal(decode(ask_host(one, "fails_before[0]"))["ok"]["mean"], np.zeros(3))
    assert list_draws(one) == [("mean", 0)]


def test_data_that_can_not_be_read_look_like_any_other_stop() -> None:
    one = host_party(Rounds(protection=Noised), make_consortium(), "ash")

    def unreadable() -> Records:
        raise DataError("patients.csv: row 17 has no age", key="age")

    one._records = unreadable
    one.__dict__.pop("records", None)
    ask_host(one, "run.begin[0]")
    reply = ask_host(one, "average[0]")
    assert decode(reply) == {"refused": "stopped", "key": ""}
    assert list_draws(one) == []
    one._records = Records(np.zeros((2, 3)))
    assert "ok" in decode(ask_host(one, "average[0]"))


def test_values_outside_the_bound_are_brought_inside_before_the_noise() -> None:
    one = begin_host(noise=NoNoise())
    one.__dict__["records"] = Records(np.full((4, 3), 1e200))
    units = decode(ask_host(one, "average[0]"))["ok"]["mean"]
    release = one.declaration["mean"]
    assert np.linalg.norm(units * release.scale(one.consortium).grid) <= np.sqrt(3) * (1 + 1e-3)
    # Not so far outside that anything else would notice: five times the bound is projected onto it.
    one = begin_host(noise=NoNoise())
    one.__dict__["records"] = Records(np.full((4, 3), 5.0))
    units = decode(ask_host(one, "average[0]"))["ok"]["mean"]
    np.testing.assert_allclose(units * release.scale(one.consortium).grid, np.ones(3), atol=1e-3)
    one = begin_host(noise=NoNoise())
    one.__dict__["records"] = Records(np.full((4, 3), np.nan))
    np.testing.assert_array_equal(decode(ask_host(one, "average[0]"))["ok"]["mean"], np.zeros(3))


def test_a_party_outside_its_bound_moves_an_opened_sum_no_further_than_the_bound() -> None:
    """Through the masks too: what is summed is what was projected."""
    parties, hosts = set_up_run(Rounds(rounds=0), make_consortium(3, dropouts=0), noise=NoNoise())
    for name, one in hosts.items():
        one.__dict__["records"] = Records(np.full((4, 3), 7.0 if name == "ash" else 0.0))
    np.testing.assert_allclose(3 * run(parties)["result"], np.ones(3), atol=1e-3)


def test_nothing_is_answered_before_a_run_begins_after_it_ends_or_for_another_study() -> None:
    """Alignment and the set-up of sums draw nothing, so no reservation guards them: the beginning of the run does."""
    one = host_party(Rounds(), make_consortium(), "ash", policy=Policy(approved={}))
    assert decode(ask_host(one, "run.begin[0]"))["refused"] == "approval"
    assert decode(ask_host(one, "sum.deal[0]", keys={}))["refused"] == "unreserved"
    one = begin_host(protocol=Rounds())
    assert decode(ask_host(one, "sum.deal[0]", keys={}))["refused"] == "sum"
    two = host_party(Rounds(), make_consortium(), "ash")
    two.agreement, two.store = replace(two.agreement, study="6" * 64), one.store
    assert decode(ask_host(two, "average[0]", study="6" * 64))["refused"] == "unreserved"
    assert "ok" in decode(ask_host(one, "run.end[0]", heads={}))
    assert decode(ask_host(one, "sum.deal[0]", keys={}))["refused"] == "closed"


@pytest.mark.parametrize("name", ["sum.advertise", "sum.deal", "sum.meet", "run.end"])
def test_a_step_for_the_whole_run_is_not_asked_again_under_a_sums_label(name: str) -> None:
    """Else one key would lock two sets of recovery seeds, and two products masked with one mask."""
    one = begin_host(protocol=Rounds())
    assert decode(ask_host(one, f"{name}[mean/0]"))["refused"] == "too-often"


# One answer at a time, one declaration for all of them.


def test_a_repeated_ask_in_flight_is_computed_once() -> None:
    """The second thread waits for the first one's answer: the same bytes, one computation, one draw."""
    calls, inside, go = [], threading.Event(), threading.Event()

    @dataclass(frozen=True)
    class Slow(Rounds):
        @step(sends="mean")
        def average(self, site: Any) -> None:
            calls.append(site.party)
            inside.set()
            assert go.wait(20)
            site.contribute(np.zeros(3))

    one = begin_host(protocol=Slow(protection=Noised))
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(ask_host, one, "average[0]")
        assert inside.wait(20)
        others = [pool.submit(ask_host, one, "average[0]") for _ in range(3)]
        # An ask of another run is not held up by the one that is being answered.
        assert "ok" in decode(ask_host(one, "run.begin[0]", run="run-2"))
        assert "ok" in decode(ask_host(one, "lean[0]", run="run-2", centre=np.zeros(3)))
        go.set()
        assert {future.result(20) for future in (first, *others)} == {first.result()}
    assert calls == ["ash"]
    assert list_draws(one) == [("slope", 0), ("mean", 0)]


def test_two_asks_of_one_run_do_not_both_find_that_nothing_was_given_out() -> None:
    """What a site gives once it gives once, also where a coordinator asks in two ways at the same moment."""
    both = threading.Barrier(2)

    @dataclass(frozen=True)
    class Once(Rounds):
        @step(sends="mean")
        def average(self, site: Any) -> None:
            self.give(site)

        @step(sends="slope")
        def lean(self, site: Any, centre: Any) -> None:
            self.give(site)

        def give(self, site: Any) -> None:
            if site.kept("given"):
                raise Refused("it was given out before", code="once")
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.3)
            site.keep("given", True)
            site.contribute(np.zeros(3))

    one = begin_host(protocol=Once(protection=Noised))
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(ask_host, one, "average[0]"), pool.submit(ask_host, one, "lean[0]", centre=np.zeros(3))]
        replies = [decode(future.result(20)) for future in found]
    assert sorted(reply.get("refused", "") for reply in replies) == ["", "once"] and len(list_draws(one)) == 1


def test_refusals_of_asks_that_are_answered_at_once_do_not_mix() -> None:
    """Each answer has its own sentence, whatever other threads are told meanwhile."""
    one = begin_host()
    asks = [write_ask("average[7]"), write_ask("nothing[0]"), write_ask("average[0]", study="6" * 64)] * 20
    signed = [sign_ask(make_identity(COORDINATOR), "ash", message) for message in asks]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one.answer, signed))
    for answered, message in zip(answers, asks):
        code = decode(answered.reply[:-SIGNATURE_BYTES])["refused"]
        assert answered.refusal is not None and code == answered.refusal.code
        assert (code == "study") == (b"6" * 64 in message) and (code == "no-step") == (b"nothing" in message)


def test_a_local_channel_keeps_the_sentence_of_each_refusal_by_party() -> None:
    parties, hosts = set_up_run(consortium=make_consortium(3, dropouts=0), epsilon=5.0)
    hosts["birch"] = host_party(Rounds(), make_consortium(3, dropouts=0), "birch", epsilon=0.5)
    parties.channel = LocalChannel(hosts)
    with pytest.raises(Refused, match=r"birch refused run\.ready"):
        run(parties)
    assert set(parties.channel.refusals) == {"birch"}
    assert isinstance(parties.channel.refusals["birch"], BudgetExceeded)


def test_declarations_are_made_once_for_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = []
    for kind in (Rounds, SecureSum, Lifecycle):
        declare = kind.declare
        monkeypatch.setattr(
            kind, "declare", lambda self, consortium, d=declare, k=kind: made.append(k) or d(self, consortium)
        )
    consortium, protocol = make_consortium(), Rounds()
    agreement = Agreement(STUDY, protocol, consortium)
    hosts = {}
    for name in consortium.parties:
        hosts[name] = host_party(protocol, consortium, name)
        hosts[name].agreement = agreement
    parties, _ = set_up_run(protocol, consortium, hosts=hosts)
    made.clear()
    parties = type(parties)(agreement, run="run-1", channel=parties.channel, journal=parties.journal, keys=parties.keys)
    run(parties)
    assert sorted(kind.__name__ for kind in made) == ["Lifecycle", "Rounds", "SecureSum"]


# Whatever goes wrong at a site.


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("password=hunter2")


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("postgres://me:password=hunter2@db"),
        MemoryError("hunter2"),
        RecursionError("hunter2"),
        KeyError("hunter2"),
        sqlite3.OperationalError("hunter2"),
        UnicodeDecodeError("utf-8", b"hunter2", 0, 1, "hunter2"),
        SystemExit("hunter2"),
        StopIteration("hunter2"),
        Unprintable("hunter2"),
        BadInput("hunter2", code="hunter2", key="hunter2"),
        Refused("hunter2", code="hunter2", key="hunter2"),
        DataError("row 17: hunter2", key="hunter2"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("where", ["loader", "step", "store", "noise", "roster", "policy"])
def test_answering_never_raises_and_tells_nothing(
    error: Any, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = host_party(Leaky(protection=Noised), make_consortium(), "ash", noise=NoNoise())

    def fail(*args: Any, **more: Any) -> Any:
        raise error

    if where == "policy":
        monkeypatch.setattr(Policy, "check", fail)
    elif where == "roster":
        monkeypatch.setattr(Host, "identity_of", fail)
    reply = ask_host(one, "run.begin[0]")
    if where in ("loader", "step", "store", "noise"):
        assert "ok" in decode(reply)
        if where == "loader":
            one._records = fail
        elif where == "step":
            monkeypatch.setattr(Leaky, "wrong_shape", step()(lambda self, site: fail()))
            cast(Any, Leaky.wrong_shape).spec = replace(cast(Any, Leaky.wrong_shape).spec, name="wrong_shape")
        elif where == "store":
            monkeypatch.setattr(one.store, "commit", fail)
        else:
            monkeypatch.setattr(NoNoise, "rounded_gaussian", fail)
        with caplog.at_level(logging.CRITICAL):
            reply = ask_host(one, "wrong_shape[0]" if where == "step" else "average[0]")
    said = decode(reply)
    if where == "loader":
        assert said == {"refused": "stopped", "key": ""}
    if not isinstance(error, Refused | BadInput) or where == "loader":
        assert b"hunter2" not in reply
        assert said.get("refused", "stopped") == "stopped"
    assert "ok" not in said


# One namespace for what parts call their letters.


@dataclass(frozen=True)
class Posting(Protocol):
    """Has a letter of a given name."""

    letter: str = "note"
    size: int = 9

    def declare(self, consortium: Any) -> Declaration:
        release = Release(
            name=self.letter, source=EVERY_PARTY, to=EVERY_PARTY, protection=Sealed("a note"), form=Blob(self.size)
        )
        return Declaration((release,), adversary="nobody")


def test_two_parts_can_not_call_their_letters_alike() -> None:
    @dataclass(frozen=True)
    class Both(Rounds):
        parts = {"one": Posting(), "two": Posting()}

    with pytest.raises(ValueError, match="both have a letter 'note'"):
        host_party(Both(), make_consortium(), "ash")

    @dataclass(frozen=True)
    class Shadowed(Rounds):
        parts = {"one": Posting("shares")}

    with pytest.raises(ValueError, match="both have a letter 'shares'"):
        host_party(Shadowed(), make_consortium(), "ash")


def test_a_protocol_lists_a_parts_letter_as_it_is_or_not_at_all() -> None:
    @dataclass(frozen=True)
    class Listing(Rounds):
        size: int = 9
        parts = {"one": Posting()}

        def declare(self, consortium: Any) -> Declaration:
            listed = Posting(size=self.size).declare(consortium).releases
            return replace(super().declare(consortium), releases=(*super().declare(consortium).releases, *listed))

    assert host_party(Listing(), make_consortium(), "ash").agreement.letters["note"] == "one"
    with pytest.raises(ValueError, match="both have a letter 'note'"):
        host_party(Listing(size=10), make_consortium(), "ash")


@pytest.mark.parametrize("mount", ["run", "sum", "a.b", "", "x[0]", "a b"])
def test_a_part_has_a_plain_name_of_its_own(mount: str) -> None:
    @dataclass(frozen=True)
    class Odd(Rounds):
        parts = {mount: Posting()}

    with pytest.raises(ValueError, match="can't be mounted"):
        host_party(Odd(), make_consortium(), "ash")


@pytest.mark.parametrize("name", ["a/0", "in:x", "a[0]", "", "a b", "é"])
def test_a_release_has_a_plain_name(name: str) -> None:
    """It stands in paths, labels and the names of kept state."""

    @dataclass(frozen=True)
    class Odd(Rounds):
        def declare(self, consortium: Any) -> Declaration:
            odd = Release(name=name, source=COORDINATOR, to=EVERY_PARTY, protection=Public("odd"), form=Count(1))
            return replace(super().declare(consortium), releases=(*super().declare(consortium).releases, odd))

    with pytest.raises(ValueError, match="can't be named"):
        host_party(Odd(), make_consortium(), "ash")


def test_there_is_no_host_without_a_policy_or_an_agreement() -> None:
    one = host_party(Rounds(), make_consortium(), "ash")
    made: Any = Host
    with pytest.raises(TypeError, match="policy"):
        made(one.agreement, "ash", records=one.records, keys=one.keys, store=one.store, noise=one.noise)
    with pytest.raises(AttributeError):
        made(STUDY, "ash", records=one.records, keys=one.keys, store=one.store, noise=one.noise, policy=one.policy)

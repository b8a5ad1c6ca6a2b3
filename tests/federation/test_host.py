"""One ask, one answer; what is not declared does not leave; errors tell nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.errors import DataError, Malformed, Refused, Stopped
from comity.federation.alignment import Alignment
from comity.federation.codec import decode, encode
from comity.federation.declaration import Declaration
from comity.federation.envelope import sign_reply
from comity.federation.parties import run
from comity.federation.policy import SIMULATION, Policy
from comity.federation.protection import Noised
from comity.federation.protocol import step

from .children import at_once
from .toy import STUDY, NoNoise, Rounds, answer, ask_for, consortium, host, identity, path_of, setup


def ask(host, path, **values):
    return answer(host, ask_for(path, **values))


def begun(**kwargs):
    protocol = kwargs.pop("protocol", Rounds(protection=Noised))
    one = host(protocol, consortium(), "ash", **kwargs)
    assert "ok" in decode(ask(one, "run.begin[0]"))
    return one


def draws(host):
    return [(e.release, e.index) for e in host.store.ledger.entries() if e.kind == "draw"]


def test_the_same_ask_gets_the_same_bytes_and_is_debited_once():
    one = begun()
    first = ask(one, "average[0]")
    assert "ok" in decode(first)
    assert [ask(one, "average[0]") for _ in range(3)] == [first] * 3
    assert len(draws(one)) == 1


def test_a_different_ask_under_the_same_key_is_refused():
    one = begun()
    assert "ok" in decode(ask(one, "lean[0]", centre=np.zeros(3)))
    assert decode(ask(one, "lean[0]", centre=np.ones(3)))["refused"] == "ask_for-before"
    assert len(draws(one)) == 1


def test_without_the_rule_two_asks_would_average_the_noise_away():
    """Positive control: a site that forgets its replies draws again for one reservation, were it not for the ledger."""
    one = begun()
    first = decode(ask(one, "average[0]"))["ok"]["mean"]
    with one.store.ledger.transaction() as transaction:
        transaction.connection.execute("delete from reply where path = 'average[0]'")
    assert decode(ask(one, "average[0]"))["refused"] != ""
    assert len(draws(one)) == 1 and first.shape == (3,)


@pytest.mark.parametrize(
    ("path", "values", "code"),
    [
        ("average[1]", {}, "too-often"),
        ("lean[2]", {"centre": np.zeros(3)}, "too-often"),
        ("average[-1]", {}, "too-often"),
        ("average[00]", {}, "too-often"),
        ("average[0]x", {}, "no-step"),
        ("average", {}, "no-step"),
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
def test_asks_that_are_not_declared_are_refused_and_cost_nothing(path, values, code):
    one = begun()
    assert decode(ask(one, path, **values))["refused"] == code
    assert draws(one) == []


def test_another_study_a_run_that_did_not_begin_and_garbage_are_refused():
    one = begun()
    assert decode(ask(one, "average[0]", study="6" * 64))["refused"] == "study"
    assert "refused" in decode(ask(one, "average[0]", run="run-2"))
    assert decode(answer(one, b"garbage"))["refused"] == "malformed"
    assert decode(answer(one, encode([1, 2, 3])))["refused"] == "form"
    assert decode(ask(one, "average[0]", run=""))["refused"] == "form"
    assert draws(one) == []


def test_an_exhausted_ledger_refuses_with_a_code_and_keeps_the_figures_at_home():
    one = host(Rounds(), consortium(), "ash", epsilon=0.5)
    reply = ask(one, "run.begin[0]")
    assert decode(reply) == {"refused": "budget", "key": "privacy.epsilon"}
    assert "0.50 is left" in str(one.refusal) and "short" in str(one.refusal)
    assert "0.5" not in repr(decode(reply))
    assert [e.kind for e in one.store.ledger.entries()] == ["create"]


def test_a_run_that_ended_never_draws_again():
    one = begun()
    ask(one, "run.end[0]")
    assert "refused" in decode(ask(one, "average[0]"))
    assert draws(one) == []


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
def test_a_step_can_send_only_what_is_declared(name):
    one = begun(protocol=Leaky(protection=Noised))
    assert decode(ask(one, f"{name}[0]"))["refused"] in ("undeclared", "form")
    assert draws(one) == []


def test_a_failure_after_the_draw_is_spent_and_stopped_for_ever():
    one = begun(protocol=Leaky(protection=Noised))
    for name in ("fails_after", "twice"):
        fresh = begun(protocol=Leaky(protection=Noised))
        reply = ask(fresh, f"{name}[0]")
        assert decode(reply) == {"stopped": True}
        assert ask(fresh, f"{name}[0]") == reply
        assert draws(fresh) == [("mean", 0)]
    assert draws(one) == []


def test_a_failed_fit_takes_part_neutrally():
    one = begun(protocol=Leaky(protection=Noised), noise=NoNoise())
    np.testing.assert_array_equal(decode(ask(one, "fails_before[0]"))["ok"]["mean"], np.zeros(3))
    assert draws(one) == [("mean", 0)]


def test_data_that_can_not_be_read_look_like_any_other_stop():
    one = host(Rounds(), consortium(), "ash")

    def unreadable() -> Records:
        raise DataError("patients.csv: row 17 has no age", key="age")

    one._records = unreadable
    one.__dict__.pop("records", None)
    ask(one, "run.begin[0]")
    reply = ask(one, "average[0]")
    assert decode(reply) == {"refused": "stopped", "key": ""}
    assert draws(one) == []
    one._records = Records(np.zeros((2, 3)))
    assert "ok" in decode(ask(one, "average[0]"))


def test_values_outside_the_bound_are_brought_inside_before_the_noise():
    one = begun(noise=NoNoise())
    one.__dict__["records"] = Records(np.full((4, 3), 1e200))
    units = decode(ask(one, "average[0]"))["ok"]["mean"]
    release = one.declaration["mean"]
    assert np.linalg.norm(units * release.scale(one.who).grid) <= np.sqrt(3) * (1 + 1e-3)
    one = begun(noise=NoNoise())
    one.__dict__["records"] = Records(np.full((4, 3), np.nan))
    np.testing.assert_array_equal(decode(ask(one, "average[0]"))["ok"]["mean"], np.zeros(3))


def test_a_policy_is_checked_before_the_reservation():
    def reply(policy, protocol=None):
        one = host(protocol or Rounds(), consortium(), "ash", policy=policy)
        out = decode(ask(one, "run.begin[0]"))
        return out.get("refused", "ok"), out.get("key")

    assert reply(Policy(approved={STUDY: 1}))[0] == "ok"
    assert reply(Policy(approved={})) == ("approval", "")
    assert reply(Policy(protocols=("vertical",))) == ("policy", "protocols")
    assert reply(Policy(epsilon_per_study=Decimal(1), delta_per_study=Decimal("1e-6"))) == (
        "policy",
        "epsilon_per_study",
    )

    @dataclass(frozen=True)
    class Unproven(Rounds):
        def declare(self, who: Any) -> Declaration:
            return replace(super().declare(who), claim="not private as claimed: its noise is too small")

    assert reply(Policy(), Unproven()) == ("policy", "variants")
    assert reply(Policy(unproven=True), Unproven())[0] == "ok"


def test_what_a_part_discloses_needs_the_policy_too():
    @dataclass(frozen=True)
    class Aligned(Rounds):
        parts = {"align": Alignment()}

    for policy, wanted in ((Policy(), ("policy", "sizes_may_leave")), (SIMULATION, ("ok", None))):
        one = host(Aligned(), consortium(), "ash", policy=policy)
        out = decode(ask(one, "run.begin[0]"))
        assert (out.get("refused", "ok"), out.get("key")) == wanted


def test_an_approval_is_for_a_number_of_runs():
    one = host(Rounds(), consortium(), "ash", policy=Policy(approved={STUDY: 1}))
    assert "ok" in decode(ask(one, "run.begin[0]"))
    assert decode(ask(one, "run.begin[0]", run="run-2"))["refused"] == "approval"


def test_a_rolled_back_ledger_is_noticed_by_the_coordinator(tmp_path, monkeypatch):
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    (tmp_path / "sites").mkdir()
    parties, hosts = setup(folder=tmp_path / "sites")
    run(parties)
    backup = (tmp_path / "sites" / "ash.ledger").read_bytes()
    parties, hosts = setup(folder=tmp_path / "sites", run="run-2", epsilon=9.0, hosts=hosts)
    run(parties)
    # The owner restores yesterday's file, and the machine that would have noticed is new too.
    for path in (tmp_path / "sites").glob("ash.ledger*"):
        path.unlink()
    (tmp_path / "sites" / "ash.ledger").write_bytes(backup)
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "new home"))
    parties, hosts = setup(folder=tmp_path / "sites", run="run-3")
    with pytest.raises(Refused):
        run(parties)
    assert hosts["ash"].refusal is not None and "frozen" in str(hosts["ash"].refusal).lower()


def test_a_reply_that_is_not_what_was_declared_is_refused_by_the_coordinator():
    parties, hosts = setup(protocol=Rounds(protection=Noised))

    class Lying:
        def ask(self, messages):
            replies = {p: hosts[p].answer(m) for p, m in messages.items()}
            if path_of(messages["ash"]) == "average[0]":
                lie = encode({"ok": {"mean": np.zeros(4, "<i8")}, "mail": []})
                replies["ash"] = sign_reply(identity("ash"), "ash", messages["ash"], lie)
            return replies

    parties.channel = Lying()
    with pytest.raises(Malformed, match="mean is not of its declared form"):
        run(parties)


def test_a_stop_after_a_draw_ends_the_run():
    class Broken(NoNoise):
        def discrete_gaussian(self, sigma, shape, *, permit):
            raise MemoryError

    parties, hosts = setup(protocol=Rounds(protection=Noised))
    hosts["cedar"].noise = Broken()
    with pytest.raises(Stopped, match="cedar stopped"):
        run(parties)
    assert draws(hosts["cedar"]) == [("mean", 0)]


def test_nothing_is_answered_before_a_run_begins_after_it_ends_or_for_another_study():
    """Alignment and the set-up of sums draw nothing, so no reservation guards them: the beginning of the run does."""
    one = host(Rounds(), consortium(), "ash", policy=Policy(approved={}))
    assert decode(ask(one, "run.begin[0]"))["refused"] == "approval"
    assert decode(ask(one, "sum.advertise[0]"))["refused"] == "unreserved"
    one = begun()
    assert "ok" in decode(ask(one, "sum.advertise[0]"))
    two = host(Rounds(protection=Noised), consortium(), "ash")
    two.study, two.store = "6" * 64, one.store
    assert decode(ask(two, "average[0]", study="6" * 64))["refused"] == "unreserved"
    ask(one, "run.end[0]")
    assert decode(ask(one, "sum.deal[0]", keys={}))["refused"] == "closed"


@pytest.mark.parametrize("name", ["sum.advertise", "sum.deal", "sum.meet", "run.end"])
def test_a_step_for_the_whole_run_is_not_asked_again_under_a_sums_label(name):
    """Else two different wills would be locked under one key, and two products masked with one mask."""
    one = begun(protocol=Rounds())
    assert decode(ask(one, f"{name}[mean/0]"))["refused"] == "too-often"


def test_runs_that_begin_at_once_share_one_approval(tmp_path, monkeypatch):
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    hosts = [host(Rounds(), consortium(), "ash", tmp_path, policy=Policy(approved={STUDY: 1})) for _ in range(4)]
    replies = at_once(*(lambda k=k: decode(ask(hosts[k], "run.begin[0]", run=f"r{k}")) for k in range(4)))
    assert sum("ok" in reply for reply in replies) == 1


def test_the_ceiling_of_a_study_counts_all_of_its_runs():
    ceiling = Policy(epsilon_per_study=Decimal("3.2"), delta_per_study=Decimal("1e-6"), approved={STUDY: 3})
    one = host(Rounds(), consortium(), "ash", policy=ceiling, epsilon=50.0)
    assert "ok" in decode(ask(one, "run.begin[0]"))
    assert decode(ask(one, "run.begin[0]", run="run-2"))["key"] == "epsilon_per_study"


def test_a_made_up_head_does_not_freeze_a_ledger():
    one = host(Rounds(), consortium(), "ash")
    made_up = {"head": "ab" * 32, "signature": bytes(64)}
    assert decode(ask(one, "run.begin[0]", seen=made_up))["refused"] == "signature"
    assert "ok" in decode(ask(one, "run.begin[0]"))

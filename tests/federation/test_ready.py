"""Before a run begins every party says whether it would; where one says no, every ledger stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from comity.errors import Refused, SiteLost, Stopped
from comity.federation.coordinator.lifecycle import run
from comity.federation.coordinator.replies import Refusal
from comity.federation.declare.policy import Policy
from comity.federation.declare.protection import Noised
from comity.federation.messages.codec import decode
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.federation.messages.wire_format import OTHER_RELEASE, WIRE_FORMAT
from comity.federation.part import RUN
from tests.support.asks import answer_ask, path_of, sign_ask, write_ask
from tests.support.consortia import STUDY, make_consortium, make_identity
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, host_party, set_up_run


def standing(hosts: Any) -> dict[Any, Any]:
    """All that a ledger is: its entries, its accounts, and its commits, which every change of its file moves."""

    def of(ledger: Any) -> Any:
        return [entry.head for entry in ledger.entries()], [*map(str, ledger.summary())], ledger.commit_head()

    return {name: of(host.store.ledger) for name, host in hosts.items()}


def asked(parties: Any) -> list[Any]:
    return [path_of(message) for _, message in parties.channel.asked]


def refusing(**of_cedar: Any) -> Any:
    consortium = make_consortium()
    hosts = {name: host_party(Rounds(), consortium, name) for name in consortium.parties}
    hosts["cedar"] = host_party(Rounds(), consortium, "cedar", **of_cedar)
    return consortium, hosts


REFUSALS: dict[str, dict[str, Any]] = {
    "budget": {"epsilon": 0.5},
    "approval": {"policy": Policy()},
    "policy": {"policy": Policy(approved={STUDY: 1}, protocols=("vertical",))},
}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_run_that_one_party_refuses_leaves_every_ledger_as_it_was(code: Any) -> None:
    consortium, hosts = refusing(**REFUSALS[code])
    before = standing(hosts)
    parties, _ = set_up_run(consortium=consortium, hosts=hosts)
    with pytest.raises(Refused, match=rf"cedar refused run\.ready.*{code}") as refusal:
        run(parties)
    assert (refusal.value.party, refusal.value.code) == ("cedar", code)
    assert standing(hosts) == before
    assert set(asked(parties)) == {"run.ready[0]"}, "nobody was asked to begin"
    # The owner is told what, and the coordinator a word.
    assert len(str(cast(Any, parties.channel).refusals["cedar"])) > 20 and "refused" in str(
        cast(Any, parties.channel).refusals["cedar"]
    )


def test_everybody_who_is_not_ready_is_named() -> None:
    consortium, hosts = refusing(epsilon=0.5)
    hosts["elm"] = host_party(Rounds(), consortium, "elm", policy=Policy())
    with pytest.raises(Refused, match=r"cedar refused.*budget.*elm.*approval"):
        run(set_up_run(consortium=consortium, hosts=hosts)[0])


def test_a_run_that_was_not_ready_is_tried_again_under_its_id() -> None:
    consortium, hosts = refusing(policy=Policy())
    parties, _ = set_up_run(consortium=consortium, hosts=hosts, noise=NoNoise())
    with pytest.raises(Refused, match="approval"):
        run(parties)
    hosts["cedar"].policy = Policy(approved={STUDY: 1})
    resumed, _ = set_up_run(consortium=consortium, hosts=hosts, noise=NoNoise())
    resumed.journal = parties.journal
    assert run(resumed)["result"].shape == (3,)
    # Who had said that it is ready is not asked again.
    assert [party for party, message in cast(Any, resumed.channel).asked if path_of(message) == "run.ready[0]"] == [
        "cedar"
    ]


def test_whoever_says_ready_has_promised_nothing() -> None:
    one = host_party(Rounds(), make_consortium(), "ash")
    before = standing({"ash": one})
    for _ in range(2):
        reply = decode(answer_ask(one, write_ask("run.ready[0]")))
        assert set(reply) == {"ok", "mail", "head"} and reply["ok"] == {} and reply["mail"] == []
    assert standing({"ash": one}) == before and one.store.runs_open() == []
    assert decode(answer_ask(one, write_ask("average[0]")))["refused"] == "unreserved"


def test_the_same_question_is_answered_as_things_stand() -> None:
    """The one step that is not answered once and for all: it changes nothing, and what is true of it changes."""
    one = host_party(Rounds(protection=Noised), make_consortium(), "ash", policy=Policy(approved={STUDY: 1}))
    assert "ok" in decode(answer_ask(one, write_ask("run.ready[0]", run="run-2")))
    assert "ok" in decode(answer_ask(one, write_ask("run.begin[0]", run="run-1")))
    assert "ok" in decode(answer_ask(one, write_ask("run.ready[0]", run="run-1")))
    assert decode(answer_ask(one, write_ask("run.ready[0]", run="run-2")))["refused"] == "approval"
    answer_ask(one, write_ask("run.abandon[0]", run="run-1"))
    assert decode(answer_ask(one, write_ask("run.ready[0]", run="run-1")))["refused"] == "closed"


def test_another_journal_does_not_ask_about_a_run() -> None:
    one = host_party(Rounds(), make_consortium(), "ash")
    answer_ask(one, write_ask("run.begin[0]"))
    assert decode(answer_ask(one, write_ask("run.ready[0]", nonce=bytes(range(32)))))["refused"] == "journal"


def test_a_frozen_ledger_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    one = host_party(Rounds(), make_consortium(), "ash", tmp_path)
    head = one.store.ledger.commit_head()
    one.store.ledger.remember_commit(head.ledger, head.count + 7, "f" * 64)
    assert decode(answer_ask(one, write_ask("run.ready[0]")))["refused"] == "frozen"


def test_a_party_that_is_away_before_the_beginning_is_lost_within_the_drop_outs() -> None:
    parties, hosts = set_up_run(Rounds(rounds=0), noise=NoNoise(), lose=[("elm", "run.ready[0]")])
    run(parties)
    assert set(parties.lost) == {"elm"} and hosts["elm"].store.ledger.commit_head().count <= 2
    parties, hosts = set_up_run(consortium=make_consortium(dropouts=0), lose=[("elm", "run.ready[0]")])
    before = standing(hosts)
    with pytest.raises(SiteLost, match="elm"):
        run(parties)
    assert standing(hosts) == before


class Changed:
    """A host that says no from the moment that a step is asked of it, having been ready."""

    def __init__(self, host: Any, path: Any) -> None:
        self.host, self.path = host, path

    def answer(self, raw: Any) -> Any:
        if path_of(raw) == self.path:
            self.host.store.abandon("run-1")
        return self.host.answer(raw)


MOMENTS = ["run.begin[0]", "sum.deal[0]", "sum.meet[0]", "average[0]", "lean[0]", "lean[1]"]


@pytest.mark.parametrize("path", MOMENTS)
def test_a_refusal_at_any_moment_frees_what_the_others_never_drew(path: Any) -> None:
    consortium = make_consortium(dropouts=0)
    parties, hosts = set_up_run(consortium=consortium, noise=NoNoise())
    cast(Any, parties.channel).hosts = {**hosts, "cedar": Changed(hosts["cedar"], path)}
    with pytest.raises(Refused, match=r"cedar refused.*closed"):
        run(parties)
    for name, one in hosts.items():
        (account,) = one.store.ledger.summary()
        assert account.reserved_epsilon == 0 and one.store.runs_open() == [], name
        drawn = [entry.release for entry in one.store.ledger.entries() if entry.kind == "draw"]
        assert len(drawn) <= 1 + 2 * path.startswith("lean"), "what was drawn stays spent"
        if path.startswith("lean") and name != "cedar":
            assert drawn
    resumed, _ = set_up_run(consortium=consortium, hosts=hosts, noise=NoNoise())
    resumed.journal = parties.journal
    with pytest.raises(Refused, match=r"run-1 was abandoned: cedar refused .*begin a new run"):
        run(resumed)
    assert cast(Any, resumed.channel).asked == []


def test_after_a_refusal_the_journal_keeps_no_secret_of_the_run() -> None:
    consortium = make_consortium(dropouts=0)
    parties, hosts = set_up_run(consortium=consortium, noise=NoNoise())
    cast(Any, parties.channel).hosts = {**hosts, "cedar": Changed(hosts["cedar"], "lean[0]")}
    with pytest.raises(Refused):
        run(parties)
    kept = parties.journal._connection.execute("select name from once where run = 'run-1'").fetchall()
    assert {name for (name,) in kept} <= {"run:nonce", "run:abandoned"}
    assert parties.journal._connection.execute("select count(*) from ask where reply is not null").fetchone() == (0,)


def test_a_refusal_that_the_drop_outs_allow_ends_nothing() -> None:
    parties, hosts = set_up_run(noise=NoNoise())
    cast(Any, parties.channel).hosts = {**hosts, "cedar": Changed(hosts["cedar"], "lean[0]")}
    assert run(parties)["result"].shape == (3,)
    assert set(parties.lost) == {"cedar"} and "closed" in parties.lost["cedar"]


def test_a_full_disk_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops the run, which goes on when there is room again."""
    consortium = make_consortium(dropouts=0)
    parties, hosts = set_up_run(consortium=consortium, noise=NoNoise())

    def full(*_: Any, **__: Any) -> None:
        raise Stopped("the disk did not take the entry", code="ledger")

    with monkeypatch.context() as patch:
        patch.setattr(hosts["cedar"].store, "commit", full)
        with pytest.raises(Stopped, match="cedar"):
            run(parties)
    assert all(one.store.runs_open() == ["run-1"] for name, one in hosts.items() if name != "cedar")
    resumed, _ = set_up_run(consortium=consortium, hosts=hosts, noise=NoNoise())
    resumed.journal = parties.journal
    assert run(resumed)["result"].shape == (3,)


def test_only_the_coordinator_of_the_study_asks_who_is_ready() -> None:
    one = host_party(Rounds(), make_consortium(), "ash")
    raw = sign_ask(make_identity("birch"), "ash", write_ask("run.ready[0]"))
    assert decode(one.answer(raw).reply[:-SIGNATURE_BYTES]) == {"refused": "signature", "key": ""}


@pytest.mark.parametrize("number", [WIRE_FORMAT - 1, WIRE_FORMAT + 1, None])
def test_a_coordinator_of_another_release_is_refused_before_anything_is_reserved(
    number: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None: of a release whose first ask has no number. Both sides read why; nothing was spent, and the same run
    begins once the releases are the same."""
    consortium, hosts = refusing()
    before = standing(hosts)
    parties, _ = set_up_run(consortium=consortium, hosts=hosts)
    with monkeypatch.context() as other:
        if number is None:
            asking = parties.under(RUN)
            with pytest.raises(Refused) as found:
                asking.ask("ready", need=consortium.survivors, quorums=(), unanimous=True)
        else:
            other.setattr("comity.federation.coordinator.lifecycle.WIRE_FORMAT", number)
            with pytest.raises(Refused) as found:
                run(parties)
    assert found.value.code == ("form" if number is None else OTHER_RELEASE) and "need the same release" in str(
        found.value
    )
    told = cast(Any, parties.channel).refusals
    assert set(told) == set(consortium.parties)
    assert all("need the same release" in str(one) for one in told.values())
    assert number is None or f"format {number}" in str(told["cedar"])
    assert standing(hosts) == before and set(asked(parties)) == {"run.ready[0]"}
    again, _ = set_up_run(consortium=consortium, hosts=hosts)
    run(again)


def test_what_a_site_of_an_earlier_release_refuses_is_told_as_another_release() -> None:
    """Such a site knows no number, and refuses the ask for its form."""
    assert "need the same release" in Refusal("form").text and "need the same release" in Refusal("no-step").text
    assert "release" not in Refusal("budget").text

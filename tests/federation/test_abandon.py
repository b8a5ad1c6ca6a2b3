"""A run ends for everybody who began it: at its end, after a refusal, by its owner. What was never drawn is freed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.errors import Refused, SiteLost
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.policy import Policy
from comity.federation.declare.protection import Noised
from comity.federation.messages.codec import decode
from comity.federation.owner.store import Store
from comity.privacy.unit import Neighbours, Unit
from tests.support.asks import answer_ask, path_of, write_ask
from tests.support.channels import LossyChannel
from tests.support.consortia import STUDY, make_consortium, summarise_accounts
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, host_party, set_up_run


def again(parties: Any, hosts: Any, **options: Any) -> Any:
    """The same run, over the same journal, with everybody reachable."""
    resumed, _ = set_up_run(parties.protocol, parties.consortium, hosts=hosts, run=parties.run, **options)
    resumed.journal = parties.journal
    return resumed


def changing_its_mind(parties: Any, hosts: Any, name: str = "cedar") -> Any:
    """A party that was ready, and whose owner has withdrawn the approval when it is to begin."""

    def meddling(path: Any) -> None:
        if path == "run.begin[0]":
            hosts[name].policy = Policy()

    parties.progress = meddling
    return parties


def test_a_refusal_at_the_beginning_frees_what_the_others_reserved() -> None:
    consortium = make_consortium()
    parties, hosts = set_up_run(consortium=consortium)
    before = summarise_accounts(hosts)
    changing_its_mind(parties, hosts)
    with pytest.raises(Refused, match=r"cedar refused run\.begin.*approval") as refusal:
        run(parties)
    assert refusal.value.party == "cedar"
    assert summarise_accounts(hosts) == before
    for name, one in hosts.items():
        assert one.store.runs_open() == [], name
        assert one.store.state("run-1", "run:secret") is None
        assert (
            decode(answer_ask(one, write_ask("average[0]", nonce=parties.journal.nonce("run-1"))))["refused"]
            == "closed"
        )


def test_a_refused_run_is_over_and_says_so() -> None:
    consortium = make_consortium()
    parties, hosts = set_up_run(consortium=consortium)
    with pytest.raises(Refused, match="approval"):
        run(changing_its_mind(parties, hosts))
    hosts["cedar"].policy = Policy(approved={STUDY: 1})
    with pytest.raises(Refused, match=r"run-1 was abandoned: cedar refused .*approval.*begin a new run"):
        run(again(parties, hosts))
    assert run(set_up_run(consortium=consortium, hosts=hosts, run="run-2")[0])["result"].shape == (3,)


def test_a_refusal_by_somebody_else_costs_no_approval() -> None:
    consortium = make_consortium()
    once = Policy(approved={STUDY: 1})
    hosts = {name: host_party(Rounds(), consortium, name, policy=once) for name in consortium.parties}
    with pytest.raises(Refused, match="approval"):
        run(changing_its_mind(set_up_run(consortium=consortium, hosts=hosts)[0], hosts))
    hosts["cedar"].policy = once
    run(set_up_run(consortium=consortium, hosts=hosts, run="run-2")[0])
    with pytest.raises(Refused, match="approval"):
        run(set_up_run(consortium=consortium, hosts=hosts, run="run-3")[0])


def test_an_abandoned_run_in_which_anything_was_answered_counts_as_approved() -> None:
    """Else a coordinator would read what is disclosed exactly as often as it likes."""
    one = host_party(Rounds(protection=Noised), make_consortium(), "ash", policy=Policy(approved={STUDY: 1}))
    assert "ok" in decode(answer_ask(one, write_ask("run.begin[0]")))
    assert "ok" in decode(answer_ask(one, write_ask("average[0]")))
    assert "ok" in decode(answer_ask(one, write_ask("run.abandon[0]")))
    assert decode(answer_ask(one, write_ask("run.begin[0]", run="run-2")))["refused"] == "approval"


def test_whoever_is_away_while_a_refused_run_is_abandoned_hears_it_later() -> None:
    consortium = make_consortium()
    _, hosts = set_up_run(consortium=consortium)
    before = summarise_accounts(hosts)
    parties, _ = set_up_run(consortium=consortium, hosts=hosts, lose=[("elm", "run.abandon[0]")])
    with pytest.raises(Refused):
        run(changing_its_mind(parties, hosts))
    assert hosts["elm"].store.runs_open() == ["run-1"] and summarise_accounts(hosts) != before
    resumed = again(parties, hosts)
    with pytest.raises(Refused, match="abandoned"):
        run(resumed)
    assert [party for party, _ in resumed.channel.asked] == ["elm"]
    assert hosts["elm"].store.runs_open() == [] and summarise_accounts(hosts) == before


def test_the_end_stays_open_until_everybody_has_heard_it() -> None:
    lose = [("doum", "average[0]")]
    parties, hosts = set_up_run(Rounds(rounds=0), lose=lose, noise=NoNoise())
    released = run(parties)["result"]
    assert hosts["doum"].store.runs_open() == ["run-1"]
    assert all(one.store.runs_open() == [] for name, one in hosts.items() if name != "doum")
    for _ in range(2):
        resumed = again(parties, hosts, lose=[("doum", "run.end[0]")])
        np.testing.assert_array_equal(run(resumed)["result"], released)
        assert [party for party, _ in resumed.channel.asked] == ["doum"]
    resumed = again(parties, hosts)
    np.testing.assert_array_equal(run(resumed)["result"], released)
    assert hosts["doum"].store.runs_open() == []
    assert hosts["doum"].store.state("run-1", "sum.root") is None
    resumed = again(parties, hosts)
    run(resumed)
    assert resumed.channel.asked == []


def test_whoever_was_away_at_the_beginning_can_not_begin_later() -> None:
    """Its reply may have been lost, not its reservation; or its ask may still be on the way."""
    parties, hosts = set_up_run(Rounds(rounds=0), noise=NoNoise(), lose=[("elm", "run.begin[0]")])
    run(parties)
    late = [
        message
        for party, message in cast(Any, parties.channel).asked
        if party == "elm" and path_of(message) == "run.begin[0]"
    ]
    cast(Any, parties.channel).lost.clear()
    run(parties)
    assert decode(hosts["elm"].answer(late[0]).reply[:-64]) == {"refused": "closed", "key": "run"}
    assert not any(entry.kind == "reserve" for entry in hosts["elm"].store.ledger.entries())


def test_a_reservation_whose_reply_was_lost_is_freed_at_the_end() -> None:
    class Deaf(LossyChannel):
        """Hears what it is asked, and its answer to the beginning is lost."""

        def carry(self, messages: Any) -> Any:
            replies = super().carry(messages)
            if path_of(next(iter(messages.values()))) == "run.begin[0]":
                del replies["elm"]
            return replies

    parties, hosts = set_up_run(Rounds(rounds=0), noise=NoNoise())
    before = summarise_accounts({"elm": hosts["elm"]})
    parties.channel = Deaf(hosts)
    parties.progress = lambda path: held.append(hosts["elm"].store.runs_open()) if path == "run.end[0]" else None
    held: list[list[str]] = []
    run(parties)
    assert held == [["run-1"]] and hosts["elm"].store.runs_open() == []
    assert summarise_accounts({"elm": hosts["elm"]}) == before


def test_a_party_that_refuses_the_end_has_heard_it() -> None:
    parties, hosts = set_up_run(Rounds(rounds=0), noise=NoNoise())

    def meddling(path: Any) -> None:
        if path == "run.end[0]":
            hosts["elm"].store.abandon("run-1")

    parties.progress = meddling
    run(parties)
    resumed = again(parties, hosts)
    run(resumed)
    assert resumed.channel.asked == []


# At a site, by its owner.


def test_an_owner_abandons_a_run_for_good() -> None:
    one = host_party(Rounds(protection=Noised), make_consortium(), "ash")
    fresh = summarise_accounts({"ash": one})
    answer_ask(one, write_ask("run.begin[0]"))
    answer_ask(one, write_ask("average[0]"))
    one.store.abandon("run-1")
    draws = [entry.release for entry in one.store.ledger.entries() if entry.kind == "draw"]
    assert draws == ["mean"] and summarise_accounts({"ash": one}) != fresh, "what was drawn stays spent"
    assert one.store.runs_open() == [] and one.store.state("run-1", "run:secret") is None
    for path in ("average[0]", "run.begin[0]", "run.meet[0]"):
        assert decode(answer_ask(one, write_ask(path)))["refused"] == "closed", path
    for path in ("lean[0]", "run.end[0]"):
        assert "refused" in decode(answer_ask(one, write_ask(path))), path
    once = (len(one.store.ledger.entries()), one.store.ledger.commit_head())
    one.store.abandon("run-1")
    assert (len(one.store.ledger.entries()), one.store.ledger.commit_head()) == once
    one.store.ledger.verify()


def test_a_run_that_never_began_is_closed_too() -> None:
    one = host_party(Rounds(), make_consortium(), "ash")
    fresh, before = summarise_accounts({"ash": one}), one.store.ledger.commit_head().count
    one.store.abandon("run-9")
    assert summarise_accounts({"ash": one}) == fresh and one.store.ledger.commit_head().count > before
    assert decode(answer_ask(one, write_ask("run.begin[0]", run="run-9")))["refused"] == "closed"
    assert "ok" in decode(answer_ask(one, write_ask("run.begin[0]", run="run-1")))


def test_any_store_over_the_ledger_abandons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a command does, that knows the file and nothing of the study."""
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    one = host_party(Rounds(), make_consortium(), "ash", tmp_path)
    answer_ask(one, write_ask("run.begin[0]"))
    Store(one.store.ledger, unit=Unit.PARTY, neighbours=Neighbours.ADD_REMOVE).abandon("run-1")
    assert one.store.runs_open() == []


def test_a_run_without_a_party_that_abandoned_it_goes_on() -> None:
    parties, hosts = set_up_run(noise=NoNoise())
    begin(parties)
    hosts["elm"].store.abandon("run-1")
    resumed = again(parties, hosts, noise=NoNoise())
    run(resumed)
    assert set(resumed.lost) == {"elm"} and "closed" in resumed.lost["elm"]
    parties, hosts = set_up_run(consortium=make_consortium(dropouts=0), noise=NoNoise())
    begin(parties)
    hosts["elm"].store.abandon("run-1")
    with pytest.raises((Refused, SiteLost), match="elm"):
        run(again(parties, hosts, noise=NoNoise()))


def test_a_journal_remembers_across_processes_that_a_run_was_refused(tmp_path: Path) -> None:
    consortium = make_consortium()
    _, hosts = set_up_run(consortium=consortium)
    parties, _ = set_up_run(consortium=consortium, hosts=hosts)
    parties.journal = Journal(tmp_path / "journal")
    with pytest.raises(Refused):
        run(changing_its_mind(parties, hosts))
    parties.journal.close()
    parties, _ = set_up_run(consortium=consortium, hosts=hosts)
    parties.journal = Journal(tmp_path / "journal")
    with pytest.raises(Refused, match="abandoned"):
        run(parties)

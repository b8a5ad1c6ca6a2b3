"""Every party has what was released to it, once, and nothing else; what stays with an owner crosses nowhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.crypto.sealing import Identity
from comity.errors import Refused
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.consortium import COORDINATOR, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Noised, Summed
from comity.federation.declare.release import Array
from comity.federation.messages.codec import decode
from comity.federation.messages.letters import Head, seal_value
from comity.federation.messages.received import SIGNATURES
from comity.federation.owner.host import Host
from comity.federation.protocol import step
from tests.support.asks import answer_ask, sign_released, write_ask
from tests.support.consortia import STUDY, make_consortium
from tests.support.rounds import Rounds, host_party, set_up_run

from .test_resume import Killed, kill_at

OWN = np.arange(3) + 0.123456789
HINT = np.arange(3) - 0.987654321


@dataclass(frozen=True)
class Delivering(Rounds):
    """Also tells one role something that is for it alone, and leaves each party a model of its own."""

    def declare(self, consortium: Any) -> Declaration:
        declared = super().declare(consortium)
        mean, centre, slope, result = declared.releases
        alone = Release(
            name="hint", source=COORDINATOR, to="consumer", protection=Derived("slope"), form=Array((self.columns,))
        )
        return Declaration((mean, replace(centre, times=self.rounds), slope, result, alone), declared.adversary)

    def coordinate(self, parties: Any) -> Any:
        return {**super().coordinate(parties), "hint": HINT[: self.columns]}

    @step(sends="mean")
    def average(self, site: Any) -> None:
        site.contribute(site.features.mean(axis=-2))
        site.deliver("own-model", {"weights": OWN + ord(site.party[0])})


def add_consumer(**options: Any) -> Consortium:
    return replace(make_consortium(**options), roles={"consumer": ("elm",)})


def crossed(parties: Any) -> bytes:
    """Everything that crossed, as bytes."""
    exchanges = [one for _, of in parties.journal.traffic(STUDY, "run-1") for one in dict(of).values()]
    return b"".join(exchange.message + (exchange.reply or b"") for exchange in exchanges)


def test_every_party_has_what_was_released_to_it_and_nothing_else() -> None:
    parties, hosts = set_up_run(Delivering(protection=Noised), add_consumer())
    released = run(parties)
    for party, one in hosts.items():
        found = one.received("run-1")
        assert set(found.releases) == {"centre", "result", *(["hint"] if party == "elm" else [])}
        np.testing.assert_array_equal(found.releases["result"], released["result"])
        assert len(found.releases["centre"]) == 2 and found.releases["centre"][0].shape == (3,)
        np.testing.assert_array_equal(found.own["own-model"]["weights"], OWN + ord(party[0]))
        assert one.received("run-2").releases == {}
    np.testing.assert_array_equal(hosts["elm"].received("run-1").releases["hint"], HINT)
    np.testing.assert_array_equal(parties.kept["centre"], hosts["ash"].received("run-1").releases["centre"])


def test_what_stays_with_an_owner_and_what_is_for_one_are_not_on_the_wire() -> None:
    parties, hosts = set_up_run(Delivering(protection=Noised), add_consumer())
    released = run(parties)
    wire = crossed(parties)
    assert wire.count(released["result"].tobytes()) == 5, "what everybody receives is seen: the search works"
    for party in hosts:
        assert (OWN + ord(party[0])).tobytes() not in wire
    assert b"own-model" not in wire
    assert HINT.tobytes() not in wire and b"hint" not in wire


@dataclass(frozen=True)
class OpenedToAll(Rounds):
    """The opened sum, and what each party noised, are for everybody."""

    def declare(self, consortium: Any) -> Any:
        declared = super().declare(consortium)
        return replace(declared, releases=tuple(replace(one, to=EVERYONE) for one in declared.releases))

    def coordinate(self, parties: Any) -> Any:
        total = parties.sum(self.average)
        return {"result": total.value / total.parties}


@pytest.mark.parametrize("protection", [Summed, Noised])
def test_sums_that_are_for_everybody_reach_everybody(protection: Any) -> None:
    parties, hosts = set_up_run(OpenedToAll(protection=protection), make_consortium(4))
    run(parties)
    found = hosts["ash"].received("run-1").releases["mean"]
    if protection is Summed:
        assert found["parties"] == 4
        np.testing.assert_array_equal(found["sum"], parties.kept["mean"]["sum"])
    else:
        assert set(found) == set(hosts)


def begun() -> Host:
    one = host_party(Delivering(protection=Noised), add_consumer(), "ash")
    assert "ok" in decode(answer_ask(one, write_ask("run.begin[0]")))
    assert "ok" in decode(answer_ask(one, write_ask("lean[0]", centre=np.ones(3))))
    return one


def boxed(one: Any, values: Any, **head: Any) -> bytes:
    key = Identity(decode(one.store.state("run-1", "run:secret"))).public
    written = {"study": STUDY, "run": "run-1", "path": "run.end[0]", "sender": COORDINATOR, "to": "ash"}
    written["name"] = "yours"
    if isinstance(values, dict):
        signed = {name: {"run.end[0]": sign_released(name, "run.end[0]", value)} for name, value in values.items()}
        values = {**values, SIGNATURES: signed}
    return seal_value(values, key, Head(**{**written, **head}))


@pytest.mark.parametrize(
    ("released", "code"),
    [
        ({"other": np.zeros(3)}, "undeclared"),
        ({"mean": np.zeros(3, "<i8")}, "undeclared"),
        ({"hint": HINT}, "undeclared"),
        ({"result": np.zeros(4)}, "form"),
        ({"result": np.full(3, np.nan)}, "form"),
        ({"result": [np.zeros(3)]}, "form"),
        ({"centre": [np.zeros(3)] * 3}, "form"),
        ({"run_keys": {}}, "undeclared"),
    ],
)
def test_a_party_refuses_what_was_not_declared_to_it_or_has_another_form(released: Any, code: str) -> None:
    one = begun()
    reply = decode(answer_ask(one, write_ask("run.end[0]", heads={}, released=released)))
    assert reply["refused"] == code
    assert decode(answer_ask(one, write_ask("run.end[0]", heads={}, yours=boxed(one, released))))["refused"] == code
    assert set(one.received("run-1").releases) == {"centre"} and one.store.runs_open() == ["run-1"]
    assert "ok" in decode(answer_ask(one, write_ask("run.end[0]", heads={}, released={"result": np.ones(3)})))
    assert set(one.received("run-1").releases) == {"centre", "result"}


def test_a_box_of_another_ask_or_with_a_name_twice_is_refused() -> None:
    one = begun()
    good = {"result": np.ones(3)}
    for wrong in ({"run": "run-2"}, {"to": "birch"}, {"path": "lean[0]"}, {"study": "6" * 64}):
        box = boxed(one, good, **wrong)
        assert "refused" in decode(answer_ask(one, write_ask("run.end[0]", heads={}, yours=box)))
    both = write_ask("run.end[0]", heads={}, released=good, yours=boxed(one, good))
    assert decode(answer_ask(one, both))["refused"] == "form"
    for box in (b"x", boxed(one, [1]), boxed(one, {"result": np.ones(2)})):
        assert "refused" in decode(answer_ask(one, write_ask("run.end[0]", heads={}, yours=box)))
    assert "ok" in decode(answer_ask(one, write_ask("run.end[0]", heads={}, yours=boxed(one, good))))


def test_a_second_end_with_another_value_changes_nothing() -> None:
    one = begun()
    first = write_ask("run.end[0]", heads={}, released={"result": np.ones(3)})
    assert "ok" in decode(answer_ask(one, first)) and answer_ask(one, first) == answer_ask(one, first)
    other = write_ask("run.end[0]", heads={}, released={"result": np.zeros(3)})
    assert decode(answer_ask(one, other))["refused"] == "closed"
    np.testing.assert_array_equal(one.received("run-1").releases["result"], np.ones(3))


def test_a_value_that_a_step_brought_is_not_contradicted_by_the_end() -> None:
    one = host_party(Rounds(protection=Noised), make_consortium(), "ash")
    answer_ask(one, write_ask("run.begin[0]"))
    answer_ask(one, write_ask("lean[0]", centre=np.ones(3)))
    lie = write_ask("run.end[0]", heads={}, released={"centre": np.zeros(3)})
    assert decode(answer_ask(one, lie))["refused"] == "delivered"
    assert "ok" in decode(answer_ask(one, write_ask("run.end[0]", heads={}, released={"centre": np.ones(3)})))
    np.testing.assert_array_equal(one.received("run-1").releases["centre"], np.ones(3))


POINTS = [("coordinator", moment) for moment in ("before-ask", "before-journal", "after-journal")]
POINTS += [("elm", moment) for moment in ("before-commit", "after-commit")]


@pytest.mark.parametrize(("whom", "moment"), POINTS)
def test_whoever_is_killed_at_the_end_each_party_has_everything_once(tmp_path: Path, whom: Any, moment: Any) -> None:
    protocol = Delivering(protection=Noised)
    parties, hosts = set_up_run(protocol, add_consumer(), tmp_path)
    kill_at(parties, hosts, (whom, "run.end[0]", moment))
    with pytest.raises(Killed):
        run(parties)
    parties, hosts = set_up_run(protocol, add_consumer(), tmp_path)
    released = run(parties)
    again, hosts = set_up_run(protocol, add_consumer(), tmp_path)
    np.testing.assert_array_equal(run(again)["result"], released["result"])
    for party, one in hosts.items():
        stored = one.store.delivered("run-1")
        assert len(stored.pop(SIGNATURES)) == 1
        assert [len(of) for of in stored.values()] == [1, 2, 1, *([1] if party == "elm" else [])], stored.keys()
        np.testing.assert_array_equal(one.received("run-1").releases["result"], released["result"])
        assert one.store.runs_open() == []


def test_a_party_that_was_lost_has_it_when_it_hears_the_end(tmp_path: Path) -> None:
    protocol = Delivering(protection=Noised)
    parties, hosts = set_up_run(protocol, add_consumer(), tmp_path, lose=[("elm", "lean[1]")])
    released = run(parties)
    assert "result" not in hosts["elm"].received("run-1").releases
    parties, hosts = set_up_run(protocol, add_consumer(), tmp_path)
    run(parties)
    found = hosts["elm"].received("run-1").releases
    np.testing.assert_array_equal(found["result"], released["result"])
    np.testing.assert_array_equal(found["hint"], HINT)
    assert len(found["centre"]) == 1, "what it was asked, and no more"


def test_an_abandoned_run_leaves_nothing() -> None:
    one = begun()
    assert set(one.received("run-1").releases) == {"centre"}
    one.store.abandon("run-1")
    assert one.received("run-1").releases == {} and one.store.delivered("run-1") == {}


@dataclass(frozen=True)
class Twice(Rounds):
    name_: str = "own"
    values: tuple[Any, ...] = (1, 1)

    @step(sends="mean")
    def average(self, site: Any) -> None:
        for value in self.values:
            site.deliver(self.name_, value)
        site.contribute(site.features.mean(axis=-2))


@pytest.mark.parametrize(("name", "values"), [("own", (1, 2)), ("result", (1,)), ("a b", (1,)), ("", (1,))])
def test_one_value_under_a_name_that_no_release_has(name: str, values: Any) -> None:
    one = host_party(Twice(protection=Noised, name_=name, values=values), make_consortium(), "ash")
    answer_ask(one, write_ask("run.begin[0]"))
    reply = decode(answer_ask(one, write_ask("average[0]")))
    assert "refused" in reply and one.received("run-1").own == {}
    good = host_party(Twice(protection=Noised), make_consortium(), "ash")
    answer_ask(good, write_ask("run.begin[0]"))
    assert "ok" in decode(answer_ask(good, write_ask("average[0]"))) and good.received("run-1").own == {"own": 1}


@dataclass(frozen=True)
class Failing(Rounds):
    @step(sends="mean")
    def average(self, site: Any) -> None:
        site.deliver("own", 1)
        site.contribute(site.features.mean(axis=-2))
        raise ZeroDivisionError


def test_a_step_that_stops_after_its_draw_leaves_nothing_with_its_owner() -> None:
    one = host_party(Failing(protection=Noised), make_consortium(), "ash")
    answer_ask(one, write_ask("run.begin[0]"))
    assert decode(answer_ask(one, write_ask("average[0]")))["stopped"] is True
    assert one.received("run-1").own == {}


def test_stacks_of_parties_keep_no_results() -> None:
    from comity.study.local.cohort import Stack

    with pytest.raises(Refused, match="keep no results"):
        Stack.deliver(object(), "own", 1)  # type: ignore[arg-type]

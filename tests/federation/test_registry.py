"""Several studies at one owner: who is answered by which host, and what the studies learn or take of each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from comity.crypto.sealing import Identity
from comity.data.records import Records
from comity.errors import BudgetExceeded, Refused
from comity.federation.agreement import Agreement
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.policy import Policy
from comity.federation.declare.protection import Noised
from comity.federation.messages.codec import decode, encode, leading_text
from comity.federation.messages.signatures import SIGNATURE_BYTES, verify_reply
from comity.federation.owner.registry import Approval, Owner, Registry, host_of
from comity.federation.owner.store import Store
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit
from comity.study.local.channel import LocalChannel
from tests.support.asks import sign_ask, write_ask
from tests.support.consortia import make_consortium, make_identity, make_records
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds

NORTH, SOUTH, UNKNOWN = "a" * 64, "b" * 64, "c" * 64
SOON = 30.0
COSTS = {NORTH: 2, SOUTH: 3}
"""Draws of one run, by study."""
REFUSED = {"refused": "study", "key": ""}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))


def coordinator(study: Any) -> Identity:
    return make_identity(f"coordinator of {study[0]}")


def make_agreement(study: Any, size: int = 3) -> Agreement:
    """Two studies of the same parties, of different length, each with a coordinator of its own."""
    consortium = make_consortium(size)
    consortium = replace(consortium, roster={**consortium.roster, COORDINATOR: coordinator(study).public})
    return Agreement(study, Rounds(protection=Noised, rounds=COSTS[study] - 1), consortium)


def owner(
    name: Any,
    folder: Any = None,
    *,
    epsilon: float = 5.0,
    datasets: Any = ("patients",),
    policy: Any = None,
    reading: Any = None,
) -> Owner:
    terms: dict[str, Any] = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE, "grant": Approx(epsilon, 1e-6)}
    if folder is None:
        ledger = Ledger.in_memory(dataset=datasets[0], **terms)
    else:
        ledger = Ledger.create(folder / f"{name}.ledger", dataset=datasets[0], **terms)
    for dataset in datasets[1:]:
        ledger.add_dataset(dataset=dataset, **terms)
    return Owner(
        party=name,
        keys=make_identity(name),
        ledger=ledger,
        policy=policy or Policy(),
        datasets=dict.fromkeys(datasets, reading or (lambda _: make_records(name))),
        noise=NoNoise(),
    )


def site(name: Any, folder: Any = None, *, runs: int = 1, studies: Any = (NORTH, SOUTH), **more: Any) -> Any:
    """A registry with these studies, and the owner behind it."""
    own = owner(name, folder, **more)
    registry = Registry(name, own.keys)
    for study in studies:
        registry.admit(host_of(own, make_agreement(study), Approval(study=study, dataset="patients", runs=runs)))
    return registry, own


def signed(path: Any, *, study: Any = NORTH, party: str = "ash", **more: Any) -> bytes:
    """An ask as the study's coordinator sends it."""
    return sign_ask(coordinator(study), party, write_ask(path, study=study, **more))


def ask(registry: Any, path: Any, *, study: Any = NORTH, **more: Any) -> Any:
    """What a registry replies to the study's own coordinator."""
    raw = signed(path, study=study, party=registry.party, **more)
    return decode(verify_reply(make_identity(registry.party).public, registry.party, raw, registry.answer(raw).reply))


def begin_all(registry: Any, run_id: str = "run-1") -> None:
    for study in (NORTH, SOUTH):
        assert "ok" in ask(registry, "run.begin[0]", study=study, run=run_id)


def spent(ledger: Any) -> list[Any]:
    return [(entry.run, entry.release, entry.index) for entry in ledger.entries() if entry.kind == "draw"]


CENTRE = {"centre": make_records("ash").features[0]}


# Which host answers.


def test_an_ask_is_answered_by_the_host_of_its_study() -> None:
    registry, own = site("ash")
    begin_all(registry)
    assert "ok" in ask(registry, "average[0]", study=SOUTH)
    assert spent(own.ledger) == [(f"{SOUTH[:32]}/run-1", "mean", 0)]
    (title,) = {entry.study for entry in own.ledger.entries() if entry.kind == "draw"}
    assert title.endswith(SOUTH[:12]) and registry.studies == (NORTH, SOUTH)


def intrusions() -> Iterator[Any]:
    """Asks that no host may see, by what is wrong with them; each of a study that is served and of one that is not."""
    for study in (NORTH, UNKNOWN):
        body = write_ask("run.begin[0]", study=study)
        yield "another study's coordinator", sign_ask(coordinator(SOUTH), "ash", body)
        yield "a member", sign_ask(make_identity("birch"), "ash", body)
        yield "the party itself", sign_ask(make_identity("ash"), "ash", body)
        yield "for another party", sign_ask(coordinator(NORTH), "birch", body)
        yield "no signature", body + bytes(SIGNATURE_BYTES)
        yield "garbled", sign_ask(coordinator(NORTH), "ash", body)[:-70] + bytes(70)
    yield "nothing", b""
    yield "no list", encode({"study": NORTH}) + bytes(SIGNATURE_BYTES)
    yield "a study that is no text", encode([NORTH.encode(), "run-1"]) + bytes(SIGNATURE_BYTES)
    yield "a study without an end", b"CMY1l\x00\x00\x00\x08s\xff\xff\xff\xff" + bytes(SIGNATURE_BYTES)


def test_whoever_lacks_the_key_of_a_study_can_not_tell_whether_it_is_served_here() -> None:
    registry, own = site("ash")
    begin_all(registry)
    before = [entry.head for entry in own.ledger.entries()]
    said = {(why, bytes(registry.answer(raw).reply[:-SIGNATURE_BYTES])) for why, raw in intrusions()}
    assert {reply for _, reply in said} == {encode(REFUSED)} and len(said) == 10
    assert [entry.head for entry in own.ledger.entries()] == before
    # Control: its own coordinator is answered, and the sentence of a refusal is there for the owner.
    assert "ok" in ask(registry, "average[0]")
    _, first = next(intrusions())
    assert "its coordinator did not sign this for us" in str(registry.answer(first).refusal)


def test_an_unknown_study_is_refused_though_its_own_coordinator_signed() -> None:
    registry, _ = site("ash", studies=(NORTH,))
    assert ask(registry, "run.begin[0]", study=SOUTH) == REFUSED


def test_a_coordinator_can_not_ask_for_a_path_of_another_study() -> None:
    registry, own = site("ash")
    begin_all(registry)
    assert ask(registry, "lean[1]", study=NORTH, **CENTRE)["refused"] == "too-often"
    assert ask(registry, "align.pseudonyms[0]", study=NORTH)["refused"] == "no-step"
    assert spent(own.ledger) == []
    # Control: the first of these is a step of the other.
    assert "ok" in ask(registry, "lean[1]", study=SOUTH, **CENTRE)


# What studies take of each other.


@pytest.mark.parametrize("path", ["run.begin[0]", "run.abandon[0]"])
def test_a_coordinator_can_not_take_or_close_the_run_ids_of_another_study(path: str) -> None:
    registry, own = site("ash", runs=2)
    other = {"study": SOUTH, "run": "run-1", "nonce": bytes(range(32))}
    assert "ok" in ask(registry, path, **other)
    assert "ok" in ask(registry, "run.begin[0]") and "ok" in ask(registry, "average[0]")
    # Nor learn whether the other has such a run: it is answered as for an id that nobody has.
    assert "ok" in ask(registry, "run.abandon[0]", **other)
    assert ask(registry, "average[0]", **other) == {"refused": "closed", "key": "run"}
    assert "ok" in ask(registry, "lean[0]", **CENTRE)
    assert len(spent(own.ledger)) == 2


def test_without_their_study_in_the_key_runs_of_two_studies_are_one() -> None:
    """The control of the test above: stores that do not know their study."""
    own = owner("ash")
    registry = Registry("ash", own.keys)
    for study in (NORTH, SOUTH):
        host = host_of(own, make_agreement(study), Approval(study=study, dataset="patients"))
        host.store = Store(own.ledger, unit=Unit.RECORD, neighbours=Neighbours.REPLACE)
        registry.admit(host)
    assert "ok" in ask(registry, "run.abandon[0]", study=SOUTH)
    assert ask(registry, "run.begin[0]", study=NORTH)["refused"] == "closed"


def test_the_owner_abandons_a_run_by_the_name_that_the_ledger_shows() -> None:
    registry, own = site("ash")
    begin_all(registry)
    shown = {entry.run for entry in own.ledger.entries() if entry.kind == "reserve"}
    assert shown == {f"{NORTH[:32]}/run-1", f"{SOUTH[:32]}/run-1"}
    Store(own.ledger, unit=Unit.RECORD, neighbours=Neighbours.REPLACE).abandon(f"{NORTH[:32]}/run-1")
    assert ask(registry, "average[0]", study=NORTH)["refused"] == "closed"
    assert "ok" in ask(registry, "average[0]", study=SOUTH)


def test_open_runs_are_listed_by_study() -> None:
    own = owner("ash")
    registry, hosts = Registry("ash", own.keys), {}
    for study in (NORTH, SOUTH):
        hosts[study] = host_of(own, make_agreement(study), Approval(study=study, dataset="patients", runs=2))
        registry.admit(hosts[study])
    ask(registry, "run.begin[0]", study=NORTH, run="one")
    ask(registry, "run.begin[0]", study=SOUTH, run="two")
    assert hosts[NORTH].store.runs_open() == ["one"] and hosts[SOUTH].store.runs_open() == ["two"]
    assert hosts[NORTH].store.runs_of(NORTH, other_than="two") == 1
    assert hosts[NORTH].store.runs_of(NORTH, other_than="one") == 0


def test_each_study_is_paid_by_the_dataset_that_its_approval_names() -> None:
    own = owner("ash", datasets=("patients", "visits"))
    registry = Registry("ash", own.keys)
    for study, dataset in ((NORTH, "patients"), (SOUTH, "visits")):
        registry.admit(host_of(own, make_agreement(study), Approval(study=study, dataset=dataset)))
    begin_all(registry)
    reserved = {entry.run[0]: entry.dataset for entry in own.ledger.entries() if entry.kind == "reserve"}
    assert reserved == {"a": "patients", "b": "visits"}


def test_studies_share_one_budget() -> None:
    registry, _ = site("ash", epsilon=2.5)
    assert "ok" in ask(registry, "run.begin[0]", study=SOUTH)
    answer = registry.answer(signed("run.begin[0]", study=NORTH))
    assert isinstance(answer.refusal, BudgetExceeded)
    assert decode(answer.reply[:-SIGNATURE_BYTES]) == {"refused": "budget", "key": "privacy.epsilon"}
    # Control: alone it would have been paid.
    assert "ok" in ask(site("ash", epsilon=2.5)[0], "run.begin[0]", study=NORTH)


def test_an_approval_counts_the_runs_of_its_own_study() -> None:
    registry, _ = site("ash", runs=1)
    begin_all(registry, "one")
    for study in (NORTH, SOUTH):
        assert ask(registry, "run.begin[0]", study=study, run="two")["refused"] == "approval"


# At the same time.


def coordinate(study: Any, registries: Any, run_id: Any, journal: Any, found: Any) -> None:
    channel = LocalChannel(registries)
    parties = Parties(make_agreement(study), run=run_id, channel=channel, journal=journal, keys=coordinator(study))
    try:
        found[study, run_id] = run(parties)["result"]
    except BaseException as error:
        found[study, run_id] = error


@pytest.mark.parametrize("on_disk", [True, False], ids=["files", "memory"])
def test_two_studies_and_two_runs_of_each_at_once_on_one_ledger(tmp_path: Path, on_disk: bool) -> None:
    registries, owners = {}, {}
    for name in ("ash", "birch", "cedar"):
        registries[name], owners[name] = site(name, tmp_path if on_disk else None, runs=2)
    found: dict[Any, Any]
    found, journals = {}, {study: Journal(tmp_path / f"{study[0]}.journal") for study in (NORTH, SOUTH)}
    threads = [
        threading.Thread(target=coordinate, args=(study, registries, run_id, journals[study], found))
        for study in (NORTH, SOUTH)
        for run_id in ("run-1", "run-2")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert not [error for error in found.values() if isinstance(error, BaseException)] and len(found) == 4
    for study in (NORTH, SOUTH):
        # Without noise, runs of one study on the same records find the same, whatever goes on beside them.
        assert (found[study, "run-1"] == found[study, "run-2"]).all()
    for own in owners.values():
        own.ledger.verify()
        draws = spent(own.ledger)
        assert len(draws) == len(set(draws)) == 2 * sum(COSTS.values())
        kinds = [entry.kind for entry in own.ledger.entries()]
        assert kinds.count("reserve") == len(draws) and kinds.count("close") == 4


# Withdrawing.


class Stuck:
    """Records that are being read for as long as it takes."""

    def __init__(self, name: Any) -> None:
        self.name, self.begun, self.go = name, threading.Event(), threading.Event()

    def __call__(self, _: Any) -> Records:
        self.begun.set()
        assert self.go.wait(SOON)
        return make_records(self.name)


def test_withdrawing_waits_for_what_runs_and_then_the_study_is_as_unknown() -> None:
    stuck = Stuck("ash")
    registry, own = site("ash", reading=stuck)
    begin_all(registry)
    replies, withdrawn = [], threading.Event()
    step = threading.Thread(target=lambda: replies.append(ask(registry, "average[0]")))
    step.start()
    assert stuck.begun.wait(SOON)

    def leave() -> None:
        registry.withdraw(NORTH)
        withdrawn.set()

    leaving = threading.Thread(target=leave)
    leaving.start()
    while NORTH in registry.studies:
        leaving.join(0.01)
    # It is refused from now on, while its last step still runs and other studies are answered.
    assert ask(registry, "lean[0]", **CENTRE) == REFUSED
    assert "ok" in ask(registry, "run.abandon[0]", study=SOUTH)
    assert not withdrawn.wait(0.1)
    stuck.go.set()
    assert withdrawn.wait(SOON)
    step.join(SOON)
    leaving.join(SOON)
    assert "ok" in replies[0] and len(spent(own.ledger)) == 1
    assert ask(registry, "average[0]") == REFUSED and registry.studies == (SOUTH,)
    registry.withdraw(NORTH)


def test_a_study_that_is_admitted_again_goes_on_where_it_was() -> None:
    registry, own = site("ash")
    begin_all(registry)
    again = signed("average[0]")
    first = registry.answer(again).reply
    registry.withdraw(NORTH)
    registry.admit(host_of(own, make_agreement(NORTH), Approval(study=NORTH, dataset="patients")))
    assert registry.answer(again).reply == first and len(spent(own.ledger)) == 1


def test_studies_come_and_go_while_others_are_asked() -> None:
    registry, own = site("ash")
    hosts = [host_of(own, make_agreement(NORTH), Approval(study=NORTH, dataset="patients")) for _ in range(20)]
    wrong, done = [], threading.Event()

    def asking() -> None:
        number = 0
        while not done.is_set():
            number += 1
            reply = ask(registry, "run.abandon[0]", study=NORTH, run=f"run-{number % 7}")
            if reply != REFUSED and reply.get("refused") != "closed" and "ok" not in reply:
                wrong.append(reply)

    thread = threading.Thread(target=asking)
    thread.start()
    for number, host in enumerate(hosts):
        registry.withdraw(NORTH)
        registry.admit(host)
        if "ok" not in ask(registry, "run.abandon[0]", study=SOUTH, run=f"other {number}"):
            wrong.append("the other study")
    done.set()
    thread.join(SOON)
    assert not wrong and not thread.is_alive()


# What a host is made from.


def test_a_host_is_made_of_owner_study_and_approval() -> None:
    own = owner("ash", policy=Policy(protocols=("rounds",), epsilon_per_study=Decimal(3), delta_per_study=1e-6))
    host = host_of(own, make_agreement(NORTH), Approval(study=NORTH, dataset="patients", runs=3))
    assert host.policy.allowed(NORTH) == 3 and host.policy.allowed(SOUTH) == 0
    assert host.policy.protocols == ("rounds",) and (host.records.features == make_records("ash").features).all()


OTHER_KEYS = {"keys": make_identity("somebody else")}


@pytest.mark.parametrize(
    ("of_owner", "of_approval", "code", "says"),
    [
        ({}, {"study": SOUTH}, "study", "approved"),
        ({}, {"runs": 0}, "approval", "expected 1 or more"),
        ({}, {"dataset": "visits"}, "approval", "the site has the datasets patients"),
        ({"party": "yew"}, {}, "study", "has no party 'yew'"),
        (OTHER_KEYS, {}, "keys", "another key of ash"),
        (
            {"datasets": {"visits": make_records}},
            {"dataset": "visits"},
            "approval",
            "the ledger has a budget for patients",
        ),
    ],
)
def test_what_could_never_be_answered_is_refused_when_the_host_is_made(
    of_owner: Any, of_approval: Any, code: str, says: str
) -> None:
    own = replace(owner("ash"), **of_owner)
    approval = replace(Approval(study=NORTH, dataset="patients"), **of_approval)
    with pytest.raises(Refused, match=says) as caught:
        host_of(own, make_agreement(NORTH), approval)
    assert caught.value.code == code


@pytest.mark.parametrize("missing", [COORDINATOR, "ash"])
def test_a_study_that_pins_no_keys_has_no_host(missing: Any) -> None:
    whole = make_agreement(NORTH)
    roster = {name: key for name, key in whole.consortium.roster.items() if name != missing}
    unpinned = Agreement(NORTH, whole.protocol, replace(whole.consortium, roster=roster))
    with pytest.raises(Refused, match=f"pins no keys of {missing}"):
        host_of(owner("ash"), unpinned, Approval(study=NORTH, dataset="patients"))


def test_a_registry_serves_its_own_party_and_each_study_once() -> None:
    registry, own = site("ash")
    with pytest.raises(Refused, match="can't be served by 'ash'"):
        registry.admit(host_of(owner("birch"), make_agreement(NORTH), Approval(study=NORTH, dataset="patients")))
    with pytest.raises(Refused, match="withdraw it first"):
        registry.admit(host_of(own, make_agreement(NORTH), Approval(study=NORTH, dataset="patients")))


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (encode([NORTH, "run"]), NORTH),
        (encode([NORTH, "run"])[:80], NORTH),
        (encode([]), None),
        (encode([7, NORTH]), None),
        (encode(NORTH), None),
        (encode(["x" * 201]), None),
        (encode(["x" * 200]), "x" * 200),
        (b"CMY1l\x00\x00\x00\x01s\x00\x00\x00\x02\xff\xfe", None),
        (b"", None),
    ],
)
def test_the_study_of_an_ask_is_found_without_reading_the_rest(raw: Any, found: Any) -> None:
    assert leading_text(raw, most=200) == found


def test_what_was_delivered_in_a_run_is_found_under_its_study() -> None:
    """Stores that know their study keep what its runs delivered under both names, and look there."""
    registries = {name: site(name, studies=(NORTH,)) for name in ("ash", "birch", "cedar")}
    found: dict[Any, Any] = {}
    coordinate(NORTH, {name: one for name, (one, _) in registries.items()}, "run-1", Journal(), found)
    own = registries["ash"][1]
    host = host_of(own, make_agreement(NORTH), Approval(study=NORTH, dataset="patients"))
    assert list(host.received("run-1").releases) == ["centre", "result"]
    assert (host.received("run-1").releases["result"] == found[NORTH, "run-1"]).all()
    # Control: another study has no such run.
    assert not host_of(own, make_agreement(SOUTH), Approval(study=SOUTH, dataset="patients")).received("run-1").releases


# Records.


def test_a_run_goes_on_with_the_records_that_it_began_with_or_not_at_all() -> None:
    """A site that starts again reads them anew: what earlier steps made of others would be mixed with them."""
    held = {"now": make_records("ash")}
    own = owner("ash", reading=lambda _: held["now"])

    def started() -> Registry:
        registry = Registry("ash", own.keys)
        registry.admit(host_of(own, make_agreement(NORTH), Approval(study=NORTH, dataset="patients", runs=2)))
        return registry

    first = started()
    assert "ok" in ask(first, "run.begin[0]") and "ok" in ask(first, "average[0]")
    mine, other = held["now"], make_records("birch")
    held["now"] = other
    again, before = started(), spent(own.ledger)
    raw = signed("lean[0]", **CENTRE)
    assert decode(again.answer(raw).reply[:-SIGNATURE_BYTES]) == {"refused": "stopped", "key": ""}
    assert "began with other records" in str(again.answer(raw).refusal) and spent(own.ledger) == before
    # What was answered is given again; another run may begin with these; the run ends, or goes on with its own.
    assert "ok" in ask(again, "average[0]")
    assert "ok" in ask(again, "run.begin[0]", run="run-2") and "ok" in ask(again, "average[0]", run="run-2")
    held["now"] = replace(mine, features=mine.features.copy())
    assert "ok" in ask(started(), "lean[0]", **CENTRE)
    held["now"] = other
    assert "ok" in ask(started(), "run.end[0]", heads={})

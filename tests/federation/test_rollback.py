"""A ledger that was put back is noticed by its machine, the coordinator or the peers, before anything is answered."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.errors import Refused
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.protection import Noised
from comity.federation.messages import heads
from comity.federation.messages.codec import decode
from comity.federation.sum.coordinator import prepare_sums
from tests.support.asks import answer_ask, write_ask
from tests.support.consortia import STUDY, make_consortium, make_identity
from tests.support.rounds import Rounds, host_party, set_up_run


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sites' folder, with a witness beside it."""
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "sites"
    folder.mkdir()
    return folder


def back_up(folder: Any, name: str = "ash") -> None:
    """What a backup of the whole machine holds: the ledger, copied by SQLite's own means, and its witness."""
    with (
        contextlib.closing(sqlite3.connect(folder / f"{name}.ledger")) as source,
        contextlib.closing(sqlite3.connect(folder / f"{name}.backup")) as copy,
    ):
        source.backup(copy)
    shutil.copytree(folder.parent / "home", folder.parent / "restored")


def put_back(folder: Any, monkeypatch: pytest.MonkeyPatch, machine: str = "restored", name: str = "ash") -> None:
    """Yesterday's file, on the same machine, on a new one, or on one whose witness was restored with it."""
    for path in folder.glob(f"{name}.ledger*"):
        path.unlink()
    (folder / f"{name}.backup").rename(folder / f"{name}.ledger")
    monkeypatch.setenv("COMITY_HOME", str(folder.parent / machine))


MACHINES = ["home", "new", "restored"]


def started(folder: Any, run: str = "run-1", journal: str = "journal", **options: Any) -> Any:
    parties, hosts = set_up_run(Rounds(protection=Noised), folder=folder, run=run, epsilon=50.0, **options)
    parties.journal = Journal(folder / journal)
    parties._memory.heads = parties.journal.heads()
    return parties, hosts


def frozen(host: Any) -> bool:
    return bool(host.store.ledger.summary()[0].frozen)


def test_every_reply_carries_the_signed_head_after_its_commit() -> None:
    one = host_party(Rounds(protection=Noised), make_consortium(), "ash")
    counts = []
    for path, values in (
        ("run.begin[0]", {}),
        ("average[0]", {}),
        ("lean[0]", {"centre": np.zeros(3)}),
        ("run.end[0]", {"heads": {}}),
    ):
        raw = answer_ask(one, write_ask(path, **values))
        head, now = decode(raw)["head"], one.store.ledger.commit_head()
        assert (head["ledger"], head["count"], head["head"]) == (now.ledger, now.count, now.head), path
        heads.verify(make_identity("ash").public, "ash", head)
        with pytest.raises(Refused):
            heads.verify(make_identity("ash").public, "birch", head)
        counts.append(head["count"])
        assert answer_ask(one, write_ask(path, **values)) == raw, "the same ask, the same bytes"
    assert counts == sorted(set(counts))


@pytest.mark.parametrize("machine", MACHINES)
def test_a_restored_ledger_is_frozen_when_the_next_run_begins(
    sites: Any, monkeypatch: pytest.MonkeyPatch, machine: Any
) -> None:
    run(started(sites)[0])
    back_up(sites)
    run(started(sites, run="run-2")[0])
    put_back(sites, monkeypatch, machine)
    parties, hosts = started(sites, run="run-3")
    with pytest.raises(Refused, match=r"ash refused run\.ready.*frozen"):
        run(parties)
    assert frozen(hosts["ash"]) and (machine == "new" or not frozen(hosts["birch"]))
    kinds = [entry.kind for entry in hosts["ash"].store.ledger.entries() if entry.run == "run-3"]
    assert kinds == []


def test_the_last_commit_of_a_run_counts_too(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was drawn between the backup and its return: only the run's end is forgotten."""
    parties, hosts = started(sites)
    parties.progress = lambda path: back_up(sites) if path == "run.end[0]" else None
    run(parties)
    put_back(sites, monkeypatch)
    parties, hosts = started(sites, run="run-2")
    with pytest.raises(Refused, match="frozen"):
        run(parties)
    assert frozen(hosts["ash"])


@pytest.mark.parametrize("machine", MACHINES)
def test_a_restore_between_two_steps_without_a_debit_is_noticed_before_an_answer(
    sites: Any, monkeypatch: pytest.MonkeyPatch, machine: Any
) -> None:
    """The second list of survivors after a restore would give both shares of one party."""
    folder = sites
    parties, hosts = set_up_run(folder=folder, epsilon=50.0)
    begin(parties)
    view = parties.under("sum")
    prepare_sums(view, parties.agreement.sum_group("mean/0"))
    members = sorted(parties.alive)
    parties.ask(Rounds.average)
    back_up(folder)
    view.ask("agree", survivors=members, label="mean/0")
    answered = hosts["ash"].store.replies("run-1")
    put_back(folder, monkeypatch, machine)
    _, hosts = set_up_run(folder=folder, epsilon=50.0)
    assert set(answered) - set(hosts["ash"].store.replies("run-1")) == {"sum.agree[mean/0]"}
    fewer = [name for name in members if name != "elm"]
    # What the coordinator shows is needed only where the machine itself has forgotten.
    seen = parties.seen("ash") if machine == "restored" else []
    ask = write_ask("sum.agree[mean/0]", nonce=parties.journal.nonce("run-1"), seen=seen, survivors=fewer)
    assert decode(answer_ask(hosts["ash"], ask))["refused"] == "frozen"
    assert "sum.agree[mean/0]" not in hosts["ash"].store.replies("run-1")


def test_peers_notice_where_the_coordinator_has_lost_its_journal(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins, because nobody has told it yet; with the next ask it hears what its peers saw, before a draw."""
    folder = sites
    run(started(folder)[0])
    back_up(folder)
    run(started(folder, run="run-2")[0])
    put_back(folder, monkeypatch)
    parties, hosts = started(folder, run="run-3", journal="another journal", consortium=make_consortium(dropouts=0))
    with pytest.raises(Refused, match=r"ash refused average.*frozen"):
        run(parties)
    assert frozen(hosts["ash"])
    drawn = [entry.run for entry in hosts["ash"].store.ledger.entries() if entry.kind == "draw"]
    assert "run-3" not in drawn


def test_peers_that_watch_nobody_do_not_notice(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positive control: without their memory and the journal, the restored ledger spends again."""
    folder = sites
    monkeypatch.setattr(heads, "WATCHERS", 0)
    run(started(folder)[0])
    back_up(folder)
    run(started(folder, run="run-2")[0])
    put_back(folder, monkeypatch)
    run(started(folder, run="run-3", journal="another journal")[0])


def test_an_owner_of_two_ledgers_is_not_frozen_by_the_other_ones_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    seen: list[Any]
    journal, seen = tmp_path / "journal", []
    for number, name in enumerate(("one", "two", "one", "two")):
        parties, hosts = set_up_run(folder=tmp_path / name, run=f"run-{number}", epsilon=50.0)
        parties.journal = Journal(journal)
        parties._memory.heads = parties.journal.heads()
        run(parties)
        seen.append(len(parties.seen("ash")))
        assert not any(map(frozen, hosts.values()))
    assert seen == [1, 2, 2, 2]


def test_heads_that_nobody_signed_freeze_nothing() -> None:
    one = host_party(Rounds(), make_consortium(), "ash")
    ledger = one.store.ledger.commit_head().ledger
    made_up = {"ledger": ledger, "count": 10**6, "head": "ab" * 32, "signature": bytes(64)}
    assert decode(answer_ask(one, write_ask("run.begin[0]", seen=[made_up])))["refused"] == "signature"
    stolen = heads.sign_head(make_identity("birch"), "ash", ledger, 10**6, "ab" * 32)
    assert decode(answer_ask(one, write_ask("run.begin[0]", seen=[stolen])))["refused"] == "signature"
    assert not frozen(one)
    assert "ok" in decode(answer_ask(one, write_ask("run.begin[0]")))


def test_a_peers_made_up_head_reaches_nobody() -> None:
    """A party that hands back a head which its owner did not sign freezes no ledger and ends no run."""
    parties, hosts = set_up_run(Rounds(protection=Noised), epsilon=50.0)
    ledger = hosts["birch"].store.ledger.commit_head().ledger
    lie = heads.sign_head(make_identity("ash"), "birch", ledger, 10**6, "ab" * 32)
    store = hosts["ash"].store
    cast(Any, store).remembered = lambda party, key: [lie] if party == "birch" else []
    run(parties)
    assert not frozen(hosts["birch"]) and parties.lost == {}


def test_a_head_that_its_owner_did_not_sign_is_not_remembered() -> None:
    consortium = make_consortium()
    one = host_party(Rounds(protection=Noised), consortium, "ash")
    answer_ask(one, write_ask("run.begin[0]"))
    good = heads.sign_head(make_identity("birch"), "birch", "ab" * 32, 7, "cd" * 32)
    bad = heads.sign_head(make_identity("doum"), "cedar", "ab" * 32, 7, "cd" * 32)
    shown = {"birch": [good], "cedar": [bad]}
    assert "ok" in decode(answer_ask(one, write_ask("run.end[0]", heads=shown)))
    assert one.store.remembered("birch", consortium.roster["birch"].sign) == [good]
    assert one.store.remembered("cedar", consortium.roster["cedar"].sign) == []


def test_heads_of_another_form_are_refused() -> None:
    one = host_party(Rounds(), make_consortium(), "ash")
    good = heads.sign_head(make_identity("ash"), "ash", "ab" * 32, 1, "ab" * 32)
    seen: list[Any]
    for seen in ([{}], [7], [good, good], [good] * 9, [{**good, "more": 1}], [{**good, "count": -1}]):
        assert decode(answer_ask(one, write_ask("run.begin[0]", seen=seen)))["refused"] == "form"


def test_each_party_is_watched_by_a_bounded_number_of_others() -> None:
    for size in (1, 2, 5):
        consortium = make_consortium(size, dropouts=0, colluders=min(1, size - 1))
        for party in consortium.parties:
            assert set(heads.watched_parties(consortium, party)) == set(consortium.parties) - {party}
    names = tuple(f"p{k}" for k in range(50))
    many = type(consortium)(parties=names, loss=consortium.loss)
    watched = [heads.watched_parties(many, name) for name in names]
    assert all(len(set(of)) == heads.WATCHERS for of in watched)
    assert all(sum(name in of for of in watched) == heads.WATCHERS for name in names)


def test_newest_heads_are_kept_by_ledger_and_the_oldest_go() -> None:
    def head(ledger: Any, count: Any) -> dict[Any, Any]:
        return {"ledger": ledger, "count": count, "head": f"{count}", "signature": b""}

    assert heads.newest([head("a", 3)], [head("a", 2)]) == [head("a", 3)]
    assert heads.newest([head("a", 3), head("b", 1)], [head("a", 4)]) == [head("b", 1), head("a", 4)]
    many = [head(f"{k}", 1) for k in range(heads.MAX_LEDGERS + 3)]
    assert heads.newest(many, []) == many[3:]


def test_a_frozen_site_is_lost_and_the_others_go_on(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sites
    run(started(folder)[0])
    back_up(folder)
    run(started(folder, run="run-2")[0])
    put_back(folder, monkeypatch)
    parties, _ = started(folder, run="run-3", journal="another journal")
    run(parties)
    assert parties.lost == {"ash": "average[0]: refused: frozen"}
    assert parties.study == STUDY

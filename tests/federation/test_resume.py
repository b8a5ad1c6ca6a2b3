"""A run that was killed is resumed by running it again: the same bytes, no noise twice, no expense twice."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.entropy import derive
from comity.errors import Refused, SiteLost, Stopped
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERYONE
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Entrusted, Noised, Perturbed
from comity.federation.messages.codec import decode
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.privacy.randomness import ReleasedNoise, SeededDraws
from tests.support.asks import answer_ask, path_of, write_ask
from tests.support.channels import LossyChannel
from tests.support.children import at_once
from tests.support.consortia import STUDY, list_draws, make_consortium
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, set_up_run


class Killed(BaseException):
    """Stands for SIGKILL inside this process: nothing catches it."""


def stored(hosts: Any) -> dict[tuple[Any, ...], Any]:
    """Everything durable at the sites: replies by digest, entries of the ledger."""
    out: dict[tuple[Any, ...], Any] = {}
    for name, host in hosts.items():
        for path, digest in host.store.replies("run-1").items():
            out[name, "reply", path] = digest
        for entry in host.store.ledger.entries():
            out[name, entry.kind, entry.release, entry.index] = entry.loss
    return out


def check_ledgers(hosts: Any, lost: Any = (), rounds: int = 2) -> None:
    wanted = [("mean", 0), *(("slope", i) for i in range(rounds))]
    for name, host in hosts.items():
        host.store.ledger.verify()
        draws = list_draws(host)
        assert len(draws) == len(set(draws))
        if name not in lost:
            assert sorted(draws) == wanted


def kill_at(parties: Any, hosts: Any, point: Any) -> None:
    """Arrange for Killed at a named moment: of the coordinator around an ask, or of a site around its commit."""
    consortium, path, moment = point
    if consortium == "coordinator":
        channel, journal = parties.channel, parties.journal
        carry, got = channel.carry, journal.record

        def asking(messages: Any) -> Any:
            here = path_of(next(iter(messages.values()))) == path
            if here and moment == "before-ask":
                raise Killed
            replies = carry(messages)
            if here and moment == "before-journal":
                raise Killed
            return replies

        def journalling(run_id: Any, at: Any, replies: Any, **rest: Any) -> None:
            got(run_id, at, replies, **rest)
            if at == path and moment == "after-journal":
                raise Killed

        channel.carry, journal.record = asking, journalling
    else:
        store = hosts[consortium].store
        commit = store.commit

        def committing(study: Any, run_id: Any, at: Any, *rest: Any, **more: Any) -> Any:
            if str(at) == path and moment == "before-commit":
                raise Killed
            body = commit(study, run_id, at, *rest, **more)
            if str(at) == path and moment == "after-commit":
                raise Killed
            return body

        store.commit = committing


def kill_matrix(folder: Any, lose: Any, protocol: Any, consortium: Any, every: int = 1) -> None:
    """Every ask, three moments at the coordinator, two at a site: killed, resumed, and run once more.

    With `every` above 1 the moments take turns from ask to ask.
    """
    whole = folder / "whole"
    whole.mkdir()
    parties, _ = set_up_run(protocol, consortium, whole, lose=lose)
    run(parties)
    paths = [path for path, _ in parties.journal.traffic(STUDY, "run-1")]
    assert len(paths) == 3 + (4 if consortium.dropouts else 2) + (1 + protocol.rounds) * (
        3 if lose else 2 if consortium.dropouts else 1
    )
    points = [("coordinator", p, m) for p in paths for m in ("before-ask", "before-journal", "after-journal")]
    # Whoever says that it is ready commits nothing.
    points += [("cedar", p, m) for p in paths if p != "run.ready[0]" for m in ("before-commit", "after-commit")]
    for place, point in enumerate(points[::every]):
        there = folder / str(place)
        there.mkdir()
        parties, hosts = set_up_run(protocol, consortium, there, lose=lose)
        kill_at(parties, hosts, point)
        with pytest.raises(Killed):
            run(parties)
        before = stored(hosts)
        parties, hosts = set_up_run(protocol, consortium, there, lose=lose)
        released = run(parties)["result"]
        after = stored(hosts)
        assert all(after[key] == value for key, value in before.items()), point
        check_ledgers(hosts, {name for name, _ in lose}, protocol.rounds)
        parties, hosts = set_up_run(protocol, consortium, there, lose=lose)
        np.testing.assert_array_equal(run(parties)["result"], released)
        last = stored(hosts)
        assert all(last[key] == value for key, value in after.items()), point
        # Whoever was lost has heard the end by now, and nothing else has changed.
        assert {key[0] for key in last.keys() - after.keys()} <= {name for name, _ in lose}, point
        assert all(len(host.store.ledger.entries()) and host.store.runs_open() == [] for host in hosts.values())
        shutil.rmtree(there)


DROPPED = [(), (("doum", "average[0]"),)]


def test_the_kill_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    kill_matrix(tmp_path, (), Rounds(rounds=0), make_consortium(3, dropouts=0), every=3)


def test_the_kill_matrix_with_a_drop_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    kill_matrix(tmp_path, DROPPED[1], Rounds(rounds=1), make_consortium(4), every=7)


@pytest.mark.long
@pytest.mark.parametrize("lose", DROPPED, ids=["all there", "with a drop-out"])
def test_the_kill_matrix_with_more_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Any) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    kill_matrix(tmp_path, lose, Rounds(rounds=3), make_consortium(5))


def test_a_coordinator_killed_after_reading_replies_gains_nothing(tmp_path: Path) -> None:
    parties, hosts = set_up_run(protocol=Rounds(protection=Noised), folder=tmp_path)
    kill_at(parties, hosts, ("coordinator", "average[0]", "before-journal"))
    read = {}
    carry = cast(Any, parties.channel).carry

    def reading(messages: Any) -> Any:
        try:
            return carry(messages)
        finally:
            if path_of(next(iter(messages.values()))) == "average[0]":
                read.update({p: hosts[p].answer(m).reply[:-SIGNATURE_BYTES] for p, m in messages.items()})

    cast(Any, parties.channel).carry = reading
    with pytest.raises(Killed):
        run(parties)
    parties, hosts = set_up_run(protocol=Rounds(protection=Noised), folder=tmp_path)
    run(parties)
    again = dict(parties.journal.traffic(STUDY, "run-1"))["average[0]"]
    assert read and {p: e.reply for p, e in again.items()} == read
    check_ledgers(hosts)


def test_the_journalled_bytes_are_sent_again_not_recomputed_ones(tmp_path: Path) -> None:
    lose = [("cedar", "lean[1]"), ("doum", "lean[1]")]
    parties, _ = set_up_run(folder=tmp_path, lose=lose)
    with pytest.raises(SiteLost):
        run(parties)
    parties, hosts = set_up_run(folder=tmp_path)

    class Drifting(Parties):
        def sum(self, step: Any, **values: Any) -> Any:
            return super().sum(step, **{k: np.nextafter(v, 9.0) for k, v in values.items()})

    drifting = Drifting(
        parties.agreement,
        run="run-1",
        channel=parties.channel,
        journal=parties.journal,
        keys=parties.keys,
    )
    assert run(drifting)["result"].shape == (3,)
    check_ledgers(hosts)


def lose_journal(folder: Any) -> None:
    for path in folder.glob("journal*"):
        path.unlink()


def test_another_journal_can_not_go_on_with_a_run(tmp_path: Path) -> None:
    """A coordinator without its memory would show other lists and draw its own noise a second time."""
    parties, hosts = set_up_run(folder=tmp_path)
    kill_at(parties, hosts, ("coordinator", "run.end[0]", "before-ask"))
    with pytest.raises(Killed):
        run(parties)
    before = stored(hosts)
    lose_journal(tmp_path)
    parties, hosts = set_up_run(folder=tmp_path)
    with pytest.raises(Refused, match="journal"):
        begin(parties)
    message = write_ask("lean[1]", nonce=parties.journal.nonce("run-1"), centre=np.zeros(3))
    assert decode(answer_ask(hosts["ash"], message))["refused"] == "journal"
    assert stored(hosts) == before


def test_a_second_coordinator_does_not_end_the_run_of_the_first(tmp_path: Path) -> None:
    """A run belongs to the journal that began it, its end too; where a journal is lost, each owner abandons the run."""
    parties, hosts = set_up_run(folder=tmp_path)
    kill_at(parties, hosts, ("coordinator", "lean[0]", "before-ask"))
    with pytest.raises(Killed):
        run(parties)
    other, _ = set_up_run(folder=tmp_path, hosts=hosts)
    other.journal = Journal(tmp_path / "other journal")
    for _ in range(2):
        with pytest.raises(Refused, match="journal"):
            run(other)
    assert all(one.store.runs_open() == ["run-1"] for one in hosts.values())
    for one in hosts.values():
        one.store.abandon("run-1")
        assert one.store.runs_open() == []
        assert list_draws(one) == [("mean", 0)]


def test_a_trusted_coordinators_noise_is_not_drawn_again_by_another_journal(tmp_path: Path) -> None:
    """One debit, one noise: its difference from a second one would be the records without any."""

    def start() -> Any:
        return trusted(tmp_path)

    parties = start()
    first = run(parties)["noisy"]
    np.testing.assert_array_equal(run(start())["noisy"], first)
    lose_journal(tmp_path)
    with pytest.raises(Refused, match="closed"):
        run(start())
    # Before the end too, when the sites still have their replies.
    parties = trusted(tmp_path, run_id="run-2")
    parties.progress = dying_at("run.end[0]")
    with pytest.raises(Killed):
        run(parties)
    lose_journal(tmp_path)
    with pytest.raises(Refused, match="journal"):
        run(trusted(tmp_path, run_id="run-2"))


def dying_at(path: Any) -> Any:
    def progress(at: Any) -> None:
        if at == path:
            raise Killed

    return progress


@dataclass(frozen=True)
class Trusted(Rounds):
    """A mean in clear to a coordinator that adds the noise."""

    def declare(self, consortium: Any) -> Declaration:
        (mean, *_) = super().declare(consortium).releases
        noise = cast(Any, mean.protection).noise
        entrusted = replace(mean, protection=Entrusted(noise), grid=2.0**-20)
        noisy = Release(
            name="noisy",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Perturbed(noise, of="mean"),
            form=replace(cast(Any, mean.form), dtype="<f8"),
            bound=mean.bound,
            grid=2.0**-20,
        )
        return Declaration((entrusted, noisy), adversary="readers of the result")

    def coordinate(self, parties: Any) -> Any:
        return {"noisy": parties.perturb("noisy", parties.sum(self.average).value)}


def trusted(folder: Any, run_id: str = "run-1") -> Parties:
    parties, _ = set_up_run(Trusted(), folder=folder, run=run_id, epsilon=50.0)
    parties.noise = ReleasedNoise()
    return parties


def test_after_the_end_nothing_but_the_journal_answers(tmp_path: Path) -> None:
    parties, hosts = set_up_run(folder=tmp_path)
    run(parties)
    assert all(host.store.state("run-1", "sum.root") is None for host in hosts.values())
    with hosts["ash"].store.ledger.reading() as connection:
        bodies = connection.execute("select path from reply where body is not null").fetchall()
    assert bodies == [("run.end[0]",)]
    lose_journal(tmp_path)
    parties, _ = set_up_run(folder=tmp_path)
    with pytest.raises(Refused, match="closed"):
        run(parties)


def test_of_two_coordinators_of_one_run_the_sites_answer_one(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()

    def go(name: Any) -> Any:
        parties, _ = set_up_run(folder=tmp_path / "sites")
        parties.journal = Journal(tmp_path / name)
        try:
            begin(parties)
            return parties.protocol.coordinate(parties)["result"].tobytes()
        except (Refused, Stopped):
            return None

    set_up_run(folder=tmp_path / "sites")
    results = at_once(lambda: go("one"), lambda: go("two"))
    assert None in results
    _, hosts = set_up_run(folder=tmp_path / "sites")
    nonces = {bytes(cast(Any, host.store.state("run-1", "run:nonce"))) for host in hosts.values()}
    assert results == [None, None] or len(nonces) == 1


def test_two_processes_over_one_journal_get_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()

    def go() -> Any:
        parties, _ = set_up_run(folder=tmp_path / "sites")
        begin(parties)
        # Not to the end: there the replies are deleted, and the slower one would be refused.
        return parties.protocol.coordinate(parties)["result"].tobytes()

    set_up_run(folder=tmp_path / "sites")
    first, second = at_once(go, go)
    assert first == second
    _, hosts = set_up_run(folder=tmp_path / "sites")
    check_ledgers(hosts)


def test_the_transcript_is_the_same_after_a_resume_and_counts_what_crossed(tmp_path: Path) -> None:
    parties, hosts = set_up_run(folder=tmp_path, noise=NoNoise())
    kill_at(parties, hosts, ("coordinator", "lean[0]", "after-journal"))
    with pytest.raises(Killed):
        run(parties)
    parties, hosts = set_up_run(folder=tmp_path, noise=NoNoise())
    run(parties)
    first = parties.transcript
    parties, hosts = set_up_run(folder=tmp_path, noise=NoNoise())
    run(parties)
    assert parties.transcript == first
    assert first.rounds == len({line.path for line in first})
    assert isinstance(parties.channel, LossyChannel) and not parties.channel.asked  # all of it came from the journal


def test_a_consortium_without_honest_parties_is_refused() -> None:
    with pytest.raises(Exception, match="leave no honest party"):
        make_consortium(2, dropouts=1, colluders=1)


def test_a_seeded_run_draws_the_same_after_a_resume(tmp_path: Path) -> None:
    def start(folder: Any) -> Any:
        parties, hosts = set_up_run(protocol=Rounds(protection=Noised), folder=folder)
        for name, host in hosts.items():
            host.noise = SeededDraws(derive(b"seed", name))
        return parties, hosts

    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole = run(start(tmp_path / "whole")[0])["result"]
    parties, hosts = start(tmp_path / "killed")
    kill_at(parties, hosts, ("coordinator", "lean[0]", "before-ask"))
    with pytest.raises(Killed):
        run(parties)
    np.testing.assert_array_equal(run(start(tmp_path / "killed")[0])["result"], whole)

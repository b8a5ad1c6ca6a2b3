"""An auction that is killed between any two of its moments goes on: the same bids, the same coins, one debit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comity.errors import Refused, Stopped
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.parties import Parties
from comity.federation.messages.channel import ABSENT
from comity.federation.messages.codec import encode
from comity.federation.owner.host import Host
from comity.privacy.ledger import Ledger
from comity.privacy.unit import Neighbours, Unit
from comity.study.local.channel import LocalChannel
from tests.faults import seen

from .auctions import build_auction, build_published, run_seeded
from .consortia import CONSUMER, OWNERS, make_records


class Killed(BaseException):
    """Stands for SIGKILL of the coordinator: nothing catches it."""


class Sites:
    """Ledgers, and with them replies and state, that outlive the coordinator."""

    def __init__(self, made: Any, folder: Any) -> None:
        self.made, self.folder = made, folder
        self.ledgers = {
            name: Ledger.in_memory(dataset=name, unit=Unit.RECORD, neighbours=Neighbours.REPLACE)
            for name in make_records()
        }

    def run(self, **more: Any) -> Any:
        return run_seeded(self.made(records=2), ledgers=self.ledgers, journal=self.folder / "journal.sqlite", **more)

    def draws(self) -> dict[Any, Any]:
        return {
            name: [(one.release, one.index) for one in ledger.entries() if one.kind == "draw"]
            for name, ledger in self.ledgers.items()
        }


class Moments:
    """Counts the moments at which a coordinator may die, before an ask and on both sides of what it writes down of its
    own chance, and kills it at one of them."""

    def __init__(self, patch: Any, at: Any = None) -> None:
        self.names: list[str] = []
        self.at = at
        once = Journal.once

        def journalled(journal: Any, run: Any, name: Any, make: Any) -> Any:
            self.passed(f"before {name}")
            found = once(journal, run, name, make)
            self.passed(f"after {name}")
            return found

        patch.setattr(Journal, "once", journalled)

    def passed(self, name: Any) -> None:
        self.names.append(name)
        if self.at is not None and len(self.names) == self.at + 1:
            raise Killed


def killed_everywhere(
    made: Any, folder: Any, monkeypatch: pytest.MonkeyPatch, every: Any, **more: Any
) -> Iterator[Any]:
    record = seen.Record(folder / "seen")
    with monkeypatch.context() as patch:
        moments = Moments(patch)
        whole = Sites(made, folder)
        whole.run(progress=moments.passed, **more)
    assert [name for name in moments.names if "asked" in name or "means" in name], "the curator drew nothing"
    for at in range(0, len(moments.names), every):
        there = folder / str(at)
        there.mkdir()
        sites, record = Sites(made, there), seen.Record(there / "seen")
        with monkeypatch.context() as patch:
            for owner in (Host, Parties):
                for name in ("answer", "sum", "perturb", "compute"):
                    if hasattr(owner, name):
                        patch.setattr(owner, name, getattr(owner, name))
            seen.at_a_site(record)
            seen.at_the_coordinator(record)
            with patch.context() as dying:
                doomed = Moments(dying, at)
                with pytest.raises(Killed):
                    sites.run(progress=doomed.passed, **more)
            before = sites.draws()
            outcome = sites.run(**more)
            assert encode(dict(sites.run(**more).released)) == encode(dict(outcome.released))
        assert not seen.twice(record.sights("run")), moments.names[at]
        assert sites.draws() == whole.draws(), moments.names[at]
        assert all(drawn == sites.draws()[name][: len(drawn)] for name, drawn in before.items())
        yield outcome


@pytest.mark.parametrize(
    "made", [build_auction, pytest.param(build_published, marks=pytest.mark.long)], ids=["auction", "published"]
)
def test_a_killed_auction_goes_on_with_the_same_draws(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = list(killed_everywhere(made, tmp_path, monkeypatch, 11, seed=None))
    assert len(outcomes) >= 3 and all(len(one.presented) == 2 for one in outcomes)


def test_control_a_curator_that_draws_anew_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Parties, "once", lambda self, name, make: make())
    sites, record = Sites(build_auction, tmp_path), seen.Record(tmp_path / "seen")
    for name in ("sum", "perturb", "compute"):
        monkeypatch.setattr(Parties, name, getattr(Parties, name))
    seen.at_the_coordinator(record)

    def dying(path: Any) -> None:
        if path == "sell[1]":
            raise Killed

    with pytest.raises(Killed):
        sites.run(progress=dying, seed=None)
    with contextlib.suppress(Refused, Stopped):
        # What follows from other draws is another ask, which the sites refuse.
        sites.run(seed=None)
    assert any("running[0]" in one for one in seen.twice(record.sights("run")))


@pytest.mark.parametrize("gone_at", [pytest.param("run.ready[0]", marks=pytest.mark.long), "run.begin[0]"])
def test_a_consumer_that_dies_before_the_auction_is_waited_for_and_not_lost(
    gone_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drop-out may be anybody of whom others are left: without its consumer a run could never end."""
    sites, work = Sites(build_auction, tmp_path), LocalChannel._answer
    paths: list[str] = []

    def dead(self: Any, asking: Any, party: Any, make: Any) -> None:
        if party == CONSUMER and paths[-1] == gone_at:
            asking.lost(party, ABSENT)
        else:
            work(self, asking, party, make)

    with monkeypatch.context() as patch:
        patch.setattr(LocalChannel, "_answer", dead)
        with pytest.raises(Stopped, match=f"without {CONSUMER}"):
            sites.run(progress=paths.append, dropouts=1)
    assert paths[-1] == gone_at
    assert len(sites.run(dropouts=1).presented) == 2
    # An owner may be lost there: the others are enough.
    (tmp_path / "other").mkdir()
    paths.clear()
    monkeypatch.setattr("tests.summary.test_auction_resume.CONSUMER", OWNERS[0])
    monkeypatch.setattr(LocalChannel, "_answer", dead)
    assert len(Sites(build_auction, tmp_path / "other").run(progress=paths.append, dropouts=1).presented) == 2


@pytest.mark.long
@pytest.mark.parametrize("made", [build_auction, build_published], ids=["auction", "published"])
def test_an_auction_killed_at_any_moment_goes_on(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(list(killed_everywhere(made, tmp_path, monkeypatch, 1, seed=None))) > 25


@pytest.mark.long
def test_a_seeded_auction_ends_the_same_wherever_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = encode(dict(Sites(build_auction, tmp_path).run(seed=3).released))
    (tmp_path / "killed").mkdir()
    outcomes = list(killed_everywhere(build_auction, tmp_path / "killed", monkeypatch, 14, seed=3))
    assert outcomes and all(encode(dict(one.released)) == whole for one in outcomes)

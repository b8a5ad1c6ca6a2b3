"""Drop-outs are of parties of whom others are left: whom a release can't do without is waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from comity.errors import SiteLost
from comity.federation.coordinator.exchange import count_missing
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.declaration import Declaration
from tests.support.consortia import make_consortium
from tests.support.rounds import Rounds, set_up_run

from .test_resume import check_ledgers

ONE = frozenset({"cedar"})


def test_how_many_more_must_answer() -> None:
    groups = ((frozenset({"ash", "birch", "cedar"}), 2), (ONE, 1))
    assert count_missing(groups, []) == 3 and count_missing(groups, ["ash", "birch"]) == 1
    assert count_missing(groups, ["ash", "cedar"]) == 0 == count_missing((), [])


def test_a_declaration_says_how_many_of_whom_it_needs() -> None:
    consortium = make_consortium(4)
    assert Rounds().declare(consortium).quorums(consortium) == ((frozenset(consortium.parties), 3),)


@pytest.mark.parametrize("at", ["run.ready[0]", "run.begin[0]"])
def test_a_party_that_is_needed_is_not_lost_before_the_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    every = Declaration.quorums
    monkeypatch.setattr(Declaration, "quorums", lambda self, consortium: (*every(self, consortium), (ONE, 1)))
    protocol, consortium = Rounds(rounds=0), make_consortium(4)
    parties, _ = set_up_run(protocol, consortium, tmp_path, lose=[("cedar", at)])
    with pytest.raises(SiteLost, match=r"3 of the 4 needed answered, without cedar"):
        run(parties)
    parties, hosts = set_up_run(protocol, consortium, tmp_path)
    run(parties)
    check_ledgers(hosts, rounds=0)


def test_control_any_other_party_may_be_lost_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = Declaration.quorums
    monkeypatch.setattr(Declaration, "quorums", lambda self, consortium: (*every(self, consortium), (ONE, 1)))
    parties, hosts = set_up_run(Rounds(rounds=0), make_consortium(4), tmp_path, lose=[("doum", "run.begin[0]")])
    run(parties)
    check_ledgers(hosts, {"doum"}, rounds=0)

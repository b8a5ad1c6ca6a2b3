"""What is left of a run that is over, was refused or abandoned: no secret, no reservation, no second beginning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from comity.errors import Refused
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.policy import Policy
from comity.federation.messages.codec import decode
from tests.support.asks import answer_ask, path_of, write_ask
from tests.support.consortia import list_draws, make_consortium
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, host_party, set_up_run

LAST = "sum.unmask[mean/0]"
# Who took part, and what binds a run to its journal.
PUBLIC = {"run:nonce", "sum.members", "sum.list/mean/0", "sum.masked/mean/0", "sum.seated", "sum.dealt"}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))


def run_and_listen(folder: Any) -> Any:
    """A whole run over files, what was secret in the middle of it, and which of that stood in the files then."""
    parties, hosts = set_up_run(Rounds(rounds=0), folder=folder, noise=NoNoise())
    secrets, seen = {}, {}
    carry = cast(Any, parties.channel).carry

    def listening(messages: Any) -> Any:
        if path_of(next(iter(messages.values()))) == LAST:
            for name, one in hosts.items():
                with one.store.ledger.reading() as connection:
                    kept = connection.execute(
                        "select name, value from state where owner = ?", (one.store.ledger.owner,)
                    )
                    secrets.update({(name, what): bytes(value) for what, value in kept if what not in PUBLIC})
            made = parties.journal._connection.execute("select name, value from once").fetchall()
            secrets.update({("coordinator", what): bytes(value) for what, value in made if what not in PUBLIC})
            seen.update(found_in(folder, secrets))
        return carry(messages)

    cast(Any, parties.channel).carry = listening
    run(parties)
    return secrets, seen


def found_in(folder: Any, secrets: Any) -> dict[Any, Any]:
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return {which: [name for name, raw in files.items() if secret in raw] for which, secret in secrets.items()}


def test_no_secret_of_a_run_is_left_in_any_file(tmp_path: Path) -> None:
    sites = tmp_path / "sites"
    sites.mkdir()
    secrets, seen = run_and_listen(sites)
    assert {what for _, what in secrets} >= {"sum.root", "sum.seeds", "sum.held"}
    assert any(name == "coordinator" for name, _ in secrets)
    # Positive control: in the middle of the run whoever takes the files has them.
    assert all(seen[which] for which in secrets)
    left = {which: files for which, files in found_in(sites, secrets).items() if files}
    assert not left


def test_the_journal_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        parties, _ = set_up_run(Rounds(rounds=0), folder=tmp_path, noise=NoNoise())
        files = [path for path in tmp_path.iterdir() if path.name.startswith("journal")]
        assert files and all(path.stat().st_mode & 0o077 == 0 for path in files)
        (tmp_path / "journal").chmod(0o644)
        type(parties.journal)(tmp_path / "journal")
        assert (tmp_path / "journal").stat().st_mode & 0o077 == 0
    finally:
        os.umask(before)


def sums(one: Any) -> Any:
    (account,) = one.store.ledger.summary()
    return account.spent_epsilon, account.reserved_epsilon, account.left


def test_a_refusal_at_the_beginning_frees_what_the_others_reserved() -> None:
    parties, hosts = set_up_run(Rounds(rounds=0), noise=NoNoise())
    before = {name: sums(one) for name, one in hosts.items()}

    def meddling(path: Any) -> None:
        if path == "run.begin[0]":
            hosts["elm"].policy = Policy(approved={})

    parties.progress = meddling
    with pytest.raises(Refused, match="elm refused"):
        run(parties)
    assert {name: sums(one) for name, one in hosts.items()} == before
    assert all(one.store.state("run-1", "run:nonce") is None for one in hosts.values())
    # For good: the owner's change of mind is for a new run.
    hosts["elm"].policy = Policy(approved=None)
    with pytest.raises(Refused, match="abandoned"):
        run(parties)
    again, _ = set_up_run(Rounds(rounds=0), noise=NoNoise(), hosts=hosts, run="run-2")
    assert run(again)["result"].shape == (3,)


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_that_its_owner_abandoned_never_begins_and_draws_nothing(begun: bool) -> None:
    one = host_party(Rounds(rounds=0), make_consortium(), "ash", noise=NoNoise())

    def ask(path: Any) -> Any:
        return decode(answer_ask(one, write_ask(path)))

    before = sums(one)
    if begun:
        assert "ok" in ask("run.begin[0]")
        assert sums(one) != before
    one.store.abandon("run-1")
    one.store.abandon("run-1")
    assert sums(one) == before
    assert ask("run.begin[0]")["refused"] == "closed"
    assert ask("average[0]")["refused"] == "closed"
    assert list_draws(one) == []

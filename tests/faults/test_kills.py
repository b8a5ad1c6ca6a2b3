"""Any process is killed at any moment: the run continues or is resumed, and each release is charged once and has one
noise.

`make faults` counts it for every method and prints the table of docs/reliability.md.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import execute
from comity.federation.coordinator.parties import Parties
from comity.federation.owner.host import Host
from comity.privacy.ledger import Transaction
from comity.relay.deployment import connect_parties
from comity.site.service import SiteService
from comity.study.local.channel import LocalChannel
from tests.faults import deployed_kills, local_kills, seen, table
from tests.faults.checks import broken, owed
from tests.faults.consortia import METHODS, RUN, make
from tests.faults.matrix import DEPLOYED, LOCAL, SEED
from tests.faults.outcomes import ENDED, RESUMED
from tests.support.children import end_children
from tests.support.relays import needs_server


@pytest.fixture(autouse=True)
def over() -> Iterator[None]:
    yield
    end_children()


def test_a_few_kills(small: Any, tmp_path: Path) -> None:
    tally = local_kills.kills(small, tmp_path, 2, SEED, measured=1)
    assert tally.kills >= 2 and not tally.violations
    assert not tally.number(ENDED)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_two_hundred_kills(method: Any, tmp_path: Path) -> None:
    tally = local_kills.kills(make(tmp_path / "pristine", method), tmp_path, 200, SEED)
    print(*table.lines(LOCAL, tally, SEED), sep="\n")
    assert not tally.violations
    # Kills that all came before or after the run would have tried nothing.
    assert tally.number(RESUMED) >= 60 and not tally.number(ENDED)


@needs_server
@pytest.mark.deploy
@pytest.mark.parametrize("method", METHODS)
def test_kills_of_each_role_over_a_relay(method: Any, tmp_path: Path) -> None:
    tally = deployed_kills.kills(make(tmp_path / "pristine", method, runs=40, deployed=True), tmp_path, 3, SEED)
    print(*table.lines(DEPLOYED, tally, SEED), sep="\n")
    assert not tally.violations and not tally.number(ENDED)


# Controls: what is counted as a violation.


@pytest.fixture
def watched(small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run in this process of which everything is written down; call it again to run it again."""
    place, record = small.copied(tmp_path / "consortium"), seen.Record(tmp_path / "seen")
    for owner, names in ((Host, ("answer",)), (Parties, ("sum", "perturb", "compute"))):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    seen.at_a_site(record)
    seen.at_the_coordinator(record)

    def run(journal: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        with place.witnessed():
            services = {party: SiteService(place.site(party)) for party in place.parties}
            parties = connect_parties(
                place.study, run=RUN, channel=LocalChannel(services), journal=journal, keys=place.keys
            )
            return execute(parties)

    def wrong() -> list[str]:
        with place.witnessed():
            ledgers = {party: place.ledger(party) for party in place.parties}
            return broken(place.study.agreement, ledgers, record.sights(RUN), {}, RUN)[0]

    made: Any = run
    made.wrong, made.place = wrong, place
    return made


class Dies(BaseException):
    """Stands for a kill: nothing catches it."""


def test_control_a_site_that_forgets_its_reply_is_seen(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again after a kill, it draws a second noise for one debit."""
    journal, got = Journal(), Journal.record
    agreement, asked = watched.place.study.agreement, []

    def dying(self: Any, run: Any, path: Any, *rest: Any, **more: Any) -> Any:
        if owed(agreement, "north", path) is not None:
            asked.append(path)
            raise Dies
        return got(self, run, path, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "record", dying)
        with pytest.raises(Dies):
            watched(journal)
    assert not watched.wrong()
    for party in watched.place.parties:
        with sqlite3.connect(watched.place.folder / party / f"{party}.ledger") as file:
            file.execute("delete from reply where path = ?", asked)
    monkeypatch.setattr(Transaction, "draw", lambda self, **what: None)
    watched(journal)
    assert any(f"answered {asked[0]} in 2 ways" in one for one in watched.wrong())


def test_control_a_ledger_that_does_not_pay_is_seen(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "draw", lambda self, **what: None)
    watched(Journal())
    assert any("its ledger lacks the draw" in one for one in watched.wrong())

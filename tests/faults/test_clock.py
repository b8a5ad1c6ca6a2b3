"""A clock that jumps ahead and back during a run: no timeout uses it, and the ledger stays correct."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import execute
from comity.federation.declare import policy
from comity.privacy.ledger import tables
from comity.relay.deployment import connect_parties
from comity.site.service import SiteService
from comity.study.local.channel import LocalChannel
from tests.faults.checks import lines_of

YEARS = timedelta(days=20 * 365)


class Clock:
    """Stands for `datetime` in a module; `ahead` is by how much it is wrong."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self, zone: Any = UTC) -> Any:
        return datetime.now(zone) + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (tables, policy):
        monkeypatch.setattr(module, "datetime", made)
    return made


def run(place: Any, name: Any, progress: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    services = {party: SiteService(place.site(party)) for party in place.parties}
    parties = connect_parties(
        place.study,
        run=name,
        channel=LocalChannel(services),
        journal=Journal(place.journal),
        keys=place.keys,
        progress=progress,
    )
    return execute(parties)


def test_a_run_goes_through_a_clock_that_jumps(small: Any, tmp_path: Path, clock: Any) -> None:
    place = small.copied(tmp_path / "consortium")
    jumps = iter([YEARS, -2 * YEARS, 2 * YEARS, -YEARS] * 20)

    def jumping(_: Any) -> None:
        clock.ahead += next(jumps)

    with place.witnessed():
        run(place, "run-1", jumping)
        ledger = place.ledger("north")
        assert not ledger.verify().frozen
        times = [entry.time for entry in ledger.entries()]
        assert times != sorted(times), "the control: the clock has jumped"
        assert [line.kind for line in lines_of(ledger, "run-1")] == ["reserve", "draw", "close"]

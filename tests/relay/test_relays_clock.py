"""Certificates expire by the relay's clock: once it is corrected, members that it cut off too early are readmitted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from comity.relay import server
from comity.relay.roster import Roster
from tests.support.relays import Loopback


class Clock:
    ahead = timedelta()

    def now(self, zone: Any = UTC) -> Any:
        return datetime.now(zone) + self.ahead


def test_a_clock_that_was_ahead_does_not_keep_members_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, given = Clock(), []
    monkeypatch.setattr(server, "datetime", clock)
    monkeypatch.setattr(server, "reload", lambda folder: given.append(set(Roster.load(folder).users(clock.now()))))
    folder = Loopback.make(tmp_path / "members", ["north"]).folder
    ended = server._apply_expiry(folder, server._expired_members(folder))
    assert given == [] and not ended
    clock.ahead = timedelta(days=20 * 365)
    ended = server._apply_expiry(folder, ended)
    assert given == [set()] and ended == {"north", "coordinator"}
    clock.ahead = timedelta()
    ended = server._apply_expiry(folder, ended)
    assert given == [set(), {"north", "coordinator"}] and not ended
    server._apply_expiry(folder, ended)
    assert len(given) == 2

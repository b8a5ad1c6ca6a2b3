"""A party that was not there when a run ended hears of it when the run is run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from comity.federation.coordinator.journal import Journal
from comity.federation.messages.paths import END
from comity.relay.deployment import unnotified_parties
from comity.site.status import list_runs

from .sites import approve, coordinated, execute


def states(desk: Any) -> list[Any]:
    return [run.state for run in list_runs(desk.site.owner().ledger)]


def test_who_has_not_heard_the_end_is_known_and_told_again(sites: Any, tmp_path: Path) -> None:
    study, desks, path = sites.study(), sites.desks(), tmp_path / "journal.sqlite"
    packed = sites.packed(study)
    for desk in desks.values():
        approve(desk, desk.received(packed))
    north = desks["north"]

    def leaving(at: Any) -> None:
        if at == str(END):
            del desks["north"]

    run = coordinated(study, desks, sites.coordinator, journal=Journal(path), progress=leaving)
    first = execute(run)
    assert unnotified_parties(path, "run-1") == ["north"]
    assert states(north) == ["open"] and states(desks["south"]) == ["closed"]
    desks["north"] = north
    assert str(execute(coordinated(study, desks, sites.coordinator, journal=Journal(path)))) == str(first)
    assert unnotified_parties(path, "run-1") == [] and states(north) == ["closed"]

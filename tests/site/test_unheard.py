"""A party that was not there when a run ended hears of it when the run is run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from comity.federation.coordinator.journal import Journal
from comity.federation.messages.ask import END
from comity.relay.deployment import unnotified_parties
from comity.site.status import list_runs
from tests.support.sites import approve, connect_services, execute


def states(service: Any) -> list[Any]:
    return [run.state for run in list_runs(service.site.owner().ledger)]


def test_who_has_not_heard_the_end_is_known_and_told_again(sites: Any, tmp_path: Path) -> None:
    study, services, path = sites.study(), sites.services(), tmp_path / "journal.sqlite"
    packed = sites.pack(study)
    for service in services.values():
        approve(service, service.take_in(packed))
    north = services["north"]

    def leaving(at: Any) -> None:
        if at == str(END):
            del services["north"]

    run = connect_services(study, services, sites.coordinator, journal=Journal(path), progress=leaving)
    first = execute(run)
    assert unnotified_parties(path, "run-1") == ["north"]
    assert states(north) == ["open"] and states(services["south"]) == ["closed"]
    services["north"] = north
    assert str(execute(connect_services(study, services, sites.coordinator, journal=Journal(path)))) == str(first)
    assert unnotified_parties(path, "run-1") == [] and states(north) == ["closed"]

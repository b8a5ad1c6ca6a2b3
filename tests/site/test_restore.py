"""Backup and restore as docs/deploy.md says: a copy taken while the site serves, and a ledger that went back."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from comity.cli import main
from comity.errors import Refused
from comity.federation.coordinator.lifecycle import begin, ready
from comity.site.health import check_site
from comity.site.status import list_runs
from tests.support.sites import Sites, approve, connect_services


def backed_up(ledger: Path, to: Path) -> None:
    with closing(sqlite3.connect(ledger)) as live, closing(sqlite3.connect(to)) as copy:
        live.backup(copy)


def restored(ledger: Path, copy: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{ledger}{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, ledger)


def test_a_ledger_that_went_back_answers_nothing_until_its_owner_has_written_off(sites: Sites, tmp_path: Path) -> None:
    study, services = sites.study(epsilon=0.3), sites.services()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)), runs=3)
    ledger, copy = sites.home("north") / "north.ledger", tmp_path / "backup"
    backed_up(ledger, copy)
    begin(connect_services(study, services, sites.coordinator))
    del services
    restored(ledger, copy)
    services = sites.services()
    with pytest.raises(Refused) as refusal:
        ready(connect_services(study, services, sites.coordinator, run="run-2"))
    assert (refusal.value.party, refusal.value.code) == ("north", "frozen")
    told = [one.sentence for one in check_site(sites.site("north")) if one.state == "failure"]
    assert len(told) == 1 and "frozen" in told[0] and "comity ledger write-off" in told[0]
    assert main(["ledger", "write-off", str(ledger), "--epsilon", "0.3", "--delta", "1e-6", "--why", "restored"]) == 0
    ready(connect_services(study, sites.services(), sites.coordinator, run="run-2"))


def test_a_copy_that_is_the_last_state_goes_on(sites: Sites, tmp_path: Path) -> None:
    """Positive control: it is going back that freezes a ledger, not being restored on the machine that knows it."""
    study, services = sites.study(epsilon=0.3), sites.services()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    begin(connect_services(study, services, sites.coordinator))
    ledger, copy = sites.home("north") / "north.ledger", tmp_path / "backup"
    backed_up(ledger, copy)
    del services
    restored(ledger, copy)
    assert not [one for one in check_site(sites.site("north")) if one.state == "failure"]
    assert [run.state for run in list_runs(sites.services()["north"].site.owner().ledger)] == ["open"]

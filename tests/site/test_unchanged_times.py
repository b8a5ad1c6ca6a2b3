"""What an owner decided counts from the next ask on, also where a file's time of modification says that nothing
changed: `cp -p`, `rsync -t` and restored backups keep it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from comity.errors import Refused
from comity.federation.coordinator.lifecycle import ready
from comity.site.service import SiteService
from comity.site.site_file import SiteFile
from tests.support.sites import Sites, approve, connect_services


def overwrite(path: Path, text: str) -> None:
    """In place, keeping the inode and the times."""
    before = path.stat()
    with path.open("r+") as file:
        file.write(text)
        file.truncate()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_ino == before.st_ino


def copy(path: Path, text: str) -> None:
    """As `cp -p` of a file that was written elsewhere at the very same time."""
    other = path.with_name("other")
    other.write_text(text)
    before = path.stat()
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    shutil.copy2(other, path)
    other.unlink()
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def move(path: Path, text: str) -> None:
    """As `rsync -t`: written beside it and renamed."""
    other = path.with_name("other")
    other.write_text(text)
    before = path.stat()
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(path)
    assert path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.fixture
def served(sites: Sites) -> tuple[Any, dict[str, SiteService]]:
    study = sites.study()
    services = sites.services()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    ready(connect_services(study, services, sites.coordinator))
    return study, services


@pytest.mark.parametrize("write", [overwrite, copy, move])
def test_a_narrower_policy_counts_whatever_its_time(sites: Sites, served: Any, write: Any) -> None:
    study, services = served
    path = sites.site("north")
    text = path.read_text()
    narrower = text.replace("epsilon_per_study = 1.0", "epsilon_per_study = 0.1")
    assert len(narrower) == len(text) and narrower != text
    write(path, narrower)
    with pytest.raises(Refused) as error:
        ready(connect_services(study, services, sites.coordinator))
    assert (error.value.party, error.value.code, error.value.key) == ("north", "policy", "epsilon_per_study")
    write(path, text)
    ready(connect_services(study, services, sites.coordinator))


@pytest.mark.parametrize("write", [overwrite, copy, move])
def test_a_withdrawn_approval_counts_whatever_its_time(sites: Sites, served: Any, write: Any) -> None:
    study, services = served
    path = sites.home("north") / "studies" / study.hash / "decision.json"
    text = path.read_text()
    write(path, text.replace('"approved"', '"refused"').replace('"why": ""', '"why": "x"'))
    assert path.stat().st_size == len(text)
    with pytest.raises(Refused) as error:
        ready(connect_services(study, services, sites.coordinator))
    assert (error.value.party, error.value.code) == ("north", "study")


def test_a_file_that_changes_while_a_site_starts_is_read_again(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sites.site("north")
    text, load = path.read_text(), SiteFile.load

    def changing(where: Any) -> SiteFile:
        loaded = load(where)
        path.write_text(text.replace("epsilon_per_study = 1.0", "epsilon_per_study = 0.1"))
        monkeypatch.setattr(SiteFile, "load", load)
        return loaded

    monkeypatch.setattr(SiteFile, "load", changing)
    service = SiteService(path)
    service.refresh()
    assert str(service.site.policy.epsilon_per_study) == "0.1"


def test_nothing_is_opened_again_while_nothing_changes(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    service = SiteService(sites.site("north"))
    monkeypatch.setattr(SiteFile, "load", lambda path: pytest.fail("read again"))
    for _ in range(3):
        service.refresh()

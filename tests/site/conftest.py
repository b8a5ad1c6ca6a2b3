"""A consortium of owners with site files: made once, copied for each test with what its machine has seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from comity.site import inbox, pack_limits
from comity.study.study import Study
from tests.support.sites import Sites
from tests.support.witnesses import witnesses_in


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine")
    with witnesses_in(folder / "home"):
        (folder / "sites").mkdir()
        Sites.make(folder / "sites")
    return folder


@pytest.fixture
def sites(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sites:
    shutil.copytree(pristine, tmp_path / "all")
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "all" / "home"))
    return Sites.load(tmp_path / "all" / "sites")


@pytest.fixture(autouse=True)
def nothing_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with a process that has examined no pack."""
    monkeypatch.setattr(inbox, "_examined", {})


@pytest.fixture
def packs_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack with public records is checked in this process: another one takes a second of imports for each pack. That
    the service starts one, with limits, is in `test_hostile_packs.py`."""

    def examine(study: Path) -> None:
        pack_limits.check_footers(study.parent)
        pack_limits.check_schema(study)
        Study.load(study)

    monkeypatch.setattr(inbox, "examine", examine)

"""A consortium of owners with site files: made once, copied for each test with what its machine has seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

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

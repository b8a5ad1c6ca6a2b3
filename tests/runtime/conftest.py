"""A consortium of owners with site files: made once, copied for each test with what its machine has seen."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from .sites import Sites


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine")
    before = os.environ.get("COMITY_HOME")
    os.environ["COMITY_HOME"] = str(folder / "home")
    try:
        (folder / "sites").mkdir()
        Sites.make(folder / "sites")
    finally:
        if before is None:
            del os.environ["COMITY_HOME"]
        else:
            os.environ["COMITY_HOME"] = before
    return folder


@pytest.fixture
def sites(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sites:
    shutil.copytree(pristine, tmp_path / "all")
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "all" / "home"))
    return Sites.found(tmp_path / "all" / "sites")

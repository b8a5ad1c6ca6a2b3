"""A small study in a folder, and the command line called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from comity.cli import main
from tests.support.study_folder import write_study


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("COMITY_HOME", str(folder))
    monkeypatch.delenv("COMITY_DATA", raising=False)
    return folder


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = write_study(tmp_path / "small")
    monkeypatch.chdir(path.parent)
    return path


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def failure(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.err)["error"]
        return found


@pytest.fixture
def comity(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    def call(*arguments: object) -> Ended:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return call

"""A small study on disk, and the command line called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from comity.cli import main
from comity.data import clinic_schema, clinics, public_cohort

PARTIES = 5

STUDY = f"""\
[study]
name = "small"
protocol = "softlabel"
schema = "schema.toml"

[privacy]
epsilon = 2.0
delta = 1e-6

[softlabel]
variant = "published"
method = "avg"
auxiliary = "public.csv"
scaling = "normalised"

[parties]
count = {PARTIES}

[simulation]
data = "records.csv"
split = "by-column"
column = "clinic"
test = "test.csv"
"""


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("COMITY_HOME", str(folder))
    monkeypatch.delenv("COMITY_DATA", raising=False)
    return folder


def write_study(folder: Path, *, text: str = STUDY, parties: int = PARTIES, records: int = 12) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    visits = clinics(parties, records, "tests")
    together = pd.concat([table.assign(clinic=name) for name, table in visits.items()], ignore_index=True)
    together.to_csv(folder / "records.csv", index=False)
    pd.concat(clinics(2, 50, "tests, test").values()).to_csv(folder / "test.csv", index=False)
    public_cohort(40, "tests").to_csv(folder / "public.csv", index=False)
    (folder / "schema.toml").write_text(clinic_schema("readmitted").to_toml())
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


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

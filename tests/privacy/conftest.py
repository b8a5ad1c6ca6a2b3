"""Each test has a machine of its own, which has seen no ledger."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"

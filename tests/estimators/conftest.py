from __future__ import annotations

import pytest

import comity.estimators.face as face
from comity.estimators.fits import Fits


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins like a process that has fitted nothing."""
    monkeypatch.setattr(face, "FITS", Fits())

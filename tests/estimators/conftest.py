from __future__ import annotations

import pytest

import comity.estimators.simulated_estimator as simulated_estimator
from comity.estimators.fits import Fits


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins like a process that has fitted nothing."""
    monkeypatch.setattr(simulated_estimator, "FITS", Fits())

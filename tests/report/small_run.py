"""A run of a few clinics that takes a moment."""

from __future__ import annotations

from math import floor
from typing import Any

from comity.data import Encoding, clinic_schema, clinics, public_cohort
from comity.methods.softlabel import PublishedSoftLabel, SoftLabel
from comity.privacy.accounting import gdp_epsilon, gdp_square
from comity.study.results.result import Result
from tests.support.protocols import simulate_with

ENCODING = Encoding(clinic_schema("readmitted"), rows="normalised", intercept=True)
AUXILIARY = ENCODING.encode_features(public_cohort(60))


def protocol(method: Any = "avg", classes: Any = ("no", "yes"), encoding: Any = ENCODING) -> PublishedSoftLabel:
    return SoftLabel.published_over_rows(
        auxiliary=AUXILIARY, classes=classes, method=method, l2=0.01, encoding=encoding
    )


def simulated(method: str = "avg", parties: int = 6, **changed: Any) -> Result:
    options: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "seed": 3, "grant": 2.5, "name": "triage <b>"} | changed
    frames = clinics(parties, 12)
    return simulate_with(protocol(method), parties=frames, **options)


def left(granted: Any, spent: Any, delta: float = 1e-6) -> str:
    """What a ledger in Gaussian DP has left, rounded down: squares add up."""
    epsilon = gdp_epsilon(gdp_square(granted, delta) - gdp_square(spent, delta), delta)
    return f"eps {floor(100 * epsilon) / 100:.2f}"

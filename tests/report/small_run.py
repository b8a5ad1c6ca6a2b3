"""A run of a few clinics that takes a moment."""

from __future__ import annotations

from math import floor

import comity
from comity.data import Encoding, clinic_schema, clinics, public_cohort
from comity.privacy.accounting import gdp_epsilon, gdp_square
from comity.protocols.softlabel import PublishedSoftLabel

ENCODING = Encoding(clinic_schema("readmitted"), rows="normalised", intercept=True)
AUXILIARY = ENCODING.encode_features(public_cohort(60))


def protocol(method="avg", classes=("no", "yes"), encoding=ENCODING):
    return PublishedSoftLabel(auxiliary=AUXILIARY, classes=classes, method=method, l2=0.01, encoding=encoding)


def simulated(method="avg", parties=6, **options):
    options = {"epsilon": 1, "delta": 1e-6, "seed": 3, "grant": 2.5, "name": "triage <b>"} | options
    frames = clinics(parties, 12)
    return comity.simulate(protocol(method), parties=frames, **options)


def left(granted, spent, delta=1e-6):
    """What a ledger in Gaussian DP has left, rounded down: squares add up."""
    epsilon = gdp_epsilon(gdp_square(granted, delta) - gdp_square(spent, delta), delta)
    return f"eps {floor(100 * epsilon) / 100:.2f}"

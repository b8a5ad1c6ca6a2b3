"""A run of a few clinics that takes a moment."""

from __future__ import annotations

import comity
from comity.data import Encoding, clinic_schema, clinics, public_cohort
from comity.protocols.softlabel import PublishedSoftLabel

ENCODING = Encoding(clinic_schema("readmitted"), rows="normalised", intercept=True)
AUXILIARY = ENCODING.encode_features(public_cohort(60))


def protocol(method="avg", classes=("no", "yes"), encoding=ENCODING):
    return PublishedSoftLabel(auxiliary=AUXILIARY, classes=classes, method=method, l2=0.01, encoding=encoding)


def simulated(method="avg", parties=6, **options):
    options = {"epsilon": 1, "delta": 1e-6, "seed": 3, "grant": 2.5, "name": "triage <b>"} | options
    frames = clinics(parties, 12)
    return comity.simulate(protocol(method), parties=frames, **options)

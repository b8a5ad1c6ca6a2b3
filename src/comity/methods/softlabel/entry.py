"""What is known of softlabel before it is used."""

from __future__ import annotations

from comity.methods import Entry

ENTRY = Entry(
    method="comity.methods.softlabel.method:SoftLabel",
    starter="comity.methods.softlabel.starter:write",
    estimators={
        "SoftLabelClassifier": "comity.estimators.softlabel:SoftLabelClassifier",
    },
)

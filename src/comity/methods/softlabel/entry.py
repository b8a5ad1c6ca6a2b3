"""The entry of soft labels in the registry."""

from __future__ import annotations

from comity.methods import Entry

ENTRY = Entry(
    method="comity.methods.softlabel.method:SoftLabel",
    starter="comity.methods.softlabel.starter:write",
    published_starter="comity.methods.softlabel.starter:write_published",
    estimators={
        "SoftLabelClassifier": "comity.estimators.softlabel:SoftLabelClassifier",
    },
)

"""What is known of softlabel before it is used."""

from __future__ import annotations

from comity.protocols.entry import Entry

ENTRY = Entry(
    parameters="comity.protocols.softlabel.parameters:SoftLabelParameters",
    starter="comity.protocols.softlabel.starter:write",
    demo="comity.demo.softlabel:demonstrate",
    estimators={
        "SoftLabelClassifier": "comity.estimators.softlabel:SoftLabelClassifier",
    },
)

"""What is known of vertical before it is used."""

from __future__ import annotations

from comity.protocols.entry import Entry

ENTRY = Entry(
    parameters="comity.protocols.vertical.parameters:VerticalParameters",
    starter="comity.protocols.vertical.starter:write",
    demo="comity.demo.vertical:demonstrate",
    estimators={
        "VerticalClassifier": "comity.estimators.vertical:VerticalClassifier",
        "VerticalRegressor": "comity.estimators.vertical:VerticalRegressor",
    },
)

"""Where the parts of vertical are, imported when they are used."""

from __future__ import annotations

from comity.methods import Entry

ENTRY = Entry(
    method="comity.methods.vertical.method:Vertical",
    starter="comity.methods.vertical.starter:write",
    published_starter="comity.methods.vertical.starter:write_published",
    estimators={
        "VerticalClassifier": "comity.estimators.vertical:VerticalClassifier",
        "VerticalRegressor": "comity.estimators.vertical:VerticalRegressor",
    },
)

"""What is known of vertical before it is used."""

from __future__ import annotations

from comity.protocols.entry import Entry, Measurement, Reproduction

ENTRY = Entry(
    parameters="comity.protocols.vertical.parameters:VerticalParameters",
    starter="comity.protocols.vertical.starter:write",
    demo="comity.demo.vertical:demonstrate",
    comparison="comity.reproduce.generalisation.vertical:rows",
    estimators={
        "VerticalClassifier": "comity.estimators.vertical:VerticalClassifier",
        "VerticalRegressor": "comity.estimators.vertical:VerticalRegressor",
    },
    reproductions={
        "vertical-adult": Reproduction(
            "logistic regression over columns of several parties, Xu, Yuan and Wu (2019), Table 3",
            "comity.reproduce.vertical.adult:run",
        ),
        "vertical-cps": Reproduction(
            "linear regression over columns of several parties, as Table 1 on tax units of the CPS",
            "comity.reproduce.vertical.cps:run",
        ),
        "vertical-synthetic": Reproduction(
            "linear regression on 80,000 x 800 generated records, Table 2", "comity.reproduce.vertical.synthetic:run"
        ),
    },
    benches={
        "vertical": Measurement(
            "a regression over columns of several parties, against numpy in one place",
            "comity.bench.methods.vertical:measure",
            plots=True,
        ),
    },
)

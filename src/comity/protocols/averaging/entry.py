"""What is known of averaging before it is used."""

from __future__ import annotations

from comity.protocols.entry import Entry, Measurement, Reproduction

ENTRY = Entry(
    parameters="comity.protocols.averaging.parameters:AveragingParameters",
    starter="comity.protocols.averaging.starter:write",
    demo="comity.demo.averaging:demonstrate",
    comparison="comity.reproduce.generalisation.averaging:rows",
    estimators={
        "AveragedClassifier": "comity.estimators.averaging:AveragedClassifier",
        "AveragedRegressor": "comity.estimators.averaging:AveragedRegressor",
    },
    artefacts={
        "shares": "comity.protocols.averaging.published.shares:PublishedShares",
    },
    reproductions={
        "averaging-adult": Reproduction(
            "averaged classifiers on Adult, Pathak, Rane and Raj (2010), Figure 2: test error against epsilon",
            "comity.reproduce.averaging.adult:run",
        ),
    },
    benches={
        "averaging": Measurement(
            "averaged models on Adult, against federated averaging at the same loss",
            "comity.bench.methods.averaging:measure",
        ),
        "averaging-published": Measurement(
            "the published protocol of averaged classifiers, against the same model in one place",
            "comity.bench.methods.averaging_published:measure",
        ),
    },
)

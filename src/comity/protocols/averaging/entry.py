"""What is known of averaging before it is used."""

from __future__ import annotations

from comity.protocols.entry import Entry

ENTRY = Entry(
    parameters="comity.protocols.averaging.parameters:AveragingParameters",
    starter="comity.protocols.averaging.starter:write",
    demo="comity.demo.averaging:demonstrate",
    estimators={
        "AveragedClassifier": "comity.estimators.averaging:AveragedClassifier",
        "AveragedRegressor": "comity.estimators.averaging:AveragedRegressor",
    },
    artefacts={
        "shares": "comity.protocols.averaging.published.shares:PublishedShares",
    },
)

"""The entry of averaging in the registry."""

from __future__ import annotations

from comity.methods import Entry

ENTRY = Entry(
    method="comity.methods.averaging.method:Averaging",
    starter="comity.methods.averaging.starter:write",
    published_starter="comity.methods.averaging.starter:write_published",
    estimators={
        "AveragedClassifier": "comity.estimators.averaging:AveragedClassifier",
        "AveragedRegressor": "comity.estimators.averaging:AveragedRegressor",
    },
    artefacts={
        "shares": "comity.methods.averaging.published.shares:PublishedShares",
    },
)

"""The entry of summary in the registry."""

from __future__ import annotations

from comity.methods import Entry

ENTRY = Entry(
    method="comity.methods.summary.method:Summary",
    starter="comity.methods.summary.starter:write",
    published_starter="comity.methods.summary.starter:write_published",
    artefacts={
        "hashes": "comity.methods.summary.artefact:BoughtHashes",
        "summary": "comity.methods.summary.artefact:BoughtRecords",
        "weights": "comity.methods.summary.artefact:RatioWeights",
    },
)

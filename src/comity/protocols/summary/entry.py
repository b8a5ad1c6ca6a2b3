"""What is known of summary before it is used."""

from __future__ import annotations

from comity.protocols.entry import Entry

ENTRY = Entry(
    parameters="comity.protocols.summary.parameters:SummaryParameters",
    starter="comity.protocols.summary.starter:write",
    demo="comity.demo.summary:demonstrate",
    artefacts={
        "hashes": "comity.protocols.summary.artefact:BoughtHashes",
        "summary": "comity.protocols.summary.artefact:BoughtRecords",
        "weights": "comity.protocols.summary.artefact:RatioWeights",
    },
)

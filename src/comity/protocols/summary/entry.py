"""What is known of summary before it is used."""

from __future__ import annotations

from comity.protocols.entry import Entry, Measurement, Reproduction

ENTRY = Entry(
    parameters="comity.protocols.summary.parameters:SummaryParameters",
    starter="comity.protocols.summary.starter:write",
    demo="comity.demo.summary:demonstrate",
    artefacts={
        "hashes": "comity.protocols.summary.artefact:BoughtHashes",
        "summary": "comity.protocols.summary.artefact:BoughtRecords",
        "weights": "comity.protocols.summary.artefact:RatioWeights",
    },
    reproductions={
        "summary-adult": Reproduction(
            "the same on Adult by education, which the paper does not have", "comity.reproduce.summary.adult:run"
        ),
        "summary-cps": Reproduction(
            "the same on tax units of the CPS, Florida to Connecticut, in place of the Allstate extract",
            "comity.reproduce.summary.cps:run",
        ),
        "summary-mnist": Reproduction(
            "records that match a consumer's, Sarpatwar et al. (2019): MMD² and accuracy, odd and even digits",
            "comity.reproduce.summary.mnist:run",
        ),
    },
    benches={
        "summary": Measurement(
            "a thousand of a million records that match a consumer's, against greedy choice in one place",
            "comity.bench.methods.summary:measure",
        ),
    },
)

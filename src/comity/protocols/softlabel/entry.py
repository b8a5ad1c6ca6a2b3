"""What is known of softlabel before it is used."""

from __future__ import annotations

from comity.protocols.entry import Entry, Measurement, Reproduction

ENTRY = Entry(
    parameters="comity.protocols.softlabel.parameters:SoftLabelParameters",
    starter="comity.protocols.softlabel.starter:write",
    demo="comity.demo.softlabel:demonstrate",
    comparison="comity.reproduce.generalisation.softlabel:rows",
    estimators={
        "SoftLabelClassifier": "comity.estimators.softlabel:SoftLabelClassifier",
    },
    reproductions={
        "softlabel-har": Reproduction(
            "activity recognition of Hamm, Cao and Belkin (2016): accuracy against epsilon",
            "comity.reproduce.softlabel.har:run",
        ),
        "softlabel-kdd": Reproduction(
            "network intrusions of Hamm, Cao and Belkin (2016): up to 20,000 parties",
            "comity.reproduce.softlabel.kdd:run",
        ),
        "softlabel-mnist": Reproduction(
            "handwritten digits by parties of 6 and of 50 records: the default rule beside votes",
            "comity.reproduce.softlabel.mnist:run",
        ),
    },
    benches={
        "softlabel-million": Measurement(
            "a study of 1,000,000 parties: time and memory", "comity.bench.methods.softlabel_million:measure"
        ),
        "softlabel-parties": Measurement(
            "local fits and votes of 20,000 parties, against a loop over scikit-learn",
            "comity.bench.methods.softlabel_parties:measure",
        ),
    },
)

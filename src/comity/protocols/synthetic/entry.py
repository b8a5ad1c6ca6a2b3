"""What is known of synthetic before it is used."""

from __future__ import annotations

from comity.protocols.entry import Entry, Measurement, Reproduction

ENTRY = Entry(
    parameters="comity.protocols.synthetic.parameters:SyntheticParameters",
    starter="comity.protocols.synthetic.starter:write",
    demo="comity.demo.synthetic:demonstrate",
    artefacts={
        "synthetic": "comity.protocols.synthetic.artefact:SyntheticDataset",
    },
    reproductions={
        "synthetic-fidelity": Reproduction(
            "datasets from private trees, Fioretto and Van Hentenryck (2019), Figures 3 and 4",
            "comity.reproduce.synthetic.fidelity:run",
        ),
        "synthetic-table2": Reproduction(
            "error of what is learned from released data, Fioretto and Van Hentenryck (2019), Table 2",
            "comity.reproduce.synthetic.table2:run",
        ),
    },
    benches={
        "consistency": Measurement(
            "non-negative consistent counts of a tree, against OSQP and Clarabel",
            "comity.bench.methods.consistency:measure",
        ),
        "synthetic": Measurement(
            "a synthetic dataset of many owners, against MST and AIM of one curator at the same loss",
            "comity.bench.methods.synthetic:measure",
        ),
        "synthetic-columns": Measurement(
            "counts over columns of three owners, and a dataset of them, against numpy in one place",
            "comity.bench.methods.synthetic_columns:measure",
            options=("rows",),
        ),
    },
)

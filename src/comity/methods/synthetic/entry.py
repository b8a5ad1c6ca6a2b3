"""What is known of synthetic before it is used."""

from __future__ import annotations

from comity.methods import Entry

ENTRY = Entry(
    method="comity.methods.synthetic.method:Synthetic",
    starter="comity.methods.synthetic.starter:write",
    artefacts={
        "synthetic": "comity.methods.synthetic.artefact:SyntheticDataset",
    },
)

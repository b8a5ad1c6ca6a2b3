"""What is known of synthetic before it is used."""

from __future__ import annotations

from comity.protocols.entry import Entry

ENTRY = Entry(
    parameters="comity.protocols.synthetic.parameters:SyntheticParameters",
    starter="comity.protocols.synthetic.starter:write",
    demo="comity.demo.synthetic:demonstrate",
    artefacts={
        "synthetic": "comity.protocols.synthetic.artefact:SyntheticDataset",
    },
)

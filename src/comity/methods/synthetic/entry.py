"""The entry of synthetic in the registry."""

from __future__ import annotations

from comity.methods import Entry

ENTRY = Entry(
    method="comity.methods.synthetic.method:Synthetic",
    starter="comity.methods.synthetic.starter:write",
    published_starter="comity.methods.synthetic.starter:write_published",
    artefacts={
        "synthetic": "comity.methods.synthetic.artefact:SyntheticDataset",
    },
)

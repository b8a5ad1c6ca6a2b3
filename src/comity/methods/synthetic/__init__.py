"""Synthetic records (Fioretto, Van Hentenryck 2019): by one secure sum of two-way counts, of whole records or of
columns at different owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.synthetic.artefact import SyntheticDataset as SyntheticDataset
    from comity.methods.synthetic.columns import SyntheticColumnsProtocol as SyntheticColumnsProtocol
    from comity.methods.synthetic.fidelity import Examples as Examples
    from comity.methods.synthetic.fidelity import Task as Task
    from comity.methods.synthetic.fidelity import total_variation as total_variation
    from comity.methods.synthetic.method import Synthetic as Synthetic
    from comity.methods.synthetic.method import SyntheticProtocol as SyntheticProtocol

__all__ = [
    "Examples",
    "Synthetic",
    "SyntheticColumnsProtocol",
    "SyntheticDataset",
    "SyntheticProtocol",
    "Task",
    "total_variation",
]

_HOMES = {
    "Examples": "comity.methods.synthetic.fidelity",
    "Synthetic": "comity.methods.synthetic.method",
    "SyntheticColumnsProtocol": "comity.methods.synthetic.columns",
    "SyntheticDataset": "comity.methods.synthetic.artefact",
    "SyntheticProtocol": "comity.methods.synthetic.method",
    "Task": "comity.methods.synthetic.fidelity",
    "total_variation": "comity.methods.synthetic.fidelity",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)

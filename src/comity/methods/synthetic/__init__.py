"""Synthetic records (Fioretto, Van Hentenryck 2019): by one secure sum of two-way counts, of whole records or of
columns at different owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.synthetic.columns import SyntheticColumnsProtocol as SyntheticColumnsProtocol
    from comity.methods.synthetic.method import Synthetic as Synthetic
    from comity.methods.synthetic.method import SyntheticProtocol as SyntheticProtocol

__all__ = ["Synthetic", "SyntheticColumnsProtocol", "SyntheticProtocol"]

_HOMES = {
    "Synthetic": "comity.methods.synthetic.method",
    "SyntheticColumnsProtocol": "comity.methods.synthetic.columns",
    "SyntheticProtocol": "comity.methods.synthetic.method",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)

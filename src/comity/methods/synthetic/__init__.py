"""Synthetic records (Fioretto, Van Hentenryck 2019): the default by one secure sum of two-way counts, of whole records
or of columns at different owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazily import lazily

if TYPE_CHECKING:
    from comity.methods.synthetic.columns import SyntheticColumns as SyntheticColumns
    from comity.methods.synthetic.method import SyntheticData as SyntheticData

__all__ = ["SyntheticColumns", "SyntheticData"]

_HOMES = {
    "SyntheticColumns": "comity.methods.synthetic.columns",
    "SyntheticData": "comity.methods.synthetic.method",
}
__getattr__, __dir__ = lazily(globals(), _HOMES)

"""Synthetic records (Fioretto, Van Hentenryck 2019): the default by one secure sum of two-way counts, of whole records
or of columns at different owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazily import lazily

if TYPE_CHECKING:
    from comity.protocols.synthetic.columns.protocol import SyntheticColumns as SyntheticColumns
    from comity.protocols.synthetic.protocol import SyntheticData as SyntheticData

__all__ = ["SyntheticColumns", "SyntheticData"]

_HOMES = {
    "SyntheticColumns": "comity.protocols.synthetic.columns.protocol",
    "SyntheticData": "comity.protocols.synthetic.protocol",
}
__getattr__, __dir__ = lazily(globals(), _HOMES)

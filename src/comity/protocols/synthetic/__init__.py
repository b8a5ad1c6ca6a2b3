"""Synthetic records (Fioretto, Van Hentenryck 2019): the default by one secure sum of two-way counts,
of whole records or of columns at different owners."""

from comity.protocols.synthetic.columns.protocol import SyntheticColumns
from comity.protocols.synthetic.protocol import SyntheticData

__all__ = ["SyntheticColumns", "SyntheticData"]

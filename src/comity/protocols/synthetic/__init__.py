"""Synthetic records (Fioretto, Van Hentenryck 2019): the default by one secure sum of two-way counts."""

from comity.protocols.synthetic.protocol import SyntheticData

__all__ = ["SyntheticData"]

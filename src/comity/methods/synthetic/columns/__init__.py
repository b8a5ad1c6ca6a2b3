"""Synthetic records over columns that different owners hold of the same records."""

from comity.methods.synthetic.columns.protocol import SyntheticColumns

__all__ = ["SyntheticColumns"]

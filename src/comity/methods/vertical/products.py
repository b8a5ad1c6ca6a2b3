"""Secure products of the parties' columns of z, and each party's own sums from the very same columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.federation.owner.site import Site
from comity.methods.by_columns.products import ProductsAndOwn
from comity.methods.vertical.dissection import gram
from comity.methods.vertical.layout import Layout

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnProducts(ProductsAndOwn):
    """Products of columns that their owners have forced into their bounds."""

    layout: Layout

    def matrix(self, site: Site, which: slice | NDArray[np.int64] = slice(None)) -> Floats:
        records = site.records
        labels = None if records.labels is None else records.labels[which]
        return self.layout.matrix(Records(records.features[which], labels), site.party)

    def summed(self, matrix: Floats) -> Floats:
        return gram(matrix)

    def digested(self, matrix: Floats) -> NDArray[np.int16]:
        """What is multiplied are integers of 13 bits."""
        return np.rint(matrix * 2.0**self.places).astype(np.int16)

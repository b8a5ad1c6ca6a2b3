"""Secure products of one-hot cells: tables across owners as shares, and each owner's own tables beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.federation.owner.site import Site
from comity.methods.by_columns.products import ProductsAndOwn
from comity.methods.synthetic.columns.holding import Holding

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class CellProducts(ProductsAndOwn):
    """Products of rows that have a one in one cell of each column, because their owners made them so."""

    holding: Holding

    def matrix(self, site: Site, which: slice | NDArray[np.int64] = slice(None)) -> Floats:
        return self.holding.one_hot(site.records.features[which], site.party)

    def summed(self, matrix: Floats) -> Floats:
        """Whole numbers below 2^53, so that blocks of rows add up exactly."""
        return np.asarray(matrix.T @ matrix, np.float64)

    def digested(self, matrix: Floats) -> NDArray[np.uint8]:
        return matrix.astype(np.uint8)

"""Secure products of the parties' columns of z, and each party's own sums from the very same columns."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.errors import Refused
from comity.federation.alignment import ROWS
from comity.federation.product import Products
from comity.federation.site import Site
from comity.protocols.vertical.columns import Columns
from comity.protocols.vertical.dissection import gram

Floats = NDArray[np.float64]

_OWN = "vertical.own"


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnProducts(Products):
    """Products of columns that their owners have forced into their bounds."""

    layout: Columns

    def matrix(self, site: Site) -> Floats:
        order = site.kept(ROWS)
        found = self.layout.matrix(site.records, site.party)
        return found if order is None else found[order]

    def own(self, site: Site) -> Floats:
        """The party's own sums, kept when its columns were first multiplied: never those of other records."""
        found: Floats | None = site.kept(_OWN)
        if found is None:
            raise Refused("own sums come after the products", code="stopped")
        return found

    def _checked(self, site: Site, rows: int) -> Floats:
        """The columns, the same as at the first step: a mask or a secret serves one matrix."""
        found = self.matrix(site)
        if found.shape != (rows, self.columns[site.party]):
            raise Refused("the matrix has another shape than the study agreed on", code="stopped")
        # What is multiplied are integers of 13 bits: their digest is that of the matrix.
        units = np.rint(found * 2.0**self.places).astype(np.int16)
        digest = hashlib.sha256(units.tobytes()).digest()
        before = site.kept("product.digest")
        if before is None:
            site.keep("product.digest", digest)
            site.keep(_OWN, gram(found))
        elif before != digest:
            raise Refused("the records changed during the run", code="stopped")
        return found

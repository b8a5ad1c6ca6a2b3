"""Secure products of the parties' columns of z, and each party's own sums from the very same columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.errors import Refused
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

    def matrix(self, site: Site, which: slice | NDArray[np.int64] = slice(None)) -> Floats:
        records = site.records
        labels = None if records.labels is None else records.labels[which]
        return self.layout.matrix(Records(records.features[which], labels), site.party)

    def own(self, site: Site) -> Floats:
        """The party's own sums, kept when its columns were first multiplied: never those of other records."""
        found: Floats | None = site.kept(_OWN)
        if found is None:
            raise Refused("own sums come after the products", code="stopped")
        return found

    def first_seen(self, site: Site, matrix: Floats) -> None:
        before, own = site.kept(_OWN), gram(matrix)
        site.keep(_OWN, own if before is None else before + own)

    def digested(self, matrix: Floats) -> NDArray[np.int16]:
        """What is multiplied are integers of 13 bits."""
        return np.rint(matrix * 2.0**self.places).astype(np.int16)

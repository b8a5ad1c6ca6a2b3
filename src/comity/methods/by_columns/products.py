"""Secure products of the parties' columns, and each party's own sums from the very same columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.errors import Refused
from comity.federation.owner.site import Site
from comity.federation.subprotocols.product import Products

Floats = NDArray[np.float64]

_OWN = "product.own"


@dataclass(frozen=True, kw_only=True, eq=False)
class ProductsAndOwn(Products):
    """Products whose parties also sum what they hold by themselves, once, when it is first multiplied."""

    def summed(self, matrix: Floats) -> Floats:
        """What one party sums over these rows of its own; adds up over blocks of rows, exactly."""
        raise NotImplementedError(f"{type(self).__name__} sums nothing of its own")

    def own(self, site: Site) -> Floats:
        """The party's own sums, kept when its columns were first multiplied: never those of other records."""
        found: Floats | None = site.kept(_OWN)
        if found is None:
            raise Refused("own sums come after the products", code="stopped")
        return found

    def first_seen(self, site: Site, matrix: Floats) -> None:
        before, own = site.kept(_OWN), self.summed(matrix)
        site.keep(_OWN, own if before is None else before + own)

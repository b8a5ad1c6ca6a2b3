"""Some of a party's records, as a step sums over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.errors import Refused


@dataclass(frozen=True, eq=False)
class Rows:
    """Features (..., n, d) and classes or numbers (..., n) of one block; `present` (..., n) tells records from the
    padding that stacks of simulated parties have."""

    features: NDArray[np.float64]
    given: NDArray[Any] | None
    present: NDArray[np.bool_]

    @property
    def labels(self) -> NDArray[Any]:
        if self.given is None:
            raise Refused("a step asks for labels, and this party holds none", code="stopped")
        return self.given

"""A column of numbers put on its scale in one pass over memory: for blocks of records that stream, where numpy would
make one pass for each operation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled


@compiled
def scale(
    values: NDArray[np.float64],
    place: NDArray[np.float64],
    low: float,
    length: float,
    middle: float,
    root: float,
) -> None:
    """Write ((x − low)/length − middle)/root for every x of `values`, each operation rounded by itself as numpy does,
    so that a block has the bits of the whole."""
    for i in range(values.shape[0]):
        place[i] = ((values[i] - low) / length - middle) / root

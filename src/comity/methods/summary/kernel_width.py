"""The kernel's width where a study names no public records: from the schema alone."""

from __future__ import annotations

from comity.data import Categorical, Encoding


def width_of_schema(encoding: Encoding) -> float:
    """γ = 1 over the mean squared distance of two records whose columns are uniform and independent, each in its own
    range: 1/6 for a number on [0, 1], 2·(1 − 1/c) for one of c categories. A record of a schema's kind is rarely as
    spread out, so that public records of the kind give a better one."""
    apart = 0.0
    for column in encoding.schema.columns:
        apart += 2 * (1 - 1 / column.width) if isinstance(column, Categorical) else 1 / 6
    return 1.0 / max(apart, 1e-9)

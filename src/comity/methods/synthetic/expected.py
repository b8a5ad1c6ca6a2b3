"""How far off tables are by their noise, from public figures: for plans, before anything runs, and for cards."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi, sqrt

from comity.methods.synthetic.layout import Layout


def expected_errors(
    layout: Layout, deviations: Mapping[tuple[int, ...], float], records: float
) -> dict[tuple[int, ...], float]:
    """Total variation that noise of these deviations is expected to bring to each table: half the mean magnitude of a
    normal variable for every cell, over the records; no more than all of them."""
    mean = sqrt(2 / pi) / 2
    return {block.key: min(1.0, mean * block.cells * deviations[block.key] / records) for block in layout.blocks}

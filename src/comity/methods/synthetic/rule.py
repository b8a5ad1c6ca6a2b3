"""Which model the budget carries: one rule from public figures, so that choosing is no release."""

from __future__ import annotations

from math import sqrt

from comity.methods.synthetic.layout import Layout

# Above it the noise of a typical pair covers what the pair would tell. Settled on Adult, credit defaults, bikes, news
# and diabetic retinopathy at three budgets by the method's reference figures; others may want another.
MOST_NOISE = 0.3


def noise_of_pairs(layout: Layout, deviation: float, rows: int) -> float:
    """Deviation of a pair's counts, all cells together, as a share of the records. `deviation` is that of a weighted
    count, `rows` the round figure that the study declares."""
    pairs = [block.cells for block in layout.blocks if block.second is not None]
    if not pairs:
        return 0.0
    return deviation / layout.emphasis.pair * sqrt(sum(pairs) / len(pairs)) / rows


def carries_pairs(layout: Layout, deviation: float, rows: int | None) -> bool:
    """Whether all pairs are counted, for a mixture; else those with the label alone. Without a figure for the records
    there is nothing to say against it."""
    return rows is None or noise_of_pairs(layout, deviation, rows) <= MOST_NOISE

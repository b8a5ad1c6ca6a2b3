"""Which model the budget carries: one rule from public figures, so that choosing is no release."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from comity.protocols.synthetic.layout import PAIR, Layout

# Above it the noise of a typical pair covers what the pair would tell. Settled on Adult, credit defaults, bikes, news
# and diabetic retinopathy at three budgets by the method's reference figures; others may want another.
MOST_NOISE = 0.3
MODELS = ("auto", "mixture", "naive-bayes")


@dataclass(frozen=True)
class Choice:
    """A model, what is counted for it, and the figure that decided."""

    model: str
    layout: Layout
    noise: float


def noise_of_pairs(layout: Layout, deviation: float, rows: int) -> float:
    """Deviation of a pair's counts, all cells together, as a share of the records. `deviation` is that of a weighted
    count, `rows` the round figure that the study declares."""
    pairs = [block.cells for block in layout.blocks if block.second is not None]
    if not pairs:
        return 0.0
    return deviation / PAIR * sqrt(sum(pairs) / len(pairs)) / rows


def choose(layout: Layout, per_unit: float, *, rows: int, model: str = "auto", pure: bool = False) -> Choice:
    """`per_unit` is the deviation of the noise for a sensitivity of one."""
    deviation = per_unit * (layout.l1 if pure else layout.l2)
    noise = noise_of_pairs(layout, deviation, rows)
    chosen = model if model != "auto" else ("naive-bayes" if noise > MOST_NOISE else "mixture")
    if chosen == "naive-bayes":
        layout = Layout(layout.sizes, layout.target, layout.follows, sparse=True)
    return Choice(chosen, layout, noise)

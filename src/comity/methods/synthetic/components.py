"""Values inside a cell follow the row's component, as far as neighbouring cells tell.

A mixture gives each component a probability of every cell and says nothing of the values inside. Were they drawn alike
in all components, a value would tell nothing of the other columns beyond its cell. So what a component has more or less
than others is taken to change steadily from the middle of a cell to that of the next one, by the records between them.
A value that very many records have is a cell with nothing inside: beside it, little of it is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.representation import short_repr

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Rounds that make components and values agree with what each has together; the last moves shares by less than 1 %.
_ROUNDS = 20


@dataclass(frozen=True, eq=False)
class Components:
    """The component of every row, and for each column the probabilities (components, cells) that the mixture fitted."""

    __repr__ = short_repr

    rows: Integers
    columns: Mapping[int, Floats]

    def column(self, place: int) -> Floats | None:
        """None for a column that was drawn from another one."""
        return self.columns.get(place)


def spread_inside(shares: Floats, ordered: int, probabilities: Floats) -> list[tuple[Integers, Floats]]:
    """For each wide cell its narrow cells and the weights (components, narrow) of these. `shares` (wide, narrow) are
    those of all rows, the first `ordered` wide cells have an order. Each component keeps what it has of a wide cell,
    and each narrow cell its share of all rows."""
    mean = probabilities.mean(0)
    known = mean[:ordered] > 0
    # More or less than the others, at the middle of each wide cell, in records from the left.
    ratio = (probabilities[:, :ordered] / np.where(known, mean[:ordered], 1.0))[:, known]
    middles = (np.cumsum(mean[:ordered]) - mean[:ordered] / 2)[known]
    found, before = [], 0.0
    for wide, row in enumerate(shares):
        inside = np.nonzero(row > 0)[0]
        share = row[inside]
        if wide >= ordered or len(inside) < 2 or mean[wide] <= 0:
            found.append((inside, probabilities[:, wide, None] * share))
        else:
            places = before + mean[wide] * (np.cumsum(share) - share / 2)
            weights = _interpolate(places, middles, ratio) * share
            found.append((inside, _balance(weights, probabilities[:, wide], share)))
        before += mean[wide]
    return found


def _interpolate(places: Floats, middles: Floats, ratio: Floats) -> Floats:
    """The ratios (components, places), as at the first or last middle outside of them."""
    right = np.clip(np.searchsorted(middles, places), 1, max(1, len(middles) - 1))
    left = right - 1
    right = np.minimum(right, len(middles) - 1)
    length = middles[right] - middles[left]
    part = np.clip((places - middles[left]) / np.where(length > 0, length, 1.0), 0.0, 1.0)
    return np.asarray(ratio[:, left] * (1 - part) + ratio[:, right] * part)


def _balance(weights: Floats, rows: Floats, share: Floats) -> Floats:
    """Scale rows and columns in turn until they add up to `rows` and to `share` of their sum."""
    for _ in range(_ROUNDS):
        weights = weights * (rows / np.maximum(weights.sum(1), 1e-300))[:, None]
        weights = weights * (share * rows.sum() / np.maximum(weights.sum(0), 1e-300))
    return weights


def draw_between(
    shares: Floats, ordered: int, probabilities: Floats, rows: Integers, codes: Integers, stream: Stream
) -> Integers:
    """A narrow cell for every row, inside its wide cell `codes`, by the row's component."""
    # It comes with compiled functions, which a plan does not need.
    from comity.methods.synthetic.synthesis import draw_systematically

    found = np.zeros(len(codes), np.int64)
    for wide, (inside, weights) in enumerate(spread_inside(shares, ordered, probabilities)):
        here = np.nonzero(codes == wide)[0]
        if len(here):
            found[here] = inside[draw_systematically(weights, rows[here], stream)]
    return found

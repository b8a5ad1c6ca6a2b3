"""A support-vector machine with the hinge loss itself, solved in its dual.

    minimise  P(w) = mean_i max(0, 1 − s_i·w·x_i) + λ|w|²          for signs s_i of −1 and 1

The dual has one variable a_i in [0, 1/n] for each record: w = Σ a_i s_i x_i/(2λ), and D(a) = Σ a_i − λ|w|² is at most
P(w') for every w'. Each step maximises D over one a_i. P(w) − D(a) therefore bounds how far w is from the minimum, and
the solver stops when that is small. Between passes over all records it passes over those alone whose a_i could move
when it was last seen. Records come in a public random order, so the same records give the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled
from comity.entropy import Stream

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

TOLERANCE = 1e-5
"""How far the objective may be above its minimum."""
MAX_PASSES = 3000
# Passes over the records that could move, for each pass over all of them.
_BETWEEN = 20


@dataclass(frozen=True, eq=False)
class HingeFit:
    """Weights, and a bound on how far their objective is above the minimum."""

    weights: Floats
    gap: float


def fit_hinge(
    rows: Floats,
    labels: NDArray[np.int64] | Floats,
    penalty: float,
    *,
    tolerance: float = TOLERANCE,
    passes: int = MAX_PASSES,
) -> HingeFit:
    """Labels are 0 and 1; `penalty` is λ."""
    signs = np.where(np.asarray(labels) > 0, 1.0, -1.0)
    inside = np.ascontiguousarray(rows * signs[:, None], np.float64)
    squares = np.einsum("ij,ij->i", inside, inside)
    dual, weights = np.zeros(len(rows)), np.zeros(rows.shape[1])
    stream, gap, moving = Stream.public("hinge", len(rows)), np.inf, np.ones(len(rows), np.bool_)
    for number in range(passes):
        everyone = number % (_BETWEEN + 1) == 0
        order = np.arange(len(rows)) if everyone else np.flatnonzero(moving)
        _ascend(inside, squares, order[stream.permutation(len(order))], penalty, dual, weights, moving)
        if not everyone:
            continue
        primal = float(np.maximum(0.0, 1.0 - inside @ weights).mean()) + penalty * float(weights @ weights)
        gap = primal - float(dual.sum()) + penalty * float(weights @ weights)
        if gap <= tolerance:
            break
    return HingeFit(weights, gap)


@compiled
def _ascend(
    rows: Floats,
    squares: Floats,
    order: Integers,
    penalty: float,
    dual: Floats,
    weights: Floats,
    moving: NDArray[np.bool_],
) -> None:
    """Maximise over each record's variable in turn; rows are multiplied by their signs."""
    most, width = 1.0 / rows.shape[0], rows.shape[1]
    for at in order:
        if squares[at] <= 0.0:
            # Its loss is 1 for all weights.
            dual[at], moving[at] = most, False
            continue
        margin = 0.0
        for k in range(width):
            margin += rows[at, k] * weights[k]
        moving[at] = not (dual[at] <= 0.0 and margin > 1.0) and not (dual[at] >= most and margin < 1.0)
        moved = min(most, max(0.0, dual[at] + 2.0 * penalty * (1.0 - margin) / squares[at])) - dual[at]
        if moved != 0.0:
            dual[at] += moved
            step = moved / (2.0 * penalty)
            for k in range(width):
                weights[k] += step * rows[at, k]

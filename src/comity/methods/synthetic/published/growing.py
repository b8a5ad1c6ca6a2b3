"""A private tree: the exact scores of each level meet noise once, and the noise of a level costs what one row costs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from comity.methods.synthetic.published.shape import Shape
from comity.methods.synthetic.published.tree import (
    Boxes,
    Tree,
    below,
    candidates,
    chosen_thresholds,
    class_counts,
    routed,
    scores,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

Choose = Callable[[int, Integers], Integers]
"""By the number of a level and the scores of its rows, the chosen candidate of each row."""
Noise = Callable[[Integers], Integers]
"""The noisy counts of the leaves, from the exact ones."""


def grown(shape: Shape, values: Floats, labels: Integers, classes: int, *, choose: Choose, noise: Noise) -> Tree:
    """The tree of these records. `choose` is asked once for each level that splits a number anywhere, for all of its
    nodes together, whether they hold records or not; `noise` once, for all leaves.

    What it may be told of the records are scores and counts, through these two, so that their losses add up to that of
    the tree: whatever else it uses is public or came out of them.
    """
    numeric = np.array([one.numeric for one in shape.attributes])
    at, boxes, thresholds = np.zeros(len(values), np.int64), Boxes.root(len(shape.attributes)), []
    for number, level in enumerate(shape.levels):
        offered = candidates(level, boxes)
        chosen = np.zeros(0, np.int64)
        if len(offered):
            chosen = choose(number, scores(level, offered, values, labels, at, classes))
        thresholds.append(chosen_thresholds(level, offered, chosen))
        at = routed(level, numeric, thresholds[-1], values, at)
        if number + 1 < len(shape.levels):
            boxes = below(level, thresholds[-1], boxes)
    return Tree(shape, tuple(thresholds), noise(class_counts(at, labels, shape.leaves, classes)))

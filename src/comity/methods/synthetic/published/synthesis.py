"""Records from a tree: sizes of its leaves made consistent, records uniform in their boxes, labels by vote.

All of it is made from noisy values and public chance; it costs nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.methods.synthetic.published.consistency import consistent
from comity.methods.synthetic.published.shape import Shape
from comity.methods.synthetic.published.tree import Tree

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def leaf_masses(tree: Tree, counts: Integers, levels: int) -> Floats:
    """The size of each leaf that is consistent with the noisy counts of the first `levels` levels and of the leaves.

    Leaves hang directly below the last level that was counted, as published.
    """
    shape, place, noisy, parents = tree.shape, 0, [], []
    for number in range(levels):
        width = shape.levels[number].nodes
        noisy.append(counts[place : place + width].astype(np.float64))
        place += width
        if number + 1 < levels:
            parents.append(shape.levels[number].parent)
    noisy.append(tree.counts.sum(axis=1).astype(np.float64))
    parents.append(shape.above_leaves(levels - 1))
    return np.asarray(consistent(noisy, parents)[-1], np.float64)


def noisy_masses(tree: Tree) -> Floats:
    """The noisy size of each leaf as it is, nothing below zero: what the published comparison without least squares
    takes. Noise that is cut off below adds up to far more records than there are."""
    return np.asarray(np.maximum(0.0, tree.counts.sum(axis=1)), np.float64)


def whole(masses: Floats, stream: Stream) -> Integers:
    """Whole sizes whose running sums are within one of the masses': systematic rounding, so that leaves of a tenth of a
    record each are not all rounded to none."""
    edges = np.floor(np.concatenate([[0.0], np.cumsum(masses)]) + float(stream.uniform()))
    return np.diff(edges).astype(np.int64)


def records(tree: Tree, sizes: Integers, stream: Stream) -> Floats:
    """As many records as each leaf's size, one number for each attribute: numbers uniform in the leaf's box, categories
    as its path says; attributes that the path did not split are uniform over their domain."""
    return in_leaves(tree.shape, tree.thresholds, np.repeat(np.arange(tree.shape.leaves), sizes), stream)


def in_leaves(shape: Shape, thresholds: tuple[Floats, ...], leaves: Integers, stream: Stream) -> Floats:
    count = len(leaves)
    low, high = np.zeros((count, len(shape.attributes))), np.ones((count, len(shape.attributes)))
    fixed = np.full((count, len(shape.attributes)), -1)
    every, place = np.arange(count), leaves
    numeric = np.array([one.numeric for one in shape.attributes])
    for level, chosen in zip(reversed(shape.levels), reversed(thresholds)):
        node = level.parent[place]
        attribute, child = level.attribute[node], place - level.first[node]
        splits = attribute >= 0
        number = splits & numeric[attribute]
        left, right = every[number & (child == 0)], every[number & (child == 1)]
        high[left, attribute[left]] = np.minimum(high[left, attribute[left]], chosen[node[left]])
        low[right, attribute[right]] = np.maximum(low[right, attribute[right]], chosen[node[right]])
        named = every[splits & ~number]
        fixed[named, attribute[named]] = child[named]
        place = node
    share = stream.uniform((count, len(shape.attributes)))
    # Rounding leads to no higher than the largest number below the end of the interval.
    out = np.minimum(low + share * (high - low), np.maximum(low, np.nextafter(high, 0.0)))
    for at, one in enumerate(shape.attributes):
        if not one.numeric:
            drawn = np.minimum(np.floor(share[:, at] * one.values), one.values - 1)
            out[:, at] = np.where(fixed[:, at] >= 0, fixed[:, at], drawn)
    return np.asarray(out, np.float64)


def voted(trees: Iterable[Tree], values: Floats, classes: int) -> Integers:
    """The class that most trees give each record, the first of several."""
    votes = np.zeros((len(values), classes), np.int64)
    every = np.arange(len(values))
    for tree in trees:
        votes[every, tree.predict(values)] += 1
    return np.asarray(votes.argmax(axis=1), np.int64)

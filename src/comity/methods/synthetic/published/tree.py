"""Growing a tree on its public shape, a level at a time: candidates, their scores, and where records go.

The functions here are exact; noise is drawn by whoever calls them. For each node that splits a number,

    u(v) = largest class count among records below v  +  largest class count among the others

Sensitivity of u: a record that comes or goes changes one class count on one side by one, and hence the larger of that
side by at most one; the other side stays. So each candidate's score moves by at most 1, all of them in the same
direction: up when a record comes, down when one goes (`monotone`). A record is in one node of a level, so that it moves
the scores of one row. One that is replaced left and came: two steps, in at most two rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled
from comity.methods.synthetic.published.shape import Level, Shape

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Boxes:
    """What is public of the nodes of a level: for each, the interval of every number, (nodes, attributes)."""

    low: Floats
    high: Floats

    @classmethod
    def root(cls, attributes: int) -> Boxes:
        return cls(np.zeros((1, attributes)), np.ones((1, attributes)))


def candidates(level: Level, boxes: Boxes) -> Floats:
    """Thresholds that each node splitting a number may choose, inside its interval: (numbers, candidates)."""
    low = boxes.low[level.numbers, level.attribute[level.numbers]][:, None]
    high = boxes.high[level.numbers, level.attribute[level.numbers]][:, None]
    return np.asarray(low + level.shares * (high - low), np.float64)


def scores(level: Level, offered: Floats, values: Floats, labels: Integers, at: Integers, classes: int) -> Integers:
    """u of every candidate, (numbers, candidates); `at` is the node that each record is in."""
    out = np.zeros(offered.shape, np.int64)
    row = np.full(level.nodes, -1)
    row[level.numbers] = np.arange(len(level.numbers))
    here = row[at]
    inside = np.flatnonzero(here >= 0)
    order = inside[np.argsort(here[inside], kind="stable")]
    _score(here[order], values[order, level.attribute[at[order]]], labels[order], offered, classes, out)
    return out


@compiled
def _score(row: Integers, values: Floats, labels: Integers, offered: Floats, classes: int, out: Integers) -> None:
    count = offered.shape[1]
    below, above = np.zeros((count, classes), np.int64), np.zeros((count, classes), np.int64)
    start = 0
    while start < row.shape[0]:
        here = row[start]
        below[:] = 0
        above[:] = 0
        stop = start
        while stop < row.shape[0] and row[stop] == here:
            for k in range(count):
                if values[stop] < offered[here, k]:
                    below[k, labels[stop]] += 1
                else:
                    above[k, labels[stop]] += 1
            stop += 1
        for k in range(count):
            out[here, k] = below[k].max() + above[k].max()
        start = stop


def chosen_thresholds(level: Level, offered: Floats, chosen: Integers) -> Floats:
    """The threshold of every node of the level; 0 where none is needed."""
    out = np.zeros(level.nodes)
    if len(level.numbers):
        out[level.numbers] = offered[np.arange(len(offered)), chosen]
    return out


def below(level: Level, thresholds: Floats, boxes: Boxes) -> Boxes:
    """The intervals of the next level's nodes."""
    low, high = boxes.low[level.parent], boxes.high[level.parent]
    first, at = level.first[level.numbers], level.attribute[level.numbers]
    high[first, at] = thresholds[level.numbers]
    low[first + 1, at] = thresholds[level.numbers]
    return Boxes(low, high)


def routed(level: Level, numeric: NDArray[np.bool_], thresholds: Floats, values: Floats, at: Integers) -> Integers:
    """The node of the next level that each record goes to: left of its threshold strictly, or by its category."""
    out = np.empty(len(at), np.int64)
    _route(level.attribute, level.first, numeric, thresholds, values, at, out)
    return out


@compiled
def _route(
    attribute: Integers,
    first: Integers,
    numeric: NDArray[np.bool_],
    thresholds: Floats,
    values: Floats,
    at: Integers,
    out: Integers,
) -> None:
    for i in range(at.shape[0]):
        node = at[i]
        a = attribute[node]
        if a < 0:
            out[i] = first[node]
        elif numeric[a]:
            out[i] = first[node] + (1 if values[i, a] >= thresholds[node] else 0)
        else:
            out[i] = first[node] + int(values[i, a])


def class_counts(at: Integers, labels: Integers, leaves: int, classes: int) -> Integers:
    """How many records of each class are in each leaf.

    Sensitivity  one histogram: 1 in L1 for a record that comes or goes, 2 for one that is replaced.
    """
    return np.bincount(at * classes + labels, minlength=leaves * classes).reshape(leaves, classes).astype(np.int64)


def level_counts(shape: Shape, path: tuple[Integers, ...], levels: int) -> Integers:
    """How many records are in each node of the first `levels` levels, one after the other; `path` says in which node of
    each level every record is.

    Sensitivity  a histogram for each level: `levels` in L1 for a record that comes or goes. One that is replaced leaves
                 the root's count as it is and moves every other level by 2.
    """
    sizes = [level.nodes for level in shape.levels[:levels]]
    return np.concatenate([np.bincount(path[k], minlength=size) for k, size in enumerate(sizes)]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Tree:
    """A grown tree: the thresholds of each level, and the noisy count of each class in each leaf."""

    shape: Shape
    thresholds: tuple[Floats, ...]
    counts: Integers

    @property
    def labels(self) -> Integers:
        """The class of each leaf: that of the largest noisy count, the first of several."""
        return np.asarray(self.counts.argmax(axis=1), np.int64)

    @property
    def boxes(self) -> Boxes:
        """The intervals of the leaves."""
        boxes = Boxes.root(len(self.shape.attributes))
        for level, thresholds in zip(self.shape.levels, self.thresholds):
            boxes = below(level, thresholds, boxes)
        return boxes

    def path(self, values: Floats) -> tuple[Integers, ...]:
        """The node of every level that each record is in; the last is its leaf."""
        numeric = np.array([one.numeric for one in self.shape.attributes])
        found = [np.zeros(len(values), np.int64)]
        for level, thresholds in zip(self.shape.levels, self.thresholds):
            found.append(routed(level, numeric, thresholds, values, found[-1]))
        return tuple(found)

    def predict(self, values: Floats) -> Integers:
        return self.labels[self.path(values)[-1]]

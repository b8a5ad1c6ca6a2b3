"""A private tree: attributes of the schema, a public shape, exact scores and counts that meet noise once.

Attributes, shape and candidates come from the schema and public randomness. A range, a category or a bucket that was
looked up in the records would tell two neighbours apart with certainty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled
from comity.data import Bounded, Classes, Encoding, Schema, Target
from comity.entropy import Stream
from comity.errors import StudyError

# Attributes: the columns of the schema as numbers on [0, 1] and as categories, and back to encoded rows.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BUCKETS = 10
"""The number of classes of equal length that a numeric target is divided into, as published."""


@dataclass(frozen=True)
class Attribute:
    """Entries of an encoded row from `place` on: a number on [0, 1], or one of `values` categories, one-hot or as a
    `flag` in a single entry."""

    name: str
    place: int
    values: int = 0
    flag: bool = False

    @property
    def numeric(self) -> bool:
        return self.values == 0


@dataclass(frozen=True)
class Attributes:
    """The attributes of a schema in order, and the classes of its target.

    Records are rows with one number for each attribute: a number on [0, 1], or the index of a category. A number whose
    missing values are a cell is two attributes: the number, 0 where it is missing, and whether it is missing. A date is
    the number of its steps.
    """

    schema: Schema

    def __post_init__(self) -> None:
        if self.schema.target is None:
            raise StudyError(
                "synthetic.variant = published labels what it shares; declare [target] in the schema", key="target"
            )
        if not self.all:
            raise StudyError("synthetic.variant = published needs a column to split on, found none", key="columns")

    @cached_property
    def encoding(self) -> Encoding:
        # Synthetic records have no identifiers.
        return Encoding(replace(self.schema, identifier=None), scaling="unit", rows="none", intercept=True)

    @cached_property
    def all(self) -> tuple[Attribute, ...]:
        found: list[Attribute] = []
        for group in self.encoding.bounds.groups:
            if group.column == "(intercept)":
                continue
            if group.one_hot:
                found.append(Attribute(group.column, group.start, group.stop - group.start))
                continue
            found.append(Attribute(group.column, group.start))
            if group.stop == group.start + 2:
                found.append(Attribute(f"{group.column}=(missing)", group.start + 1, 2, flag=True))
        return tuple(found)

    @property
    def classes(self) -> int:
        target = self.schema.target
        return len(target.values) if isinstance(target, Classes) else BUCKETS

    def values(self, rows: Floats) -> Floats:
        """Encoded rows (n, width) as one number for each attribute."""
        out = np.empty((len(rows), len(self.all)))
        for place, one in enumerate(self.all):
            if one.numeric:
                out[:, place] = np.clip(np.nan_to_num(rows[:, one.place]), 0.0, 1.0)
            elif one.flag:
                out[:, place] = rows[:, one.place] > 0.5
            else:
                out[:, place] = rows[:, one.place : one.place + one.values].argmax(axis=1)
        return out

    def rows(self, values: Floats) -> Floats:
        """The inverse of `values`: encoded rows, with the intercept."""
        out = np.zeros((len(values), self.encoding.width))
        every = np.arange(len(values))
        for place, one in enumerate(self.all):
            if one.numeric:
                out[:, one.place] = values[:, place]
            elif one.flag:
                out[:, one.place] = values[:, place]
                out[values[:, place] > 0.5, one.place - 1] = 0.0
            else:
                out[every, one.place + values[:, place].astype(np.int64)] = 1.0
        out[:, -1] = 1.0
        return out

    def labels(self, target: NDArray[np.int64] | Floats) -> Integers:
        """The class of each record, or the bucket of the target's public range that holds its number."""
        found = self.schema.target
        if not isinstance(found, Bounded):
            return np.clip(np.asarray(target, np.int64), 0, self.classes - 1)
        share = np.nan_to_num((np.asarray(target, np.float64) - found.low) / (found.high - found.low))
        return np.clip(np.floor(share * BUCKETS), 0, BUCKETS - 1).astype(np.int64)


def draw_targets(target: Target, labels: Integers, stream: Stream) -> Integers | Floats:
    """Classes as they are; for a number, a uniform draw inside the bucket by public randomness."""
    if not isinstance(target, Bounded):
        return labels
    share = (labels + stream.uniform(len(labels))) / BUCKETS
    return np.asarray(target.low + share * (target.high - target.low), np.float64)


# The public shape: which attribute each node splits on, and how many children it has. No record is read.
#
# Each node draws its attribute uniformly among those that its path has left. A categorical attribute is then spent on
# that path; a number may come again. A categorical attribute has a child for each of its values, a number has two. Only
# the thresholds of numbers are private. Their candidates are drawn here too, as shares of the node's interval.
#
# The width of a level is capped by a rule that reads no record: nodes split in a public random order until the next
# level would be too wide; the others pass their records to one child. So does a node whose path has no attribute left.
# Nodes without records are split like all others: a tree that stops at empty nodes would reveal them.

PASS_THROUGH = -1
"""The attribute of a node that passes its records through to its only child."""


@dataclass(frozen=True, eq=False)
class Level:
    """Nodes of one level: the attribute of each, its first child in the next level, each child's parent; the nodes that
    split a number, and their candidates as shares of the node's interval."""

    attribute: Integers
    first: Integers
    parent: Integers
    numbers: Integers
    shares: Floats

    @property
    def nodes(self) -> int:
        return len(self.attribute)

    @property
    def children(self) -> int:
        return len(self.parent)


@dataclass(frozen=True, eq=False)
class Shape:
    """`levels` are the split levels from the root on; the children of the last are the leaves."""

    attributes: tuple[Attribute, ...]
    levels: tuple[Level, ...]

    @property
    def leaves(self) -> int:
        return self.levels[-1].children

    @property
    def depth(self) -> int:
        """Levels of the tree, including the leaves."""
        return len(self.levels) + 1

    @property
    def choices(self) -> tuple[int, ...]:
        """The number of thresholds that each level chooses."""
        return tuple(len(level.numbers) for level in self.levels)

    def above_leaves(self, level: int) -> Integers:
        """The index, in this level, of the node above each leaf."""
        found = np.arange(self.leaves)
        for split in reversed(self.levels[level:]):
            found = split.parent[found]
        return found


def draw_shape(attributes: tuple[Attribute, ...], *, depth: int, candidates: int, leaves: int, stream: Stream) -> Shape:
    """A shape from a public stream."""
    if depth < 2 or candidates < 1 or leaves < 1:
        raise StudyError(
            f"synthetic: expected a depth of at least 2 and at least one candidate and leaf, found {depth}, "
            f"{candidates} and {leaves}",
            key="synthetic.depth",
        )
    width = np.array([2 if one.numeric else one.values for one in attributes])
    spent = np.array([not one.numeric for one in attributes])
    left, levels = np.ones((1, len(attributes)), np.bool_), []
    for _ in range(depth - 1):
        level = _draw_level(left, width, spent, candidates, leaves, stream)
        levels.append(level)
        used, splits = left.copy(), level.attribute >= 0
        places = np.flatnonzero(splits)
        places = places[spent[level.attribute[places]]]
        used[places, level.attribute[places]] = False
        left = used[level.parent]
    return Shape(attributes, tuple(levels))


def _draw_level(
    left: NDArray[np.bool_], width: Integers, spent: NDArray[np.bool_], candidates: int, most: int, stream: Stream
) -> Level:
    nodes, count = len(left), left.sum(axis=1)
    # The k-th attribute that is left.
    rank = np.floor(stream.uniform(nodes) * count).astype(np.int64)
    attribute = (np.cumsum(left, axis=1) <= rank[:, None]).sum(axis=1)
    attribute[count == 0] = PASS_THROUGH
    children = np.where(attribute >= 0, width[attribute], 1)
    order = stream.permutation(nodes)
    late = order[np.cumsum(children[order] - 1) > max(0, most - nodes)]
    attribute[late], children[late] = PASS_THROUGH, 1
    numbers = np.flatnonzero((attribute >= 0) & ~spent[attribute])
    return Level(
        attribute=attribute,
        first=np.concatenate([[0], np.cumsum(children)[:-1]]),
        parent=np.repeat(np.arange(nodes), children),
        numbers=numbers,
        shares=stream.uniform((len(numbers), candidates)),
    )


# Growing the tree on its shape, level by level.
#
# The functions are exact; their caller draws the noise. For each node that splits a number,
#
#     u(v) = largest class count among records below v  +  largest class count among the others
#
# Sensitivity of u: adding or removing a record changes one class count on one side by one, so the largest count of that
# side moves by at most one and the other side stays. Each candidate's score moves by at most 1, all in one direction:
# up for an added record, down for a removed one (`monotone`). A record lies in one node of a level and moves the scores
# of one row. Replacing is removing and adding: two steps, in at most two rows.


@dataclass(frozen=True, eq=False)
class Boxes:
    """The public intervals of every number in the nodes of a level, (nodes, attributes)."""

    low: Floats
    high: Floats

    @classmethod
    def root(cls, attributes: int) -> Boxes:
        return cls(np.zeros((1, attributes)), np.ones((1, attributes)))


def offer_candidates(level: Level, boxes: Boxes) -> Floats:
    """Candidate thresholds inside the interval of each node that splits a number: (numbers, candidates)."""
    low = boxes.low[level.numbers, level.attribute[level.numbers]][:, None]
    high = boxes.high[level.numbers, level.attribute[level.numbers]][:, None]
    return np.asarray(low + level.shares * (high - low), np.float64)


def score_candidates(
    level: Level, offered: Floats, values: Floats, labels: Integers, at: Integers, classes: int
) -> Integers:
    """u of every candidate, (numbers, candidates); `at` is the node of each record."""
    out = np.zeros(offered.shape, np.int64)
    row = np.full(level.nodes, -1)
    row[level.numbers] = np.arange(len(level.numbers))
    here = row[at]
    inside = np.flatnonzero(here >= 0)
    order = inside[np.argsort(here[inside], kind="stable")]
    _score_nodes(here[order], values[order, level.attribute[at[order]]], labels[order], offered, classes, out)
    return out


@compiled
def _score_nodes(row: Integers, values: Floats, labels: Integers, offered: Floats, classes: int, out: Integers) -> None:
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


def place_thresholds(level: Level, offered: Floats, chosen: Integers) -> Floats:
    """The threshold of every node of the level; 0 for nodes without one."""
    out = np.zeros(level.nodes)
    if len(level.numbers):
        out[level.numbers] = offered[np.arange(len(offered)), chosen]
    return out


def split_boxes(level: Level, thresholds: Floats, boxes: Boxes) -> Boxes:
    """The intervals of the next level's nodes."""
    low, high = boxes.low[level.parent], boxes.high[level.parent]
    first, at = level.first[level.numbers], level.attribute[level.numbers]
    high[first, at] = thresholds[level.numbers]
    low[first + 1, at] = thresholds[level.numbers]
    return Boxes(low, high)


def route(level: Level, numeric: NDArray[np.bool_], thresholds: Floats, values: Floats, at: Integers) -> Integers:
    """The node of the next level for each record: left if strictly below the threshold, or by its category."""
    out = np.empty(len(at), np.int64)
    _route_records(level.attribute, level.first, numeric, thresholds, values, at, out)
    return out


@compiled
def _route_records(
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


def count_classes(at: Integers, labels: Integers, leaves: int, classes: int) -> Integers:
    """Count the records of each class in each leaf.

    Sensitivity  one histogram: 1 in L1 for a record that is added or removed, 2 for one that is replaced.
    """
    return np.bincount(at * classes + labels, minlength=leaves * classes).reshape(leaves, classes).astype(np.int64)


def count_levels(shape: Shape, path: tuple[Integers, ...], levels: int) -> Integers:
    """Count the records in each node of the first `levels` levels, concatenated; `path` gives the node of every record
    in each level.

    Sensitivity  a histogram for each level: `levels` in L1 for a record that is added or removed. A replaced record
                 leaves the root's count and moves every other level by 2.
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
        """The class of each leaf: the one with the largest noisy count; the first of equals."""
        return np.asarray(self.counts.argmax(axis=1), np.int64)

    @property
    def boxes(self) -> Boxes:
        """The intervals of the leaves."""
        boxes = Boxes.root(len(self.shape.attributes))
        for level, thresholds in zip(self.shape.levels, self.thresholds):
            boxes = split_boxes(level, thresholds, boxes)
        return boxes

    def path(self, values: Floats) -> tuple[Integers, ...]:
        """The node of each record in every level; the last is its leaf."""
        numeric = np.array([one.numeric for one in self.shape.attributes])
        found = [np.zeros(len(values), np.int64)]
        for level, thresholds in zip(self.shape.levels, self.thresholds):
            found.append(route(level, numeric, thresholds, values, found[-1]))
        return tuple(found)

    def predict(self, values: Floats) -> Integers:
        return self.labels[self.path(values)[-1]]


Choose = Callable[[int, Integers], Integers]
"""Takes the number of a level and the scores of its rows; returns the chosen candidate of each row."""
Noise = Callable[[Integers], Integers]
"""Takes the exact counts of the leaves; returns the noisy ones."""


def grow_tree(shape: Shape, values: Floats, labels: Integers, classes: int, *, choose: Choose, noise: Noise) -> Tree:
    """Grow the tree of these records.

    `choose` is called once for each level that splits a number, for all of its nodes together, empty or not; `noise`
    once, for all leaves. Records enter the tree through these two calls alone, so their losses add up to the loss of
    the tree. Everything else is public or came out of them.
    """
    numeric = np.array([one.numeric for one in shape.attributes])
    at, boxes, thresholds = np.zeros(len(values), np.int64), Boxes.root(len(shape.attributes)), []
    for number, level in enumerate(shape.levels):
        offered = offer_candidates(level, boxes)
        chosen = np.zeros(0, np.int64)
        if len(offered):
            chosen = choose(number, score_candidates(level, offered, values, labels, at, classes))
        thresholds.append(place_thresholds(level, offered, chosen))
        at = route(level, numeric, thresholds[-1], values, at)
        if number + 1 < len(shape.levels):
            boxes = split_boxes(level, thresholds[-1], boxes)
    return Tree(shape, tuple(thresholds), noise(count_classes(at, labels, shape.leaves, classes)))

"""The public shape of a tree: which attribute each node splits on and how many children it has. No record is read.

Each node draws its attribute uniformly among those that its path has left; a categorical one is then spent on that
path, a number may come again. A categorical attribute has a child for each of its values, a number has two. What is
private of a tree is where its numbers are split: each such node carries the candidates as shares of its interval, drawn
here too.

The number of nodes of a level is capped by a rule that sees no record: nodes split in a public random order until the
next level would be too wide, and those that are left pass their records through to one child. So does a node whose path
has no attribute left. Nodes without records are split like all others: a tree that stops where nobody is tells so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.errors import StudyError
from comity.methods.synthetic.published.attributes import Attribute

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PASSES = -1
"""The attribute of a node that passes its records through to its only child."""


@dataclass(frozen=True, eq=False)
class Level:
    """Nodes that are split: the attribute of each, its first child in the next level, each child's parent; which nodes
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
    """`levels` are those that are split, from the root on; the children of the last are the leaves."""

    attributes: tuple[Attribute, ...]
    levels: tuple[Level, ...]

    @property
    def leaves(self) -> int:
        return self.levels[-1].children

    @property
    def depth(self) -> int:
        """Levels of the tree, that of the leaves included."""
        return len(self.levels) + 1

    @property
    def choices(self) -> tuple[int, ...]:
        """How many thresholds each level chooses."""
        return tuple(len(level.numbers) for level in self.levels)

    def above_leaves(self, level: int) -> Integers:
        """The place, in this level, of the node that each leaf lies below."""
        found = np.arange(self.leaves)
        for split in reversed(self.levels[level:]):
            found = split.parent[found]
        return found


def drawn(attributes: tuple[Attribute, ...], *, depth: int, candidates: int, leaves: int, stream: Stream) -> Shape:
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
        level = _level(left, width, spent, candidates, leaves, stream)
        levels.append(level)
        used, splits = left.copy(), level.attribute >= 0
        places = np.flatnonzero(splits)
        places = places[spent[level.attribute[places]]]
        used[places, level.attribute[places]] = False
        left = used[level.parent]
    return Shape(attributes, tuple(levels))


def _level(
    left: NDArray[np.bool_], width: Integers, spent: NDArray[np.bool_], candidates: int, most: int, stream: Stream
) -> Level:
    nodes, count = len(left), left.sum(axis=1)
    # The k-th of those that are left.
    rank = np.floor(stream.uniform(nodes) * count).astype(np.int64)
    attribute = (np.cumsum(left, axis=1) <= rank[:, None]).sum(axis=1)
    attribute[count == 0] = PASSES
    children = np.where(attribute >= 0, width[attribute], 1)
    order = stream.permutation(nodes)
    late = order[np.cumsum(children[order] - 1) > max(0, most - nodes)]
    attribute[late], children[late] = PASSES, 1
    numbers = np.flatnonzero((attribute >= 0) & ~spent[attribute])
    return Level(
        attribute=attribute,
        first=np.concatenate([[0], np.cumsum(children)[:-1]]),
        parent=np.repeat(np.arange(nodes), children),
        numbers=numbers,
        shares=stream.uniform((len(numbers), candidates)),
    )

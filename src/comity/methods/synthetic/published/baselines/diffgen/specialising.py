"""Top-down specialisation: records begin in one part for everything, and parts of single attributes are split.

Every attribute has a cut: parts that cover its domain, intervals of a number or groups of categories. All combinations
of parts are the leaves. A specialisation replaces one part, wherever it occurs, by the parts below it: two intervals,
or the groups below its group. The functions here are exact; their caller draws the noise. Scores

    of a part that may be specialised     u = Σ over the parts below it of the largest class count among their records
    of a place where to split a number    the same, for the two intervals that it would make

Sensitivity: an added record raises one class count of one part below by one, hence u by 0 or 1, and no score falls:
1, monotone. A record has one part of each attribute, so it may move one score of each attribute, all upwards.

The parts and the number of leaves follow from choices that were released; intervals and groups come from the schema,
candidates from a public stream. A specialisation that would make more leaves than `leaves` is not offered; no record
decides that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.methods.synthetic.published.baselines.diffgen.taxonomy import Group, Taxonomy

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

Choose = Callable[[Integers], Integers]
"""The chosen place of each row of scores; rows of one call are about different records."""
Noise = Callable[[Integers], Integers]
"""The noisy class counts of the leaves, from the exact ones."""


@dataclass(frozen=True)
class Interval:
    """Part of a number, low <= x < high (the last one holds 1), and where it is split if it is."""

    low: float
    high: float
    split: float = 0.0


Part = Interval | Group
Cut = tuple[tuple[Part, ...], ...]


@dataclass(frozen=True, eq=False)
class Generalised:
    """The cuts that were chosen, and the noisy class counts of all combinations of their parts, (leaves, classes)."""

    cuts: Cut
    counts: Integers

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(parts) for parts in self.cuts)


def below(part: Part) -> tuple[Part, ...]:
    """What takes a part's place when it is specialised; nothing for a single category."""
    if isinstance(part, Group):
        return part.below
    return Interval(part.low, part.split), Interval(part.split, part.high)


def inside(part: Part, values: Floats) -> NDArray[np.bool_]:
    """Which values of its attribute lie in a part."""
    if isinstance(part, Group):
        return np.isin(values, part.values)
    return np.asarray((values >= part.low) & ((values < part.high) | (part.high >= 1.0)))


def utility(parts: tuple[Part, ...], values: Floats, labels: Integers, classes: int) -> int:
    """Σ over parts of the largest class count among the records in each."""
    counts = (np.bincount(labels[inside(part, values)], minlength=classes) for part in parts)
    return int(sum(one.max() for one in counts))


def generalise(
    taxonomy: Taxonomy,
    values: Floats,
    labels: Integers,
    classes: int,
    *,
    specialisations: int,
    candidates: int,
    leaves: int,
    stream: Stream,
    choose: Choose,
    noise: Noise,
) -> Generalised:
    """The records (n, attributes) of these labels, generalised by `specialisations` choices.

    `choose` is called once for the first split of each number, once for each specialisation and once more where that
    made intervals; `noise` once, for all leaves, empty or not. Records enter through these two calls alone.
    """

    def split(intervals: list[Interval], attribute: int) -> list[Interval]:
        offered = np.array([one.low + stream.uniform(candidates) * (one.high - one.low) for one in intervals])
        scores = [
            [_cut_at(one, place, values[:, attribute], labels, classes) for place in places]
            for one, places in zip(intervals, offered)
        ]
        chosen = choose(np.array(scores, np.int64))
        return [
            Interval(one.low, one.high, float(offered[row, at])) for row, (one, at) in enumerate(zip(intervals, chosen))
        ]

    cuts: list[tuple[Part, ...]] = []
    for attribute, root in enumerate(taxonomy.roots):
        cuts.append(tuple(split([Interval(0.0, 1.0)], attribute)) if root is None else (root,))
    for _ in range(specialisations):
        open_ones = _offered(cuts, leaves)
        if not open_ones:
            break
        scores = [utility(below(cuts[a][k]), values[:, a], labels, classes) for a, k in open_ones]
        attribute, place = open_ones[int(choose(np.array([scores], np.int64))[0])]
        parts = below(cuts[attribute][place])
        halves = [one for one in parts if isinstance(one, Interval)]
        made: tuple[Part, ...] = tuple(split(halves, attribute)) if halves else parts
        cuts[attribute] = (*cuts[attribute][:place], *made, *cuts[attribute][place + 1 :])
    counts = np.bincount(leaf_of(tuple(cuts), values) * classes + labels, minlength=_leaves(cuts) * classes)
    return Generalised(tuple(cuts), noise(counts.reshape(-1, classes).astype(np.int64)))


def leaf_of(cuts: Cut, values: Floats) -> Integers:
    """The combination of parts that each record is in, the last attribute's part counting fastest."""
    leaf = np.zeros(len(values), np.int64)
    for attribute, parts in enumerate(cuts):
        place = np.zeros(len(values), np.int64)
        for at, part in enumerate(parts):
            place[inside(part, values[:, attribute])] = at
        leaf = leaf * len(parts) + place
    return leaf


def draw_generalised(found: Generalised, stream: Stream) -> tuple[Floats, Integers]:
    """As many records of each class as each leaf's noisy count says, none where it is negative; values are uniform in
    their parts. Noise that is clipped at zero adds up to far more records than there are."""
    sizes = np.maximum(0, found.counts)
    leaf = np.repeat(np.arange(len(sizes)), sizes.sum(axis=1))
    labels = np.repeat(np.tile(np.arange(sizes.shape[1]), len(sizes)), sizes.reshape(-1))
    share, values = stream.uniform((len(leaf), len(found.cuts))), np.zeros((len(leaf), len(found.cuts)))
    for attribute in range(len(found.cuts) - 1, -1, -1):
        parts = found.cuts[attribute]
        leaf, place = np.divmod(leaf, len(parts))
        for at, part in enumerate(parts):
            here = place == at
            values[here, attribute] = _uniform(part, share[here, attribute])
    return values, labels.astype(np.int64)


def _uniform(part: Part, share: Floats) -> Floats:
    if isinstance(part, Group):
        at = np.minimum(np.floor(share * len(part.values)), len(part.values) - 1).astype(np.int64)
        return np.array(part.values, np.float64)[at]
    return np.minimum(part.low + share * (part.high - part.low), np.nextafter(part.high, part.low))


def _cut_at(part: Interval, place: float, values: Floats, labels: Integers, classes: int) -> int:
    return utility(below(Interval(part.low, part.high, float(place))), values, labels, classes)


def _offered(cuts: list[tuple[Part, ...]], most: int) -> list[tuple[int, int]]:
    """Parts that have others below them and room for these, as (attribute, place)."""
    leaves = _leaves(cuts)
    return [
        (attribute, place)
        for attribute, parts in enumerate(cuts)
        for place, part in enumerate(parts)
        if below(part) and leaves // len(parts) * (len(parts) - 1 + len(below(part))) <= most
    ]


def _leaves(cuts: list[tuple[Part, ...]]) -> int:
    return prod(len(parts) for parts in cuts)

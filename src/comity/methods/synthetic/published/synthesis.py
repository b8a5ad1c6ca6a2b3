"""Records from a tree: leaf sizes made consistent, records uniform in their boxes, labels by vote.

Everything here reads noisy values and public randomness; it costs nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled
from comity.data import Bounded, Categorical, Classes, Column, Date, Ordinal
from comity.data.schemas.columns import OTHER_NAME
from comity.entropy import Stream
from comity.errors import DataError
from comity.methods.synthetic.published.tree import Attributes, Shape, Tree

if TYPE_CHECKING:
    import pandas as pd

# Consistent counts: parents equal the sums of their children, and nothing is negative.
#
#     minimise  Σ_k w_k Σ_j (x_kj − c_kj)²     with  x_kj = Σ x of its children  and  x >= 0
#
# over the nodes j of the levels k. Only the leaves need the sign: everything above is a sum of them.
#
# Price messages solve this exactly. Give each subtree a mass s. The least cost of its nodes is a convex function of s,
# and the *price* μ is its derivative. Conversely, s(μ) is the mass that a subtree takes at a price:
#
#     a leaf        s(μ) = max(0, c + μ/(2w))
#     a node        its children see one price ν, together they take S(ν) = Σ s_i(ν), and μ = ν + 2w·(S(ν) − c)
#
# Both are non-decreasing, convex and piecewise linear, with one breakpoint for each leaf below. ν ↦ μ is increasing, so
# a node maps the breakpoints of its children one by one. Upwards, the breakpoints of a level are sorted by node and
# price. Downwards, the roots take the price 0 and each node hands ν on. A level costs one sort of as many numbers as
# there are leaves, O(L log L), without iteration.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Message:
    """Breakpoints of the nodes of one level: node j has start[j] … start[j + 1] − 1. Each gives the price that the
    node's children see (`inner`), the price that the node sees (`outer`), and the slope of S after it."""

    start: Integers
    inner: Floats
    outer: Floats
    slope: Floats


def fit_masses(
    counts: Sequence[Floats], parents: Sequence[Integers], weights: Sequence[float] | None = None
) -> tuple[Floats, ...]:
    """The masses of every level, from the top to the leaves, nearest to `counts`.

    `parents[k]` gives for each node of level k + 1 the place of its parent in level k; every node above the leaves has
    a child. Without `weights` a level of m nodes weighs 1/m, as published.
    """
    levels = [np.ascontiguousarray(level, np.float64) for level in counts]
    above = [np.ascontiguousarray(level, np.int64) for level in parents]
    wide = [1.0 / max(1, len(level)) for level in levels] if weights is None else [float(one) for one in weights]
    _check_levels(levels, above, wide)
    messages: list[_Message] = []
    # A leaf begins to take mass where c + μ/(2w) = 0.
    node, price = np.arange(len(levels[-1])), -2.0 * wide[-1] * levels[-1]
    gain = np.full(len(levels[-1]), 0.5 / wide[-1])
    for depth in range(len(levels) - 2, -1, -1):
        node = above[depth][node]
        order = np.lexsort((price, node))
        node, price, gain = node[order], price[order], gain[order]
        start = np.searchsorted(node, np.arange(len(levels[depth]) + 1))
        outer, slope, raised = np.empty_like(price), np.empty_like(price), np.empty_like(price)
        _pass_up(start, price, gain, levels[depth], wide[depth], outer, slope, raised)
        messages.append(_Message(start, price, outer, slope))
        price, gain = outer, raised
    prices = np.zeros(len(levels[0]))
    for depth, message in enumerate(reversed(messages)):
        seen = np.empty(len(levels[depth]))
        _pass_down(message.start, message.inner, message.outer, message.slope, levels[depth], wide[depth], prices, seen)
        prices = seen[above[depth]]
    found = [np.maximum(0.0, levels[-1] + prices * (0.5 / wide[-1]))]
    for depth in range(len(levels) - 2, -1, -1):
        found.insert(0, np.bincount(above[depth], found[0], minlength=len(levels[depth])))
    return tuple(found)


def objective(counts: Sequence[Floats], masses: Sequence[Floats], weights: Sequence[float] | None = None) -> float:
    """Σ_k w_k Σ_j (x_kj − c_kj)²."""
    wide = [1.0 / max(1, len(level)) for level in counts] if weights is None else weights
    return float(sum(w * np.sum((x - c) ** 2) for w, x, c in zip(wide, masses, counts)))


@compiled
def _pass_up(
    start: Integers,
    price: Floats,
    gain: Floats,
    counts: Floats,
    weight: float,
    outer: Floats,
    slope: Floats,
    raised: Floats,
) -> None:
    """From the sorted breakpoints of each node's children and the gain of each in the slope of S: the breakpoints as
    the node's parent sees them, the slope of S after each, and the gain of each in the node's slope."""
    for node in range(counts.shape[0]):
        mass, steep, before, last = 0.0, 0.0, 0.0, 0.0
        for place in range(start[node], start[node + 1]):
            if place > start[node]:
                mass += steep * (price[place] - last)
            last = price[place]
            steep += gain[place]
            slope[place] = steep
            outer[place] = last + 2.0 * weight * (mass - counts[node])
            after = steep / (1.0 + 2.0 * weight * steep)
            raised[place] = after - before
            before = after


@compiled
def _pass_down(
    start: Integers,
    inner: Floats,
    outer: Floats,
    slope: Floats,
    counts: Floats,
    weight: float,
    prices: Floats,
    seen: Floats,
) -> None:
    """The price that the children of each node see, given the node's price."""
    for node in range(counts.shape[0]):
        low, high = start[node], start[node + 1]
        # The last breakpoint that is not above the price.
        while low < high:
            middle = (low + high) // 2
            if outer[middle] <= prices[node]:
                low = middle + 1
            else:
                high = middle
        if low == start[node]:
            seen[node] = prices[node] + 2.0 * weight * counts[node]
        else:
            seen[node] = inner[low - 1] + (prices[node] - outer[low - 1]) / (1.0 + 2.0 * weight * slope[low - 1])


def _check_levels(counts: list[Floats], parents: list[Integers], weights: list[float]) -> None:
    if not counts or len(parents) != len(counts) - 1 or len(weights) != len(counts):
        raise DataError(
            f"levels: expected counts and weights of each level and parents of each but the first, found "
            f"{len(counts)}, {len(weights)} and {len(parents)}"
        )
    for weight, level in zip(weights, counts):
        if not (np.isfinite(weight) and weight > 0 and np.isfinite(level).all()):
            raise DataError("levels: expected positive weights and finite counts")
    for above, upper, lower in zip(parents, counts, counts[1:]):
        if len(above) != len(lower) or not np.array_equal(np.unique(above), np.arange(len(upper))):
            raise DataError(
                f"levels: expected a parent among {len(upper)} nodes for each of {len(lower)}, and a child for each of "
                "them"
            )


# Records.


def solve_leaf_masses(tree: Tree, counts: Integers, levels: int) -> Floats:
    """Leaf sizes that are consistent with the noisy counts of the first `levels` levels and of the leaves.

    As published, leaves are direct children of the last counted level.
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
    return np.asarray(fit_masses(noisy, parents)[-1], np.float64)


def clip_leaf_masses(tree: Tree) -> Floats:
    """The noisy size of each leaf, clipped at zero, as in the published comparison without least squares. Clipped noise
    adds up to far more records than there are."""
    return np.asarray(np.maximum(0.0, tree.counts.sum(axis=1)), np.float64)


def round_masses(masses: Floats, stream: Stream) -> Integers:
    """Whole sizes whose running sums are within one of the masses'. Systematic rounding keeps leaves of a tenth of a
    record each from all becoming empty."""
    edges = np.floor(np.concatenate([[0.0], np.cumsum(masses)]) + float(stream.uniform()))
    return np.diff(edges).astype(np.int64)


def draw_records(tree: Tree, sizes: Integers, stream: Stream) -> Floats:
    """Records of each leaf, as many as its size: numbers uniform in the leaf's box, categories by its path, attributes
    that the path does not split uniform over their domain."""
    return draw_in_leaves(tree.shape, tree.thresholds, np.repeat(np.arange(tree.shape.leaves), sizes), stream)


def draw_in_leaves(shape: Shape, thresholds: tuple[Floats, ...], leaves: Integers, stream: Stream) -> Floats:
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
    # Rounding must not reach the end of the interval.
    out = np.minimum(low + share * (high - low), np.maximum(low, np.nextafter(high, 0.0)))
    for at, one in enumerate(shape.attributes):
        if not one.numeric:
            drawn = np.minimum(np.floor(share[:, at] * one.values), one.values - 1)
            out[:, at] = np.where(fixed[:, at] >= 0, fixed[:, at], drawn)
    return np.asarray(out, np.float64)


def vote(trees: Iterable[Tree], values: Floats, classes: int) -> Integers:
    """The class that most trees give each record; the first of equals."""
    votes = np.zeros((len(values), classes), np.int64)
    every = np.arange(len(values))
    for tree in trees:
        votes[every, tree.predict(values)] += 1
    return np.asarray(votes.argmax(axis=1), np.int64)


# Records as a table of the schema: numbers in their units, dates as days, categories by name.


def build_table(attributes: Attributes, values: Floats, target: NDArray[Any]) -> pd.DataFrame:
    """Records (n, attributes) and their targets, as the schema reads them: `target` holds classes or numbers."""
    import pandas as pd

    places = {one.name: at for at, one in enumerate(attributes.all)}
    made: dict[str, Any] = {}
    for column in attributes.schema.columns:
        flag = places.get(f"{column.name}=(missing)")
        missing = np.zeros(len(values), np.bool_) if flag is None else values[:, flag] > 0.5
        made[column.name] = _build_column(column, values[:, places[column.name]], missing)
    found = attributes.schema.target
    if isinstance(found, Classes):
        made[found.name] = np.array(found.values, object)[np.asarray(target, np.int64)]
    elif isinstance(found, Bounded):
        made[found.name] = np.clip(np.asarray(target, np.float64), found.low, found.high)
    return pd.DataFrame(made)


def _build_column(column: Column, values: Floats, missing: NDArray[np.bool_]) -> Any:
    import pandas as pd

    if isinstance(column, Categorical):
        words = [*column.values, *((OTHER_NAME,) * column.other), *((None,) * (column.missing == "cell"))]
        return np.array(words, object)[values.astype(np.int64)]
    if isinstance(column, Ordinal):
        at = np.rint(values * (len(column.values) - 1)).astype(np.int64)
        return np.array([*column.values, None], object)[np.where(missing, len(column.values), at)]
    if isinstance(column, Date):
        return column.days_after(np.rint(values * column.steps), missing)
    first, last = column.on_scale(np.array([column.low, column.high]))
    numbers = np.clip(column.off_scale(first + values * (last - first)), column.low, column.high)
    if not column.integer:
        return np.where(missing, np.nan, numbers)
    whole = pd.array(np.rint(numbers).astype(np.int64), "Int64")
    whole[missing] = pd.NA
    return whole if missing.any() else np.rint(numbers).astype(np.int64)

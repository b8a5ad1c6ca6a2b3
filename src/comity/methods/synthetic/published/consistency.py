"""Noisy counts of a tree made consistent: parents equal the sums of their children, and nothing is negative.

    minimise  Σ_k w_k Σ_j (x_kj − c_kj)²     with  x_kj = Σ x of its children  and  x >= 0

over the nodes j of the levels k. Only the leaves need the sign: everything above is a sum of them.

Solved exactly by price messages. Give each subtree a mass s; the least cost of its nodes is a convex function of s,
and the *price* μ is its derivative. Read the other way round, s(μ) is how much mass a subtree takes at a price:

    a leaf        s(μ) = max(0, c + μ/(2w))
    a node        its children see one price ν, together they take S(ν) = Σ s_i(ν), and μ = ν + 2w·(S(ν) − c)

Both are non-decreasing, convex and piecewise linear, with one breakpoint for each leaf below. ν ↦ μ is increasing, so
that a node maps the breakpoints of its children one by one. Upwards, the breakpoints of a level are sorted by node and
price; downwards, the roots take the price 0 (nobody charges them) and each node hands ν on. A level costs one sort of
as many numbers as there are leaves, O(L log L), and nothing is iterated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled
from comity.errors import DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Message:
    """What the nodes of one level take, by the prices of their children: node j has the breakpoints start[j] …
    start[j + 1] − 1, at each of which it is known what its children see and what it sees itself."""

    start: Integers
    inner: Floats
    outer: Floats
    slope: Floats


def consistent(
    counts: Sequence[Floats], parents: Sequence[Integers], weights: Sequence[float] | None = None
) -> tuple[Floats, ...]:
    """The masses of every level, from the top to the leaves, nearest to `counts`.

    `parents[k]` gives for each node of level k + 1 the place of its parent in level k; every node above the leaves has
    a child. Without `weights` a level of m nodes weighs 1/m, as published.
    """
    levels = [np.ascontiguousarray(level, np.float64) for level in counts]
    above = [np.ascontiguousarray(level, np.int64) for level in parents]
    wide = [1.0 / max(1, len(level)) for level in levels] if weights is None else [float(one) for one in weights]
    _check(levels, above, wide)
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
        _raise(start, price, gain, levels[depth], wide[depth], outer, slope, raised)
        messages.append(_Message(start, price, outer, slope))
        price, gain = outer, raised
    prices = np.zeros(len(levels[0]))
    for depth, message in enumerate(reversed(messages)):
        seen = np.empty(len(levels[depth]))
        _lower(message.start, message.inner, message.outer, message.slope, levels[depth], wide[depth], prices, seen)
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
def _raise(
    start: Integers,
    price: Floats,
    gain: Floats,
    counts: Floats,
    weight: float,
    outer: Floats,
    slope: Floats,
    raised: Floats,
) -> None:
    """For each node, from the sorted breakpoints of its children and by how much each raises the slope of S: the same
    breakpoints as the node's own parent sees them, the slope of S after each, and how each raises the node's slope."""
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
def _lower(
    start: Integers,
    inner: Floats,
    outer: Floats,
    slope: Floats,
    counts: Floats,
    weight: float,
    prices: Floats,
    seen: Floats,
) -> None:
    """What the children of each node see when the node sees its price."""
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


def _check(counts: list[Floats], parents: list[Integers], weights: list[float]) -> None:
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

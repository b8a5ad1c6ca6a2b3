"""Consistent counts by price messages: equal to a quadratic programme's answer, never negative, exact at any size."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.optimize import nnls

from comity.errors import DataError
from comity.methods.synthetic.published.synthesis import fit_masses, objective


def grown(chance: np.random.Generator, levels: int, most: int) -> list[np.ndarray]:
    """Parents of random levels: every node has between one and `most` children, in no order."""
    parents, width = [], int(chance.integers(1, 3))
    for _ in range(levels - 1):
        each = chance.integers(1, most + 1, width)
        parents.append(chance.permutation(np.repeat(np.arange(width), each)))
        width = int(each.sum())
    return parents


def widths(parents: list[np.ndarray]) -> list[int]:
    return [int(parents[0].max()) + 1, *map(len, parents)]


def leaves_below(parents: list[np.ndarray]) -> list[np.ndarray]:
    """For each level, which leaves lie below each of its nodes."""
    below = [np.eye(len(parents[-1]))]
    for above, width in zip(reversed(parents), reversed(widths(parents)[:-1])):
        sums = np.zeros((width, below[0].shape[1]))
        np.add.at(sums, above, below[0])
        below.insert(0, sums)
    return below


def by_oracle(counts: list[np.ndarray], parents: list[np.ndarray], weights: list[float]) -> list[np.ndarray]:
    """Non-negative least squares over the leaves, by an active-set method that knows nothing of trees."""
    below = leaves_below(parents)
    roots = [np.sqrt(weight) for weight in weights]
    rows = np.vstack([root * matrix for root, matrix in zip(roots, below)])
    found, _ = nnls(rows, np.concatenate([root * level for root, level in zip(roots, counts)]), maxiter=10_000)
    return [matrix @ found for matrix in below]


@pytest.mark.parametrize("case", range(200))
def test_price_messages_give_the_answer_of_a_quadratic_programme(case: int) -> None:
    chance = np.random.default_rng(case)
    parents = grown(chance, levels=int(chance.integers(2, 6)), most=4)
    counts = [chance.normal(2.0, 8.0, width).round(case % 3) for width in widths(parents)]
    published = [1.0 / width for width in widths(parents)]
    weights = published if case % 2 else list(chance.uniform(0.01, 3.0, len(counts)))
    ours = fit_masses(counts, parents, None if case % 2 else weights)
    theirs = by_oracle(counts, parents, weights)
    for mine, other in zip(ours, theirs):
        np.testing.assert_allclose(mine, other, atol=1e-7)
    assert objective(counts, ours, weights) <= objective(counts, theirs, weights) * (1 + 1e-9) + 1e-9


def test_without_the_sign_the_answer_would_be_another() -> None:
    """The oracle sees the constraint: where it binds, clipping the unconstrained answer is not it."""
    counts, parents = [np.array([10.0]), np.array([20.0, -15.0])], [np.array([0, 0])]
    below = np.vstack([np.sqrt(1.0) * np.ones((1, 2)), np.sqrt(0.5) * np.eye(2)])
    free = np.linalg.lstsq(below, np.concatenate([counts[0], np.sqrt(0.5) * counts[1]]), rcond=None)[0]
    ours = fit_masses(counts, parents)
    assert free[1] < 0 and ours[1][1] == 0
    assert abs(ours[1][0] - free[0]) > 1


def test_parents_are_the_sums_of_their_children_and_nothing_is_negative_at_a_size_no_oracle_takes() -> None:
    chance = np.random.default_rng(0)
    parents = [np.repeat(np.arange(a), b // a) for a, b in pairwise([1, 8, 200, 20_000])]
    counts = [chance.laplace(500.0 / len_, 30.0, len_) for len_ in (1, 8, 200, 20_000)]
    found = fit_masses(counts, parents)
    for above, upper, lower in zip(parents, found, found[1:]):
        np.testing.assert_allclose(np.bincount(above, lower), upper, rtol=1e-9, atol=1e-9)
        assert (lower >= 0).all()
    # First-order conditions, node by node: what a leaf's cost gains by one record more is the same for all leaves that
    # have any, and no less for those that have none.
    marginal = np.zeros(1)
    for depth, level in enumerate(found):
        own = 2 * (level - counts[depth]) / len(level)
        marginal = own if depth == 0 else marginal[parents[depth - 1]] + own
    taken = found[-1] > 0
    assert np.abs(marginal[taken]).max() < 1e-7 and marginal[~taken].min() > -1e-7


def test_consistent_counts_stay_as_they_are() -> None:
    counts = [np.array([6.0]), np.array([4.0, 2.0]), np.array([1.0, 3.0, 2.0])]
    found = fit_masses(counts, [np.array([0, 0]), np.array([0, 0, 1])])
    for mine, other in zip(found, counts):
        np.testing.assert_allclose(mine, other, atol=1e-12)


@pytest.mark.parametrize(
    ("counts", "parents", "weights"),
    [
        ([], [], None),
        ([np.ones(1), np.ones(2)], [], None),
        ([np.ones(2), np.ones(2)], [np.array([0, 0])], None),
        ([np.ones(1), np.ones(2)], [np.array([0, 1])], None),
        ([np.ones(1), np.array([1.0, np.nan])], [np.array([0, 0])], None),
        ([np.ones(1), np.ones(2)], [np.array([0, 0])], [1.0, 0.0]),
    ],
)
def test_levels_that_are_no_tree_are_refused(counts: Any, parents: Any, weights: Any) -> None:
    with pytest.raises(DataError, match="levels: expected"):
        fit_masses(counts, parents, weights)

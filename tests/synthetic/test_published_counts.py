"""Counts of a published tree's upper levels: an audit of what they tell of a record, controls, and an agent's time."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any, cast

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.data import Records
from comity.entropy import Stream
from comity.methods.synthetic.published.baselines import agent_release
from comity.methods.synthetic.published.method import Budget
from comity.methods.synthetic.published.tree import Attribute, Attributes, count_levels, draw_shape, grow_tree
from comity.privacy.loss import Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours
from experiments.data.adult import census_schema

DRAWS, LEVELS = 20_000, 3
SHAPE = draw_shape((Attribute("x", 0),), depth=4, candidates=1, leaves=100, stream=Stream.public("counts"))


def counted(values: Any) -> np.ndarray:
    """Of the root, its two children and their four, for a tree whose thresholds no record moves."""
    rows = np.asarray(values)[:, None]
    tree = grow_tree(SHAPE, rows, np.zeros(len(rows), np.int64), 2, choose=lambda n, s: s[:, 0] * 0, noise=lambda c: c)
    return count_levels(SHAPE, tree.path(rows), LEVELS)


def estimate_loss(one: Any, other: Any, budget: Any, seed: Any) -> float:
    """A lower bound of the loss of a reader of the counts between `one` and `other`, by many draws of each."""
    noise, seen = SeededNoise(seed), []
    for counts in (one, other):
        table = np.tile(counts, (DRAWS, 1))
        noisy = budget.counts.run(noise, table, permit=simulated_permit("counts"))
        seen.append((np.abs(noisy - other).sum(axis=1) - np.abs(noisy - one).sum(axis=1)).astype(float))
    return epsilon_lower_bound(*seen)


@pytest.mark.parametrize("neighbours", [Neighbours.ADD_REMOVE, Neighbours.REPLACE])
def test_counts_lose_no_more_than_is_charged_and_nearly_that(neighbours: Any) -> None:
    budget = Budget(Decimal(4), 4, LEVELS + 1, neighbours)
    others = [0.999, 0.999, 0.999]
    first = counted([*others, 1e-9])
    second = counted(others if neighbours is Neighbours.ADD_REMOVE else [*others, 0.999])
    assert np.abs(first - second).sum() == budget.counts.sensitivity
    charged = float(cast(Pure, budget.counts.charged).epsilon)
    assert 0.6 * charged < estimate_loss(first, second, budget, 1) <= charged
    # Controls: the record counts twice, and levels are charged as if they were one histogram.
    assert estimate_loss(first + (first - second), second, budget, 2) > charged
    assert estimate_loss(first, second, Budget(Decimal(4 * LEVELS), 4, LEVELS + 1, neighbours), 3) > charged


def test_an_agents_release_takes_less_than_a_tenth_of_a_second() -> None:
    """Twenty thousand leaves, five hundred records, depth eight: tree, counts, least squares and records, of CPU."""
    attributes, chance = Attributes(census_schema()), np.random.default_rng(0)
    columns = [chance.random(500) if one.numeric else chance.integers(0, one.values, 500) for one in attributes.all]
    own = Records(attributes.rows(np.column_stack(columns).astype(float)), chance.integers(0, 2, 500))
    budget, noise = Budget(Decimal(1), 8, 4, Neighbours.ADD_REMOVE), SeededNoise(1)
    made = [agent_release(attributes, own, budget, noise, partial(Stream.public, "time", k)) for k in range(4)]
    assert max(one.tree.shape.leaves for one in made) > 19_000 and min(one.seconds for one in made) < 0.1

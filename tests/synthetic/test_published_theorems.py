"""Theorems of Fioretto and Van Hentenryck (2019) as exact statements, under both neighbour relations."""

from __future__ import annotations

from decimal import Decimal
from itertools import product

import numpy as np
import pytest

from comity.methods.synthetic.published.baselines import by_committee
from comity.methods.synthetic.published.method import Budget
from comity.privacy.loss import Pure
from comity.privacy.unit import Neighbours


def log_laplace(count: int, epsilon: float) -> np.ndarray:
    """Discrete Laplace noise of scale 1/ε on a count: the logarithm of the chances of -60 … 60."""
    return -np.abs(np.arange(-60, 61) - count) * epsilon


@pytest.mark.parametrize(("other", "times"), [((1, 0), 1), ((0, 1), 2)])
def test_theorem_2_2_holds_where_a_record_is_added_and_not_where_it_is_replaced(
    other: tuple[int, int], times: int
) -> None:
    """Parallel composition: the counts of two disjoint subsets, each with noise for ε. A replaced record leaves one
    subset and enters the other, and the ratio of chances of an outcome reaches e^(2ε)."""
    epsilon, one = 0.5, (1, 0)
    start = (0, 0) if times == 1 else one
    ratio = sum((log_laplace(a, epsilon) - log_laplace(b, epsilon)).max() for a, b in zip(start, other))
    assert ratio == pytest.approx(times * epsilon)


@pytest.mark.parametrize("depth", [3, 4, 8, 12])
def test_theorem_3_1_under_both_neighbour_relations(depth: int) -> None:
    """Algorithm 3 called with ε = 1 is claimed to be h-DP: (h + 1)/2 where a record is added, h + 1 where it is
    replaced."""
    lost = {}
    for neighbours in (Neighbours.ADD_REMOVE, Neighbours.REPLACE):
        # ε' = ε/(2h) is 1.
        budget = Budget(Decimal(2 * depth), depth, 3, neighbours, counted=False)
        lost[neighbours] = float(budget.total)
    assert lost[Neighbours.ADD_REMOVE] == pytest.approx((depth + 1) / 2) and (depth + 1) / 2 <= depth
    assert lost[Neighbours.REPLACE] == pytest.approx(depth + 1) and depth + 1 > depth


@pytest.mark.parametrize("levels", [3, 4, 5, 8])
def test_theorem_3_2_under_both_neighbour_relations(levels: int) -> None:
    """Algorithm 5 called with ε = 1: exactly 1 where a record is added; 2(p - 2)/(p - 1) where it is replaced, which is
    above 1 from p = 4 on."""
    lost = {}
    for neighbours in (Neighbours.ADD_REMOVE, Neighbours.REPLACE):
        charged = Budget(Decimal(2), 8, levels, neighbours).counts.charged
        assert isinstance(charged, Pure)
        lost[neighbours] = float(charged.epsilon)
    assert lost[Neighbours.ADD_REMOVE] == pytest.approx(1)
    assert lost[Neighbours.REPLACE] == pytest.approx(2 * (levels - 2) / (levels - 1))
    assert (lost[Neighbours.REPLACE] > 1 + 1e-9) is (levels >= 4)


def test_theorem_3_2_by_the_distance_of_counts() -> None:
    """A tree of p - 1 = 3 counted levels, each split in two: all pairs of paths that a record may take."""

    def counted(path: tuple[int, ...]) -> np.ndarray:
        """Of the root, of two nodes and of four, for one record."""
        found = np.zeros(7)
        found[0] = found[1 + path[0]] = found[3 + 2 * path[0] + path[1]] = 1
        return found

    paths = list(product((0, 1), repeat=2))
    assert max(np.abs(counted(one)).sum() for one in paths) == 3
    assert max(np.abs(counted(one) - counted(other)).sum() for one, other in product(paths, repeat=2)) == 4


def test_theorem_3_3_holds_where_a_record_is_added_and_not_where_it_is_replaced() -> None:
    factors = {one: Budget.of(Pure(1), 8, 4, one).factor for one in (Neighbours.ADD_REMOVE, Neighbours.REPLACE)}
    assert factors[Neighbours.ADD_REMOVE] == pytest.approx(7 / 32 + 1 / 16 + 1 / 2) and max(factors.values()) > 1
    assert factors[Neighbours.REPLACE] == pytest.approx(7 / 16 + 2 / 16 + 2 / 3)


def test_a_committee_errs_no_more_than_its_members_on_average_and_less_by_their_number_if_errors_are_independent() -> (
    None
):
    """Section 2.2, after Perrone: by convexity, and by the variance of a mean."""
    chance = np.random.default_rng(0)
    rows, truth = np.eye(400), chance.uniform(-0.5, 0.5, 400)
    members = [truth + chance.normal(0, 0.1, 400) for _ in range(10)]
    alone = np.mean([np.mean((one - truth) ** 2) for one in members])
    assert np.mean((by_committee(members, rows) - truth) ** 2) == pytest.approx(alone / 10, rel=0.2)
    biased = [truth + 0.1 + chance.normal(0, 0.1, 1) for _ in range(10)]
    alone = np.mean([np.mean((one - truth) ** 2) for one in biased])
    assert np.mean((by_committee(biased, rows) - truth) ** 2) <= alone

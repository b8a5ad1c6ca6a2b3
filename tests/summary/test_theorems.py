"""Theorems and claims of Sarpatwar et al. (2019): counterexamples, and what holds instead (published/proof.md, 6 to 9).

Sets are subsets of a small system, and every statement about them is checked on all of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pytest

from comity.entropy import Stream
from comity.methods.summary.herding import kernel, mmd2
from comity.methods.summary.published.hashes import PhasedCosines
from comity.methods.summary.published.method import Bid, bid_direction, weigh_seeds
from comity.privacy.accounting import Spent
from comity.privacy.loss import Pure
from comity.privacy.mechanisms.sarpatwar import quantise, weights_cost
from experiments.papers.summary.theorem2 import (
    approximation_premises,
    parsimony_bound,
    tau_for_parsimony,
    theorem_2_epsilons,
)

Set = tuple[int, ...]
SIGNS: tuple[Bid, ...] = ("printed", "corrected")


def objective(gram: np.ndarray, chosen: Set, wanted: Set) -> float:
    """J of equation (3); nothing for the empty set."""
    if not chosen:
        return 0.0
    return float(2 * gram[np.ix_(wanted, chosen)].mean() - gram[np.ix_(chosen, chosen)].mean())


def dominant(size: int, chance: np.random.Generator) -> np.ndarray:
    """A kernel matrix that meets the condition of Theorem 1, with entries up to its limit."""
    limit = 1 / (size**3 + 3 * size**2 + size)
    gram = np.triu(chance.uniform(0, limit, (size, size)), 1)
    return gram + gram.T + np.eye(size)


def subsets(members: Set) -> Iterator[Set]:
    for count in range(len(members) + 1):
        yield from itertools.combinations(members, count)


def test_equation_3_is_the_objective_up_to_a_constant() -> None:
    chance = np.random.default_rng(0)
    rows = chance.normal(size=(12, 3))
    gram, wanted = kernel(rows, rows, 0.4), (0, 1, 2, 3)
    for chosen in ((4,), (5, 9), (4, 6, 7, 11)):
        left = gram[np.ix_(wanted, wanted)].mean() - mmd2(rows[list(chosen)], rows[list(wanted)], 0.4)
        assert left == pytest.approx(objective(gram, chosen, wanted))


def test_theorem_1_the_objective_is_negative_for_every_set_without_wanted_records() -> None:
    """The paper's summaries never contain a record of the consumer: its records are at no owner."""
    chance, seen = np.random.default_rng(1), 0
    for _ in range(1500):
        size = int(chance.integers(4, 40))
        gram, split = dominant(size, chance), int(chance.integers(1, size - 1))
        others = np.arange(split, size)
        chosen = tuple(chance.permutation(others)[: int(chance.integers(1, len(others) + 1))].tolist())
        seen += objective(gram, chosen, tuple(range(split))) < 0
    assert seen == 1500


def test_theorem_1_the_objective_falls_where_wanted_records_may_be_chosen() -> None:
    """Not monotone: all wanted records are chosen, and another one is added."""
    gram, wanted = dominant(8, np.random.default_rng(2)), (0, 1, 2)
    assert objective(gram, (0, 1, 2, 3), wanted) < objective(gram, (0, 1, 2), wanted) - 0.05
    # Nor at the empty set, whose objective is 0; and there it is not submodular either.
    gain = objective(gram, (3,), wanted)
    assert gain < -0.9 and objective(gram, (3, 4), wanted) - objective(gram, (4,), wanted) > gain + 1


@pytest.mark.parametrize("seed", range(3))
def test_theorem_1_corrected_on_sets_that_are_not_empty_and_have_no_wanted_record(seed: int) -> None:
    """Monotone and submodular, on all pairs of sets of a system of eight; J + 2k* with 0 for the empty set is both on
    all sets, so the greedy guarantee holds for it."""
    gram = dominant(8, np.random.default_rng(seed))
    wanted, others = (0, 1), tuple(range(2, 8))
    shifted = {one: objective(gram, one, wanted) + 2 for one in subsets(others)}
    shifted[()] = 0.0
    for small in shifted:
        for more in subsets(tuple(x for x in others if x not in small)):
            large = tuple(sorted(small + more))
            for x in others:
                if x in large:
                    continue
                gains = [shifted[tuple(sorted((*one, x)))] - shifted[one] for one in (small, large)]
                assert gains[0] >= gains[1] - 1e-12 and gains[1] > 0
    for count in range(1, 6):
        greedy: Set = ()
        for _ in range(count):
            best = max((x for x in others if x not in greedy), key=lambda x: shifted[tuple(sorted((*greedy, x)))])
            greedy = tuple(sorted((*greedy, best)))
        most = max(value for one, value in shifted.items() if len(one) == count)
        assert shifted[greedy] >= (1 - 1 / math.e) * most
        # In terms of J that says nothing: every set of this size reaches it.
        least = min(value for one, value in shifted.items() if len(one) == count)
        assert least > (1 - 1 / math.e) * most


def test_the_condition_of_theorem_1_is_a_distance_that_grows_with_the_root_of_log_n() -> None:
    for size in (10, 1000, 10**6):
        gamma, limit = 0.1, 1 / (size**3 + 3 * size**2 + size)
        apart = math.sqrt(-math.log(limit) / gamma)
        assert math.exp(-gamma * apart**2) == pytest.approx(limit)
        assert apart <= math.sqrt(3.7 / gamma) * math.sqrt(math.log(size))


def test_h1_is_unbiased_and_within_its_bound() -> None:
    """Each product is a mean of d terms 2·cos·cos in [−2, 2], so it is off by t with probability 2·exp(−dt²/8)."""
    chance, gamma = np.random.default_rng(3), 0.1
    x, y = chance.normal(size=(2, 5))
    truth = float(kernel(x[None], y[None], gamma)[0, 0])
    pair = np.stack([x, y])
    found = []
    for number in range(400):
        one, other = PhasedCosines.draw(5, 140, gamma, Stream.public("h1", number))(pair)
        found.append(float(one @ other))
    assert np.mean(found) == pytest.approx(truth, abs=4 * float(np.std(found)) / 20)
    off = np.abs(np.array(found) - truth)
    for t in (0.1, 0.2, 0.3):
        assert (off > t).mean() <= 2 * math.exp(-140 * t**2 / 8)
    # At d = 140 the bound promises only 0.46 for 19 of 20 pairs; 0.17 is measured.
    assert math.sqrt(8 * math.log(40) / 140) == pytest.approx(0.459, abs=0.001)
    assert np.quantile(off, 0.95) < 0.25


def test_h2_of_a_later_round_is_noise_at_the_papers_constants() -> None:
    """0.01/√(p·T_sub) for p = 100: the noise of one measurement is ten times the sum of all 250 records."""
    epsilon = 0.01 / math.sqrt(500)
    assert math.sqrt(2) / epsilon > 10 * 250
    chance = np.random.default_rng(4)
    rows = np.cos(2 * np.pi * chance.random((250, 40)))
    sums, stream = quantise(rows, 140).sum(axis=0), Stream.public("later")
    first = weigh_seeds(sums, 250, stream, epsilon=50.0, iterations=253, steps=140)[0]
    later = weigh_seeds(sums, 250, stream, epsilon=epsilon, iterations=500, steps=140)[0]
    truth = rows.mean(axis=0)
    assert np.linalg.norm(first - truth) < np.linalg.norm(truth) < 3 < np.linalg.norm(later - truth)


def test_theorem_2_privacy_of_the_consumer_holds_and_that_of_owners_does_not() -> None:
    """With the theorem's ε_v the consumer loses 3/8 of ε, purely. With its ε_l the means cost owners over three times
    ε, and no small δ holds for the auction (tests/summary/test_published.py)."""
    epsilon, delta, p, d = 1.0, 1e-3, 100, 140
    wish, later = theorem_2_epsilons(epsilon, delta, p=p, iterations=d**2)
    consumer = weights_cost(wish, d**2, 2.0, concentrated=False)
    assert isinstance(consumer, Pure) and float(consumer.epsilon) == pytest.approx(0.375 * epsilon)
    spent = Spent.zero()
    for each in later:
        spent = spent.add(weights_cost(each, d**2, 4.0, concentrated=True))
    assert 3.0 * epsilon < float(spent.epsilon_at(Decimal(repr(delta)))) < 3.3 * epsilon
    # As the paper counts, where a record moves one record of the summary by 1, they would cost less than ε.
    counted = Spent.zero()
    for each in later:
        counted = counted.add(weights_cost(each, d**2, 1.0, concentrated=True))
    assert float(counted.epsilon_at(Decimal(repr(delta)))) < epsilon


def test_theorem_2_premises_of_the_approximation_are_far_from_the_papers_experiments() -> None:
    needed = approximation_premises(d=140, p=100, delta=0.01, epsilon_v=0.01, points=15_000, a=1.0)
    assert needed.validation > 7e6 and needed.seeds > 4e12 and needed.dimensions > 3000
    # They are met only with more records than there are people.
    assert needed.seeds > 8e9
    assert approximation_premises(d=140, p=3, delta=0.3, epsilon_v=1.0, points=10, a=1.0).validation < needed.validation


def auctioned(owners: int, rounds: int, epsilon: float, tau: int, seed: int) -> float:
    """Records that the aggregator receives for each that it chooses, where broadcasts stay as they are: every owner
    bids with the best of what it has left."""
    chance = np.random.default_rng(seed)
    left = [sorted(chance.random(4 * rounds), reverse=True) for _ in range(owners)]
    waited, pool, received = [0] * owners, [], 0
    for _ in range(rounds):
        order = sorted(range(owners), key=lambda k: -left[k][0])
        for rank, k in enumerate(order):
            waited[k] += 1
            if chance.random() < math.exp(-epsilon * rank) or waited[k] >= tau:
                pool.append(left[k].pop(0))
                waited[k], received = 0, received + 1
        pool.remove(max(pool))
    return received / rounds


def test_theorem_2_parsimony_is_linear_in_owners_for_a_fixed_tau_and_holds_for_one_that_grows() -> None:
    """At most 1/(1 − e^(−ε)) + K/τ records for each chosen one: K^(1/3) for τ = K^(2/3), and K/5 for τ = 5."""
    sizes, epsilon = (4, 16, 48, 96), 0.5
    fixed = [auctioned(size, 200, epsilon, 5, size) for size in sizes]
    grown = [auctioned(size, 200, epsilon, tau_for_parsimony(size), size) for size in sizes]
    for size, one, other in zip(sizes, fixed, grown):
        assert one <= parsimony_bound(size, epsilon, 5) * 1.1
        assert other <= parsimony_bound(size, epsilon, tau_for_parsimony(size)) * 1.1
        assert parsimony_bound(size, epsilon, tau_for_parsimony(size)) <= 1 / (1 - math.exp(-0.5)) + size ** (1 / 3)
    # Twice the owners, twice the records: not the root of any degree.
    assert fixed[3] / fixed[2] > 1.7 and fixed[2] > 2.4 * 48 ** (1 / 3)
    assert grown[3] / grown[2] < 1.35 and grown[3] < 1.6 * 96 ** (1 / 3)


def test_the_printed_bid_is_not_the_marginal_gain() -> None:
    """ "The maximization in Step 13 is approximately the marginal gain": its order of records is nearly the reverse."""
    chance, gamma = np.random.default_rng(6), 0.1
    hashed = PhasedCosines.draw(4, 2000, gamma, Stream.public("bids"))
    wanted, summary, candidates = (2 * chance.normal(size=(count, 4)) for count in (40, 20, 200))
    wanted = wanted + 1.5
    target, mean = hashed(wanted).mean(axis=0), hashed(summary).mean(axis=0)
    gains = np.array([-mmd2(np.concatenate([summary, x[None]]), wanted, gamma) for x in candidates])
    along = {
        sign: np.corrcoef(hashed(candidates) @ bid_direction(sign, target, mean, 1, 20), gains)[0, 1] for sign in SIGNS
    }
    assert along["corrected"] > 0.95 and along["printed"] < -0.5

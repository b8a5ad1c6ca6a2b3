"""The published method: what it is printed to lose and what it loses, its bid, its first broadcast, its auction."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from comity.entropy import Stream
from comity.errors import Refused, StudyError
from comity.federation.declare.policy import Policy
from comity.federation.plan import plan
from comity.methods.summary.auction import market
from comity.methods.summary.features import Unchanged
from comity.methods.summary.published.method import (
    Constants,
    OpenPool,
    PublishedBudget,
    bid_direction,
    iteration_epsilon,
    printed_epsilon,
    weigh_seeds,
)
from comity.privacy.accounting import Spent
from comity.privacy.loss import ZCDP, Approx, Pure
from comity.privacy.mechanisms.sarpatwar import STEPS, quantise

from .auctions import build_published
from .consortia import make_consortium

PAPERS = Constants(0.01, 0.05, 0.01, "d^1.5", 5, "1/d")
OF_THE_STUDY = Constants("study", 0.05, "study", "d^1.5", 5, "1/d")


def test_the_printed_figures_are_those_of_the_paper() -> None:
    """1656 iterations of .01 are printed as 1.4 at δ = .01, 500 of .01/√500 as .043 at δ = .0001."""
    assert PAPERS.first_iterations(140) == 1656 and PAPERS.steps(140) == 140
    assert printed_epsilon(0.01, 0.01, 1656) == pytest.approx(1.40, abs=0.005)
    assert printed_epsilon(0.01 / math.sqrt(500), 1e-4, 500) == pytest.approx(0.043, abs=0.0005)
    for whole, delta, count in ((1.0, 1e-5, 1656), (300.0, 1e-5, 495), (0.1, 1e-9, 5)):
        assert printed_epsilon(iteration_epsilon(whole, delta, count), delta, count) == pytest.approx(whole)
    assert replace(PAPERS, eta=0.3).steps(140) == 4 and replace(PAPERS, eta=0.01).steps(140) == 100
    assert replace(PAPERS, t_init=7).first_iterations(140) == 7


def test_claims_of_the_papers_constants_are_printed_beside_the_true_losses() -> None:
    """At the paper's own δ: (1.4, .01) for the consumer and (.043, .0001) for owners, whatever the number of rounds."""
    for delta, rounds in ((0.01, 40), (1e-4, 100)):
        budget = PublishedBudget.of(make_consortium(Approx(2.0, delta)), 140, rounds, 0.5, PAPERS)
        assert (budget.wish, budget.wish_count, budget.steps) == (0.01, 1656, 140)
        assert budget.means == pytest.approx(0.01 / math.sqrt(rounds * 5))
        if delta == 0.01:
            assert float(budget.claimed_wish.epsilon) == pytest.approx(1.40, abs=0.005)
            # In truth 1.656-zCDP, which is more than four times the claim.
            assert float(budget.consumer.epsilon) > 4 * 1.4
        else:
            assert float(budget.claimed_means.epsilon) == pytest.approx(0.043, abs=0.0005)
    text = plan("s", build_published(dimensions=140), make_consortium(Approx(1.0, 1e-5))).as_text()
    assert "eps 2.1" in text and 'epsilon_v = "study"' in text
    quiet = build_published(dimensions=140, epsilon_v="study", epsilon_l="study")
    assert 'epsilon_v = "study"' not in plan("s", quiet, make_consortium(Approx(1.0, 1e-5))).as_text()


@pytest.mark.parametrize("colluders", [0, 1, 2])
def test_losses_are_the_true_ones(colluders: int) -> None:
    consortium = make_consortium(Approx(1.0, 1e-5), colluders=colluders)
    budget = PublishedBudget.of(consortium, 20, 8, 0.5, OF_THE_STUDY)
    readers = max(1, colluders)
    assert budget.wished.charged == ZCDP(str(cast(ZCDP, budget.wished.charged).rho))
    assert float(budget.wished.charged.rho) == pytest.approx(2.5 * (2 * budget.wish) ** 2 * PAPERS.first_iterations(20))
    # Printed as 1, in truth more than twice that; and the rounds for two records that are others.
    assert float(Spent.zero().add(budget.wished.charged).epsilon_at(cast(Approx, consortium.loss).delta)) > 2.5
    assert float(budget.broadcasts.rho) == pytest.approx(7 * 2.5 * 5 * (4 * budget.means) ** 2)
    assert budget.auction == Approx(4 * readers, budget.auction.delta)
    assert float(budget.auction.delta) == pytest.approx(1 - math.exp(-4 * readers))
    owner = budget.owner
    assert owner.delta >= budget.auction.delta and owner.epsilon > budget.auction.epsilon
    assert float(owner.delta) == pytest.approx(1 - (1 - 1e-5) * math.exp(-4 * readers))


def test_the_declaration_says_that_it_is_not_private_as_claimed_and_a_site_refuses_it() -> None:
    consortium = make_consortium(Approx(1.0, 1e-5))
    declared = build_published().declare(consortium).accept(consortium)
    assert declared.claim.startswith("not private as claimed") and "the paper claims (eps 0.4617, " in declared.claim
    assert "no delta below 0.393 holds" in declared.claim
    text = plan("s", build_published(), consortium).as_text()
    assert "eps infinite" in text and "six times" in text and "selection" in text
    policy = Policy(approved=None, disclosures=frozenset({"records_may_leave"}))
    with pytest.raises(Refused, match="not private as claimed"):
        policy.check(study="0", runs=0, protocol="summary", declaration=declared, party="ash", consortium=consortium)


def test_terms() -> None:
    for loss in (Pure(1), Approx(1, 0)):
        with pytest.raises(StudyError) as found:
            build_published().declare(make_consortium(loss))
        assert found.value.key == "privacy.delta"
    with pytest.raises(StudyError, match="at most 110"):
        build_published(records=500).declare(make_consortium())


def test_the_corrected_bid_is_the_marginal_gain_and_the_printed_one_is_not() -> None:
    """Of all candidates the corrected one finds what brings the mean closest, the printed one nearly the opposite."""
    chance = np.random.default_rng(3)
    unit = chance.normal(size=(60, 6))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    target, held, total = unit[:10].mean(axis=0), 5, unit[10:15].sum(axis=0)
    candidates = unit[15:]
    after = (((total + candidates) / (held + 1) - target) ** 2).sum(axis=1)
    right, wrong = (
        market.find_best_bid(candidates, bid_direction(sign, target, total / held, 6, held))[0]
        for sign in ("corrected", "printed")
    )
    assert right == int(after.argmin())
    assert after[wrong] > np.quantile(after, 0.9)


def test_the_first_broadcast_is_that_of_the_seeds() -> None:
    chance = np.random.default_rng(1)
    rows = np.clip(chance.normal([0.6, -0.4, 0.0, 0.2, 0.1, -0.8], 0.1, (150, 6)), -1, 1)
    sums = quantise(rows).sum(axis=0)

    def opened(number: int) -> np.ndarray:
        stream = Stream.public("opening", number)
        iterations = PAPERS.first_iterations(6)
        return np.asarray(weigh_seeds(sums, 150, stream, epsilon=0.05, iterations=iterations, steps=STEPS)[0])

    found = np.array([opened(number) for number in range(20)])
    assert np.array_equal(found[3], opened(3))
    # So few iterations pull it from zero half of the way at most, each towards its own coordinate.
    assert np.corrcoef(found.mean(axis=0), sums / STEPS / 150)[0, 1] > 0.9


def auctioned(owners: list[list[int]], worth: np.ndarray, coins: np.ndarray, epsilon: float) -> list[int]:
    """What is chosen when bids are given for each round and record, and coins for each round and owner."""
    left, pool, chosen = [list(one) for one in owners], [], []
    for number, bid in enumerate(worth):
        best = {k: max(own, key=lambda record: bid[record]) for k, own in enumerate(left) if own}
        ranks = market.rank_bids(
            {str(k): float(bid[record]) for k, record in best.items()}, [str(k) for k in range(len(left))]
        )
        for k, record in best.items():
            if coins[number, k] < math.exp(-epsilon * (ranks[k] - 1)):
                left[k].remove(record)
                pool.append(record)
        chosen.append(max(pool, key=lambda record: bid[record]))
        pool.remove(chosen[-1])
    return chosen


def test_one_record_changes_one_of_those_that_are_chosen_and_a_replaced_one_two() -> None:
    """The same broadcasts, whatever the coins: the greedy choice, because the best is always asked."""
    chance = np.random.default_rng(0)
    gone, replaced = 0, 0
    for _ in range(300):
        worth = chance.random((6, 16))
        coins, others = chance.random((2, 6, 3))
        owners = [list(range(k, 15, 3)) for k in range(3)]
        whole = auctioned(owners, worth, coins, 0.5)
        assert auctioned(owners, worth, others, 3.0) == whole
        less = auctioned([owners[0][1:], *owners[1:]], worth, others, 0.5)
        assert set(whole) - set(less) <= {0}
        gone = max(gone, len(set(whole) - set(less)))
        swapped = auctioned([[15, *owners[0][1:]], *owners[1:]], worth, others, 0.5)
        replaced = max(replaced, len(set(whole) - set(swapped)))
    assert (gone, replaced) == (1, 2)


def test_value_is_the_sum_of_winning_bids() -> None:
    """As the paper says, bids that are negative count; an owner whose sum is negative is worth nothing."""
    chance = np.random.default_rng(9)
    pool = OpenPool(("a", "b", "c"), Unchanged(3, 2.0))
    for owner, bid in ((0, 3.0), (0, -2.0), (1, 1.0), (2, -5.0)):
        pool.winners.append(market.PooledOffer(owner, market.Offer(chance.normal(size=3)), bid))
    found = pool.attribution(np.zeros(3), 0.0)
    assert found["bids"].tolist() == [1.0, 1.0, -5.0] and found["shares"].tolist() == [0.5, 0.5, 0.0]
    assert OpenPool(("a", "b"), Unchanged(3, 2.0)).attribution(np.zeros(3), 0.0)["shares"].tolist() == [0.5, 0.5]


# What an iteration and a coin lose, by looking at every outcome.


def chosen(scores: tuple[float, float], epsilon: float) -> np.ndarray:
    """With which probability each of two coordinates is chosen, proportional to exp(ε·score)."""
    kept = np.exp(epsilon * (np.array(scores) - max(scores)))
    return np.asarray(kept / kept.sum(), np.float64)


@pytest.mark.parametrize("moved", [2.0, 4.0])
def test_an_iteration_costs_three_times_what_a_record_moves(moved: float) -> None:
    """Sums of two coordinates, each moved by up to `moved`: choice and measurement together reach 3εΔ, and no more."""
    epsilon, worst = 0.1, 0.0
    steps = (-moved, -moved / 2, 0.0, moved / 2, moved)
    for first, second in ((6.0, 90.0), (9.0, 9.0), (20.0, 12.0)):
        before = chosen((first, second), epsilon)
        for a in steps:
            for b in steps:
                ratio = np.abs(np.log(chosen((first + a, second + b), epsilon) / before))
                # The measurement of what was chosen, by Laplace noise of scale 1/ε.
                worst = max(worst, float((ratio + epsilon * np.abs([a, b])).max()))
    assert 0.99 * 3 * epsilon * moved <= worst <= 3 * epsilon * moved * (1 + 1e-9)
    budget = PublishedBudget.of(make_consortium(Approx(1.0, 1e-5)), 20, 8, 0.5, PAPERS)
    mechanism = {2.0: budget.wished, 4.0: budget.summarised}[moved]
    assert mechanism.sensitivity == moved


def test_an_owner_that_is_not_asked_knows_that_it_is_not_the_best() -> None:
    """No ε holds at a small δ: the event has probability 0 for one neighbour and .39 for the other."""
    bits = {"ash": 0.7, "birch": 0.4}
    ranks = market.rank_bids(bits, ["ash", "birch"])
    without = market.rank_bids({"ash": 0.1, "birch": 0.4}, ["ash", "birch"])
    not_asked = [1 - math.exp(-0.5 * (rank[1] - 1)) for rank in (ranks, without)]
    assert not_asked[1] == 0.0 and not_asked[0] == pytest.approx(1 - math.exp(-0.5))
    consortium = make_consortium(Approx(1.0, 1e-5))
    lost = [loss for loss in build_published().true_losses(consortium) if loss.to == "each other owner"]
    assert lost[0].true == "infinite at delta 1e-5" and f"probability 0 or {not_asked[0]:.3g}" in lost[0].why

"""Rounds, bids, ranks, asks and the budget of the corrected auction: brute force on all small cases."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comity.entropy import Stream
from comity.methods.summary.auction import market, method
from comity.methods.summary.auction.market import Offer, Pool
from comity.methods.summary.auction.method import AuctionBudget, bid_direction, draw_rounds
from comity.methods.summary.features import LENGTH, FourierFeatures
from comity.privacy.accounting import gaussian_budget, pure_square
from comity.privacy.loss import GDP, LOSSES, Approx, Pure
from comity.privacy.mechanisms import PrefixSums
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise

from .consortia import make_consortium

FEATURES = FourierFeatures.draw(2, 6, 1.0, Stream.public("auction tests"))


def test_each_place_has_one_round_and_rounds_are_even() -> None:
    for records, rounds in ((10, 3), (3, 10), (100, 100)):
        found = draw_rounds(records, rounds, Stream.public("rounds", records))
        sizes = np.bincount(found, minlength=rounds)
        assert found.shape == (records,) and sizes.sum() == records and sizes.max() - sizes.min() <= 1
    assert (draw_rounds(50, 5, Stream.public("a")) != draw_rounds(50, 5, Stream.public("b"))).any()


def made(rows: np.ndarray, broadcasts: np.ndarray) -> list[tuple[int, float]]:
    """An owner's choices and bids, round by round, towards given broadcasts."""
    rounds = draw_rounds(len(rows), len(broadcasts), Stream.public("one owner"))
    found = []
    for number, aim in enumerate(broadcasts):
        mine = np.flatnonzero(rounds == number)
        place, bid = market.find_best_bid(FEATURES(rows[mine]), aim)
        found.append((int(mine[place]), bid))
    return found


def test_a_record_that_is_replaced_changes_the_bid_of_its_own_round_and_of_no_other() -> None:
    chance = np.random.default_rng(2)
    rows, broadcasts = chance.normal(size=(20, 2)), chance.normal(size=(5, 6))
    rounds = draw_rounds(20, 5, Stream.public("one owner"))
    base, seen = made(rows, broadcasts), set()
    for place in range(20):
        other = rows.copy()
        other[place] = chance.normal(size=2)
        changed = [number for number, pair in enumerate(zip(base, made(other, broadcasts))) if pair[0] != pair[1]]
        assert changed in ([], [int(rounds[place])])
        seen.update(changed)
    assert seen == set(range(5))


def test_a_bid_that_changes_moves_every_other_rank_by_one_at_most() -> None:
    """All bids of four owners from three values, and all changes of one of them."""
    owners, worst = ("a", "b", "c", "d"), 0
    for values in itertools.product((0.0, 1.0, 2.0), repeat=4):
        base = market.rank_bids(dict(zip(owners, values)), owners)
        assert sorted(base.tolist()) == [1, 2, 3, 4]
        for place, other in itertools.product(range(4), (0.0, 1.0, 2.0, None)):
            changed: dict[str, Any] = dict(zip(owners, values))
            changed[owners[place]] = other
            if other is None:
                del changed[owners[place]]
            apart = np.abs(market.rank_bids(changed, owners) - base)
            assert np.delete(apart, place).max() <= 1
            worst = max(worst, int(apart[place]))
    assert worst == 3
    assert market.rank_bids({"a": 1.0, "c": 1.0, "d": 2.0}, owners).tolist() == [2, 4, 3, 1]


def test_the_best_bid_is_that_of_the_largest_gain() -> None:
    """Along the exact sums, the best record is the one that brings the summary's mean closest to the target's."""
    chance = np.random.default_rng(4)
    target = FEATURES(chance.normal(size=(30, 2))).mean(axis=0)
    for chosen in (0, 1, 7):
        total = FEATURES(chance.normal(size=(chosen, 2))).sum(axis=0)
        candidates = FEATURES(chance.normal(size=(40, 2)))
        place, _ = market.find_best_bid(candidates, bid_direction(target, total, chosen))
        after = (((total + candidates) / (chosen + 1) - target) ** 2).sum(axis=1)
        assert place == int(after.argmin())
    assert market.find_best_bid(np.zeros((0, 6)), target) == (-1, market.NO_BID)
    assert market.find_best_bid(np.ones((1, 6)), np.full(6, 1e9))[1] == market.MAX_BID


def chance_asked(rank: int, mechanism: Any) -> float:
    """P[−rank + noise >= threshold] for the mechanism's discrete Laplace noise."""
    scale = mechanism.scale
    ratio = math.exp(-1 / scale.total)
    gap = math.ceil(mechanism.threshold / scale.grid) - round(-rank / scale.grid)
    tail = ratio ** abs(gap) / (1 + ratio)
    found: float = tail if gap > 0 else 1 - ratio * tail
    return found


@pytest.mark.parametrize("readers", [1, 2, 3])
def test_bits_lose_epsilon_for_each_owner_and_t_times_that_for_t(readers: int) -> None:
    """All ranks, moved by one either way, and both outcomes; bits have independent noise, so losses add up."""
    mechanism = method.ask_mechanism(Pure("0.9"), readers, 0.05)
    worst = 0.0
    for rank, move in itertools.product(range(1, 60), (-1, 1)):
        one, other = chance_asked(rank, mechanism), chance_asked(rank + move, mechanism)
        worst = max(worst, abs(math.log(one / other)), abs(math.log((1 - one) / (1 - other))))
    assert 0.85 < readers * worst <= 0.9 + 1e-9


def test_the_best_is_missed_as_often_as_said_and_so_many_are_asked() -> None:
    mechanism = method.ask_mechanism(Pure(1), 2, 0.05)
    assert mechanism.threshold == pytest.approx(-(1 + math.log(10) / 0.5))
    assert 1 - chance_asked(1, mechanism) == pytest.approx(0.05, rel=0.01)
    assert method.expected_asks(40, 0.5, 0.05) == pytest.approx(
        sum(chance_asked(r, mechanism) for r in range(1, 41)), rel=0.01
    )
    # About 1 + ln(1/2β)/ε, whatever the number of owners.
    assert method.expected_asks(4000, 0.5, 0.05) == pytest.approx(1 + math.log(10) / 0.5, abs=0.6)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("colluders", [0, 1, 2])
def test_bits_and_sums_cost_no_more_than_the_study(epsilon: float, colluders: int) -> None:
    consortium = make_consortium(Approx(epsilon, 1e-5), colluders=colluders)
    budget = AuctionBudget.of(consortium, 0.2)
    whole = gaussian_budget(consortium.loss)
    parts = LOSSES.add(budget.running.square, pure_square(budget.asked.epsilon))
    assert parts <= budget.owner.square <= whole.square == budget.wish.square
    assert float(parts) > 0.999 * float(whole.square)
    assert 0.18 < float(pure_square(budget.asked.epsilon) / whole.square) <= 0.2
    assert budget.readers == max(1, colluders)
    assert budget.each == pytest.approx(float(budget.asked.epsilon) / budget.readers)


def offer(chance: np.random.Generator, label: int = 0) -> Offer:
    return Offer(chance.normal(size=2), label)


def test_a_pool_is_empty_after_each_round_and_its_sum_lies_on_the_grid() -> None:
    """What was offered in an earlier round and bid more may not win a later one."""
    chance, grid = np.random.default_rng(5), 2.0**-6
    pool = Pool(("a", "b", "c"), FEATURES, "<i8", grid)
    first, second, third = (offer(chance, label) for label in range(3))
    pool.close({"a": first, "b": second}, {"a": 3.0, "b": 5.0, "c": 9.0})
    pool.close({"c": third}, {"a": 1.0, "b": 2.0, "c": 0.5})
    assert [(one.owner, one.bid) for one in pool.winners] == [(1, 5.0), (2, 0.5)]
    expected = sum(np.rint(FEATURES(one.row[None])[0] / grid) * grid for one in (second, third))
    assert np.array_equal(pool.sum, expected) and np.array_equal(np.rint(pool.sum / grid) * grid, pool.sum)
    assert np.linalg.norm(pool.sum) <= 2 * (LENGTH + grid * 6**0.5)
    # A round in which nobody was asked adds nothing; at the end what is left over fills the summary.
    before = pool.sum
    pool.close({}, {"a": 1.0})
    assert np.array_equal(pool.sum, before)
    assert pool.summary(3)["owners"].tolist() == [1, 2, 0] and pool.summary(3)["labels"].tolist() == [1, 2, 0]
    assert len(pool.summary(2)["rows"]) == 2 and pool.seen == 3


def test_value_is_the_share_of_winning_bids() -> None:
    chance = np.random.default_rng(6)
    pool = Pool(("a", "b"), FEATURES)
    for bid in (3.0, 1.0, -7.0):
        pool.close({"a": offer(chance), "b": offer(chance)}, {"a": bid, "b": bid - 1})
    pool.close({"b": offer(chance)}, {"b": 1.0})
    found = pool.attribution(np.zeros(6), 0.1)
    assert found["quotas"].tolist() == [3, 1] and found["shares"].tolist() == [0.8, 0.2]
    assert found["discrepancy"][0] == 0 and found["seen"].tolist() == [7]
    assert Pool(("a", "b"), FEATURES).attribution(np.ones(6), 0.0)["shares"].tolist() == [0.5, 0.5]


def test_whatever_wins_a_round_the_sequence_moves_no_further_than_its_noise_is_made_for() -> None:
    """The sums of all rounds, for all pairs of winners of one round: as far apart as `factor` says, on the grid."""
    chance, rounds = np.random.default_rng(7), 4
    noise = PrefixSums(loss=GDP(1), rounds=rounds)
    scale = noise.scale(sensitivity=2 * LENGTH, shape=(6,))
    rows = [20 * chance.normal(size=2) for _ in range(30)]
    units = [np.rint(FEATURES(row[None])[0] / scale.grid) for row in rows]
    apart = max(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(units, 2))
    assert apart * noise.factor <= scale.total <= 1.3 * apart * noise.factor
    assert replace(noise, participations=2).factor > noise.factor


def test_asked_bits_are_those_of_the_mechanism() -> None:
    mechanism = method.ask_mechanism(Pure(2), 1, 0.1)
    ranks = np.tile([1, 2, 6], (4000, 1))
    found = mechanism.run(SeededNoise(1), -ranks, permit=simulated_permit("asked")).mean(axis=0)
    assert found == pytest.approx([chance_asked(rank, mechanism) for rank in (1, 2, 6)], abs=0.03)

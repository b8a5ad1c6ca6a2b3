"""Multiplicative weights of a sum, and coins by rank: within their stated losses, and not within the printed ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.support.noise import make_permit

from comity.audit import epsilon_lower_bound
from comity.errors import DataError, StudyError
from comity.privacy.loss import ZCDP, Approx, Pure
from comity.privacy.mechanisms import MeanWeights, RankCoins
from comity.privacy.mechanisms.sarpatwar import STEPS, grid_mean, quantise, weights_cost
from comity.privacy.randomness import ReleasedNoise, SeededNoise

SURE = 1 - 1e-7


def chances(scores: np.ndarray, scale: float) -> np.ndarray:
    """Of two scores by the exponential mechanism."""
    kept = np.exp((np.asarray(scores, np.float64) - np.max(scores)) / scale)
    return np.asarray(kept / kept.sum(), np.float64)


def log_laplace(noise: int, width: float) -> float:
    return -abs(noise) / width + math.log(math.tanh(1 / (2 * width)))


class Transcript:
    """Draws whatever leads to given choices and measurements, and adds up how likely that was."""

    seeded = True

    def __init__(self, truth: np.ndarray, choices: list[int], measured: list[int]) -> None:
        self.truth, self.choices, self.measured, self.log = truth, iter(choices), iter(measured), 0.0

    def exponential_choice(self, scores: Any, scale: Any, *, permit: Any) -> np.ndarray:
        permit.use()
        self.choice = next(self.choices)
        self.log += math.log(chances(scores[0], scale)[self.choice])
        return np.array([self.choice])

    def discrete_laplace(self, width: Any, shape: Any, *, permit: Any) -> np.ndarray:
        permit.use()
        noise = next(self.measured) - int(self.truth[self.choice])
        self.log += log_laplace(noise, width)
        return np.full(shape, noise)


def worst_loss(mechanism: MeanWeights, moves: tuple[int, ...], seeds: int = 60) -> float:
    """The largest log ratio of random transcripts on a sum and on those that lie `moves` units away in each entry."""
    worst = 0.0
    for seed in range(seeds):
        chance = np.random.default_rng(seed)
        d, count = mechanism.dimensions, mechanism.iterations
        sums = chance.integers(-1, 2, d) * STEPS
        choices = chance.integers(0, d, count).tolist()
        measured = (chance.choice([-1, 1], count) * 9 * STEPS).tolist()

        def log(truth: np.ndarray, choices: list[int] = choices, measured: list[int] = measured) -> Any:
            source = Transcript(truth, choices, measured)
            return mechanism.run(cast(Any, source), (truth, np.zeros(len(truth)), 20), permit=make_permit()), source.log

        found, base = log(sums)
        for move in (np.array(one) for one in np.ndindex(*(len(moves),) * d)):
            other, moved = log(sums + np.array(moves)[move] * STEPS)
            assert np.array_equal(found, other)  # Means and weights are made from the transcript alone.
            worst = max(worst, abs(moved - base))
    return worst


@pytest.mark.parametrize("moved", [1, 2])
def test_every_transcript_is_within_three_epsilon_an_iteration_and_not_within_one(moved: int) -> None:
    """Printed: ε an iteration. Its own choice by exp(ε·score) costs 2ε, the measurement ε, and both times Δ."""
    mechanism = MeanWeights(epsilon=0.2, iterations=3, dimensions=2, sensitivity=moved, concentrated=False)
    stated = float(cast(Pure, mechanism.charged).epsilon)
    assert stated == pytest.approx(0.2 * 3 * 3 * moved)
    found = worst_loss(mechanism, (-moved, 0, moved))
    assert 0.2 * 3 * moved * 1.2 < found <= stated


def test_losses_of_iterations() -> None:
    assert weights_cost(0.01, 1656, 1, concentrated=False) == Pure("49.68")
    assert weights_cost(0.01, 1656, 2, concentrated=False) == Pure("99.36")
    assert weights_cost(0.01, 1656, 2, concentrated=True) == ZCDP("1.656")
    mechanism = MeanWeights(epsilon=0.01, iterations=1656, dimensions=4)
    assert mechanism.charged == mechanism.loss == ZCDP("0.414")
    assert mechanism.sensitivity == 1


def audited(mechanism: MeanWeights, count: int) -> float:
    source = SeededNoise(3)
    scores = []
    for sums in (np.array([STEPS, -STEPS]), np.array([-STEPS, STEPS])):
        runs = (mechanism.run(source, (sums, np.zeros(2), 4), permit=make_permit()) for _ in range(count))
        scores.append(np.array([found[1, 0] - found[1, 1] for found in runs]))
    return epsilon_lower_bound(*scores, confidence=SURE)


def test_an_audit_on_neighbours_is_within_the_stated_loss_and_sees_noise_that_is_too_narrow() -> None:
    """A record of (1, −1) becomes (−1, 1): each entry moves by 2."""
    mechanism = MeanWeights(epsilon=0.5, iterations=1, dimensions=2, sensitivity=2, concentrated=False)
    claim = float(cast(Pure, mechanism.charged).epsilon)
    assert claim == 3
    assert 0.4 < audited(mechanism, 2000) <= claim
    assert audited(replace(mechanism, epsilon=5.0), 2000) > claim


def test_the_mean_of_a_tilted_grid_is_that_of_its_definition() -> None:
    grid = np.arange(-STEPS, STEPS + 1) / STEPS
    weights = np.array([0.0, 1e-9, -1e-5, 1e-3, 0.3, -2.0, 40.0, -900.0, 1e6])
    tilted = np.exp(np.outer(weights, grid) - np.abs(weights)[:, None])
    expected = tilted @ grid / tilted.sum(axis=1)
    assert grid_mean(weights) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    coarse = np.arange(-7, 8) / 7
    tilted = np.exp(np.outer(weights[:6], coarse) - np.abs(weights[:6])[:, None])
    assert grid_mean(weights[:6], 7) == pytest.approx(tilted @ coarse / tilted.sum(axis=1), rel=1e-6, abs=1e-12)
    assert np.abs(grid_mean(np.array([1e300, -1e300]))).max() <= 1


@pytest.mark.parametrize("source", [ReleasedNoise(), SeededNoise(7)], ids=["released", "seeded"])
def test_means_come_close_where_noise_is_small_and_the_permit_covers_what_is_drawn(source: Any) -> None:
    chance = np.random.default_rng(1)
    rows = np.clip(chance.normal([0.5, -0.3, 0.0, 0.9], 0.1, (500, 4)), -1, 1)
    mechanism = MeanWeights(epsilon=0.5, iterations=60, dimensions=4)
    one = make_permit()
    means, weights = mechanism.run(source, (quantise(rows).sum(axis=0), np.zeros(4), 500), permit=one)
    assert one.used
    assert np.abs(grid_mean(weights) - rows.mean(axis=0)).max() < 0.1
    assert np.abs(means - rows.mean(axis=0)).max() < 0.4
    again = mechanism.run(source, (quantise(rows).sum(axis=0), weights, 500), permit=make_permit())[0]
    assert np.abs(again - rows.mean(axis=0)).max() < 0.1


def test_what_it_refuses_before_the_permit_is_used() -> None:
    mechanism = MeanWeights(epsilon=1, iterations=2, dimensions=2)
    for values in (
        (np.zeros(2), np.zeros(2), 2),
        (np.zeros(3, int), np.zeros(2), 2),
        (np.array([3 * STEPS, 0]), np.zeros(2), 2),
        (np.zeros(2, int), np.array([np.nan, 0]), 2),
        (np.zeros(2, int), np.zeros(2), 0),
    ):
        one = make_permit()
        with pytest.raises(DataError, match="multiplicative weights"):
            mechanism.run(SeededNoise(1), values, permit=one)
        assert not one.used
    for wrong in ({"epsilon": 0}, {"sensitivity": math.inf}, {"iterations": 0}, {"dimensions": 0}):
        with pytest.raises(StudyError):
            replace(mechanism, **wrong)
    assert quantise(np.array([[np.nan, 2.0, -2.0, 0.004]])).tolist() == [[0, STEPS, -STEPS, 1]]


# Coins by rank.


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 3.0])
def test_coins_lose_what_is_stated_and_no_smaller_delta_holds(epsilon: float) -> None:
    stated = RankCoins(epsilon=epsilon).charged
    delta = float(stated.delta)
    assert delta == pytest.approx(1 - math.exp(-epsilon)) and delta >= 1 - math.exp(-epsilon)
    asked = np.exp(-epsilon * np.arange(40))
    for chance in (asked, 1 - asked):
        for one, other in ((chance[:-1], chance[1:]), (chance[1:], chance[:-1])):
            assert (one - math.exp(epsilon) * other).max() <= delta + 1e-12
    # Not asked: never at rank 1, with 1 − e^(−ε) at rank 2. No ε makes up for that.
    assert (1 - asked[1]) - 1e9 * (1 - asked[0]) == pytest.approx(delta)


def test_coins_are_those_of_the_ranks() -> None:
    mechanism = RankCoins(epsilon=0.7)
    ranks = np.tile([1, 2, 3], (20_000, 1))
    asked = mechanism.run(SeededNoise(2), ranks, permit=make_permit())
    assert asked[:, 0].all()
    for place, rank in ((1, 2), (2, 3)):
        chance = math.exp(-0.7 * (rank - 1))
        seen = np.bincount(asked[:, place], minlength=2)
        assert chisquare(seen, np.array([1 - chance, chance]) * 20_000).pvalue > 1e-8
    with pytest.raises(StudyError, match="start at 1"):
        mechanism.run(SeededNoise(2), np.array([0, 1]), permit=make_permit())
    with pytest.raises(StudyError, match="positive"):
        RankCoins(epsilon=0)


def test_many_coins_add_up_to_a_loss_or_are_refused() -> None:
    many = RankCoins(epsilon=0.5).charged_for(100)
    assert isinstance(many, Approx) and many.epsilon == 50 and 1 - math.exp(-50) <= float(many.delta)
    assert many.delta < 1
    with pytest.raises(StudyError, match="at most 110"):
        RankCoins(epsilon=0.5).charged_for(1000)

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

from comity.audit import epsilon_lower_bound, gdp_lower_bound, mu_lower_bound
from comity.audit.bound import _lower, _upper, gaussian_epsilon
from comity.errors import DataError, StudyError
from comity.privacy.accounting import gdp_square


def test_laplace_at_one_measures_almost_one() -> None:
    generator = np.random.default_rng(1)
    noise = generator.laplace(size=(2, 200_000))
    for scores in ((noise[0] + 1, noise[1]), (noise[0], noise[1] + 1), (-noise[0], 1 - noise[1])):
        assert 0.95 <= epsilon_lower_bound(*scores) <= 1


def test_either_tail_and_either_direction_are_searched() -> None:
    generator = np.random.default_rng(2)
    rare = np.where(generator.random(20_000) < 0.02, 9.0, 0.0)
    never = np.zeros(20_000)
    for first, second in ((rare, never), (never, rare), (-rare, never), (never, -rare)):
        assert epsilon_lower_bound(first, second) > 3


def test_bounds_are_valid_as_often_as_stated() -> None:
    """At confidence 0.8 the bound exceeds the truth in at most 20 % of trials (binomial limit at 1e-9)."""
    generator, trials, truth = np.random.default_rng(3), 150, 0.4
    wrong = sum(
        epsilon_lower_bound(generator.laplace(size=400), generator.laplace(size=400) + truth, confidence=0.8) > truth
        for _ in range(trials)
    )
    assert wrong <= binom.ppf(1 - 1e-9, trials, 0.2)
    wrong = sum(
        mu_lower_bound(generator.normal(size=400), generator.normal(size=400) + truth, confidence=0.8) > truth
        for _ in range(trials)
    )
    assert wrong <= binom.ppf(1 - 1e-9, trials, 0.2)


def test_delta_is_subtracted() -> None:
    first = np.concatenate([np.zeros(90_000), np.ones(10_000)])
    second = np.zeros(100_000)
    generator = np.random.default_rng(4)
    first, second = generator.permutation(first), generator.permutation(second)
    assert epsilon_lower_bound(first, second) > 4
    assert epsilon_lower_bound(first, second, delta=0.11) == 0


def test_the_gaussian_form_is_tighter_and_valid() -> None:
    epsilon, delta = 1.0, 1e-6
    shift = math.sqrt(gdp_square(epsilon, delta))
    noise = np.random.default_rng(5).normal(size=(2, 400_000))
    measured = gdp_lower_bound(noise[0], noise[1] + shift, delta=delta)
    assert 0.9 <= measured <= 1
    assert epsilon_lower_bound(noise[0], noise[1] + shift, delta=delta) < measured
    assert gdp_lower_bound(noise[0], noise[1] + 2 * shift, delta=delta) > 1


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (8.0, 1e-9)])
def test_epsilon_of_a_gaussian_inverts_its_calibration(epsilon: float, delta: float) -> None:
    measured = gaussian_epsilon(math.sqrt(gdp_square(epsilon, delta)), delta)
    assert epsilon * (1 - 1e-6) <= measured <= epsilon
    assert gaussian_epsilon(0.0, delta) == 0
    assert gaussian_epsilon(1e-9, delta) == 0


@pytest.mark.parametrize(("hits", "size"), [(0, 50), (1, 50), (20, 50), (49, 50), (50, 50)])
def test_clopper_pearson_misses_with_the_stated_probability(hits: int, size: int) -> None:
    low, high = (float(bound(np.array([float(hits)]), size, 0.01)[0]) for bound in (_lower, _upper))
    assert 0 <= low <= hits / size <= high <= 1
    if hits > 0:
        assert binom.sf(hits - 1, size, low) == pytest.approx(0.01)
    else:
        assert low == 0
    if hits < size:
        assert binom.cdf(hits, size, high) == pytest.approx(0.01)
    else:
        assert high == 1


def test_equal_scores_show_nothing_and_disjoint_ones_as_much_as_their_number_allows() -> None:
    same = np.zeros(1000)
    assert epsilon_lower_bound(same, same) == mu_lower_bound(same, same) == 0
    apart = epsilon_lower_bound(same, np.ones(1000), confidence=0.95)
    bound = 1 - 0.025 ** (1 / 500)
    assert apart == pytest.approx(math.log((1 - bound) / bound))
    assert mu_lower_bound(same, np.ones(1000)) == pytest.approx(-2 * norm.ppf(bound))


@pytest.mark.parametrize(
    "scores", [[], [1.0, 2.0, 3.0], [[1.0] * 4], [1.0, 2.0, math.nan, 3.0], [1.0, 2.0, 3.0, math.inf]]
)
def test_scores_that_can_not_be_used_are_refused(scores: Any) -> None:
    with pytest.raises(DataError):
        epsilon_lower_bound(scores, [1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize("levels", [{"delta": -0.1}, {"delta": 1.0}, {"confidence": 0.0}, {"confidence": 1.0}])
def test_levels_out_of_range_are_refused(levels: Any) -> None:
    with pytest.raises(StudyError):
        epsilon_lower_bound([1.0] * 4, [2.0] * 4, **levels)


def test_the_gaussian_form_needs_a_delta() -> None:
    with pytest.raises(StudyError, match="delta"):
        gdp_lower_bound([1.0] * 4, [2.0] * 4, delta=0.0)

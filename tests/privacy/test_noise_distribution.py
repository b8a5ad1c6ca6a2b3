"""Both sources against the exact probabilities. False alarms: seeded tests are fixed, released ones below 1e-7."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import chisquare, gamma, kstest
from tests.support.noise import make_permit

from comity.privacy.randomness import ReleasedNoise, SeededNoise
from comity.privacy.sampling.lattice_noise import keep_probabilities, keep_probability, mixture_components
from comity.privacy.sampling.precise import PRECISE

ALARM = 1e-8


def sources() -> list[Any]:
    return [pytest.param(ReleasedNoise(), 20_000, id="released"), pytest.param(SeededNoise(7), 200_000, id="seeded")]


def agreement(drawn: np.ndarray, log_weights: Any) -> float:
    """The p-value of integers against weights on the integers, rare values pooled."""
    reach = int(np.abs(drawn).max()) + 200
    values = np.arange(-reach, reach + 1)
    weights = np.exp(log_weights(values.astype(float)))
    expected = weights / weights.sum() * len(drawn)
    counted = np.bincount(drawn + reach, minlength=len(values))
    return pooled(counted, expected)


def pooled(counted: np.ndarray, expected: np.ndarray) -> float:
    common = expected >= 10
    observed = np.append(counted[common], counted[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    if wanted[-1] < 1:
        observed, wanted = observed[:-1], wanted[:-1] * observed[:-1].sum() / wanted[:-1].sum()
    return float(chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)


@pytest.mark.parametrize(("source", "count"), sources())
@pytest.mark.parametrize("scale", [0.4, 1.0, 5.3, 40.0])
def test_discrete_laplace(source: Any, count: Any, scale: float) -> None:
    drawn = source.discrete_laplace(scale, (count,), permit=make_permit())
    assert drawn.dtype == np.int64
    assert agreement(drawn, lambda z: -np.abs(z) / scale) > ALARM


def log_cells(z: np.ndarray, sigma: float) -> np.ndarray:
    """The logarithms of the probabilities that a normal variable rounds to z."""
    upper, lower = log_ndtr((0.5 - np.abs(z)) / sigma), log_ndtr((-0.5 - np.abs(z)) / sigma)
    found: np.ndarray = upper + np.log(-np.expm1(np.minimum(lower - upper, -1e-300)))
    return found


@pytest.mark.parametrize(("source", "count"), sources())
@pytest.mark.parametrize("sigma", [0.3, 0.8, 1.0, 2.0, 4.531, 30.0])
def test_rounded_gaussian(source: Any, count: Any, sigma: float) -> None:
    drawn = source.rounded_gaussian(sigma, (count // 2, 2), permit=make_permit())
    assert drawn.shape == (count // 2, 2)
    assert drawn.dtype == np.int64
    assert agreement(drawn.ravel(), lambda z: log_cells(z, sigma)) > ALARM


@pytest.mark.parametrize("sigma", [0.3, 0.8, 1.0, 4.531])
def test_discrete_gaussians_of_which_spherical_noise_is_mixed(sigma: float) -> None:
    for drawn in (ReleasedNoise()._gaussian(sigma, 20_000), SeededNoise(7)._gaussian(np.full(200_000, sigma))):
        assert agreement(drawn, lambda z: -z * z / (2 * sigma * sigma)) > ALARM


def test_the_test_tells_rounded_from_discrete_gaussians() -> None:
    drawn = SeededNoise(1).rounded_gaussian(0.8, (200_000,), permit=make_permit())
    assert agreement(drawn, lambda z: -z * z / (2 * 0.64)) < ALARM


def lattice(dimension: int, beta: float, reach: int) -> tuple[np.ndarray, np.ndarray]:
    points = np.array(list(itertools.product(range(-reach, reach + 1), repeat=dimension)))
    weights = np.exp(-np.sqrt((points**2).sum(1)) / beta)
    return points, weights / weights.sum()


def lattice_agreement(drawn: np.ndarray, beta: float, reach: int) -> float:
    points, probabilities = lattice(drawn.shape[1], beta, reach)
    inside = drawn[(np.abs(drawn) <= reach).all(1)]
    base = 2 * reach + 1
    index = ((inside + reach) * base ** np.arange(drawn.shape[1])[::-1]).sum(1)
    return pooled(np.bincount(index, minlength=len(points)), probabilities * len(drawn))


LATTICES = [(1, 1.0, 60), (1, 3.0, 90), (2, 1.5, 45), (2, 4.0, 100), (3, 1.8, 28), (4, 2.0, 14)]


@pytest.mark.parametrize(("dimension", "beta", "reach"), LATTICES)
def test_seeded_spherical_noise_point_by_point(dimension: Any, beta: Any, reach: Any) -> None:
    drawn = SeededNoise(3)._lattice_rows(beta, 200_000, dimension)
    assert lattice_agreement(drawn, beta, reach) > ALARM


@pytest.mark.parametrize(("dimension", "beta", "reach"), [(1, 1.5, 60), (2, 1.5, 45), (3, 1.8, 28)])
def test_released_spherical_noise_radius_by_radius(dimension: int, beta: float, reach: int) -> None:
    source = ReleasedNoise()
    drawn = np.array([source.spherical(beta, (dimension,), permit=make_permit()) for _ in range(1000)])
    points, probabilities = lattice(dimension, beta, reach)
    expected = np.bincount((points**2).sum(1), weights=probabilities * len(drawn))
    counted = np.bincount((drawn**2).sum(1), minlength=len(expected))[: len(expected)]
    assert pooled(counted, expected) > ALARM
    if dimension <= 2:
        assert lattice_agreement(drawn, beta, reach) > ALARM


def test_without_the_correction_for_the_lattice_the_noise_would_be_wrong() -> None:
    """Gamma((d+1)/2) variances, which are right over the reals, miss the lattice's small radii."""
    source, generator, beta = SeededNoise(3), np.random.default_rng(3), 1.5
    variances = 2 * beta**2 * generator.standard_gamma(1.5, 200_000)
    drawn = source._gaussian(np.repeat(np.sqrt(variances), 2)).reshape(-1, 2)
    assert lattice_agreement(drawn, beta, 45) < ALARM


def test_the_radius_in_many_dimensions() -> None:
    dimension, beta = 50, 500.0
    seeded = SeededNoise(5)._lattice_rows(beta, 20_000, dimension)
    source = ReleasedNoise()
    released = np.array([source.spherical(beta, (5, 10), permit=make_permit()).ravel() for _ in range(600)])
    for drawn in (seeded, released):
        radius = np.sqrt((drawn.astype(float) ** 2).sum(1))
        assert kstest(radius / beta, gamma(dimension).cdf).pvalue > ALARM
        # All directions alike: the share of the first coordinate in the square radius has mean 1/d.
        share = drawn[:, 0] ** 2 / radius**2
        assert abs(share.mean() - 1 / dimension) < 6 * share.std() / np.sqrt(len(share))
    radius = np.sqrt((seeded.astype(float) ** 2).sum(1))
    assert kstest(radius / beta, gamma(dimension + 1).cdf).pvalue < ALARM


@pytest.mark.parametrize(("dimension", "beta"), [(1, "1"), (2, "1.5"), (7, "30"), (200, "15")])
def test_mixture_weights_are_those_of_the_binomial_theorem(dimension: int, beta: str) -> None:
    """The proposal's density over the target's unnormalised one is the same at every variance."""
    components = mixture_components(Decimal(beta), dimension)
    assert components[-1][1] == 1
    ends = [Decimal(0), *(share for _, share in components)]
    shares = [float(PRECISE.subtract(after, before)) for before, after in itertools.pairwise(ends)]
    width, variances = 2 * float(beta) ** 2, np.geomspace(0.5, 10 * dimension * float(beta) ** 2, 60)
    proposed = sum(
        share * gamma((j + 1) / 2, scale=width).pdf(variances) for (j, _), share in zip(components, shares, strict=True)
    )
    wanted = dimension * np.log1p(np.sqrt(2 * np.pi * variances)) - np.log(variances) / 2 - variances / width
    # Components below 1e-60 are left out, so the comparison ends well above that.
    seen = proposed > 1e-40 * proposed.max()
    assert seen.sum() >= 3
    constant = np.log(proposed[seen]) - wanted[seen]
    assert np.ptp(constant) < 1e-6


@pytest.mark.parametrize("dimension", [1, 3])
def test_keep_probability_against_the_sum_over_the_integers(dimension: int) -> None:
    variances = np.array([1e-3, 0.05, 1 / (2 * np.pi), 0.2, 1.0, 50.0])
    integers = np.arange(-400, 401)
    theta = np.exp(-(integers**2) / (2 * variances[:, None])).sum(1)
    expected = (theta / (1 + np.sqrt(2 * np.pi * variances))) ** dimension
    exact = [float(keep_probability(Decimal(float(v)), dimension)) for v in variances]
    assert np.allclose(exact, expected, rtol=1e-13, atol=0)
    assert np.allclose(keep_probabilities(variances, dimension), expected, rtol=1e-11, atol=0)


def test_seeds_repeat_and_differ() -> None:
    def draws(seed: int) -> list[np.ndarray]:
        source = SeededNoise(seed)
        return [
            source.discrete_laplace(50.0, (20,), permit=make_permit()),
            source.rounded_gaussian(50.0, (20,), permit=make_permit()),
            source.spherical(50.0, (20,), permit=make_permit()),
        ]

    assert all(np.array_equal(a, b) for a, b in zip(draws(1), draws(1), strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(draws(1), draws(2), strict=True))
    assert SeededNoise(1).seeded
    assert not ReleasedNoise().seeded


def test_wide_noise_keeps_its_width() -> None:
    for source in (ReleasedNoise(), SeededNoise(4)):
        sigma = 2.0**49
        drawn = source.rounded_gaussian(sigma, (4000,), permit=make_permit()) / sigma
        assert abs(drawn.std() - 1) < 0.1

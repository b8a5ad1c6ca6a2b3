"""Every mechanism on a worst neighbouring pair: within its claim, near it, and a broken twin beyond it.

Bounds are taken at a confidence of 1 − 1e-7, and simulated draws are seeded.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.support.noise import make_permit

from comity.audit import epsilon_lower_bound, gdp_lower_bound
from comity.privacy.loss import Approx, Pure
from comity.privacy.mechanisms import Gaussian, Laplace, NoisyMax, Scale, Spherical
from comity.privacy.randomness import NoiseSource, ReleasedNoise, SeededNoise

SURE = 1 - 1e-7
COUNT = 200_000


def laplace_scores(source: NoiseSource, width: float, shift: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    first = source.discrete_laplace(width, (count,), permit=make_permit())
    return first, shift + source.discrete_laplace(width, (count,), permit=make_permit())


def worst(scale: Scale, sensitivity: float, size: int = 1) -> int:
    """The largest shift along one axis that two neighbours can have on the grid."""
    found: int = math.floor(sensitivity / scale.grid + size**0.5)
    return found


@pytest.mark.parametrize(("source", "count", "near"), [(ReleasedNoise(), 20_000, 0.7), (SeededNoise(1), COUNT, 0.9)])
def test_laplace(source: Any, count: Any, near: float) -> None:
    scale = Laplace(Pure(1)).scale(sensitivity=1.0, shape=(1,))
    shift = worst(scale, 1.0)
    assert near <= epsilon_lower_bound(*laplace_scores(source, scale.total, shift, count), confidence=SURE) <= 1
    broken = laplace_scores(source, scale.total / 2, shift, count)
    assert epsilon_lower_bound(*broken, confidence=SURE) > 1


def test_laplace_calibrated_without_the_rounding_is_caught() -> None:
    """On a grid as coarse as the sensitivity, values Δ apart can be two units apart."""
    mechanism = Laplace(Pure(1))
    scale = mechanism.scale(sensitivity=1.0, shape=(1,), grid=1.0)
    shift = round(1.5 + 0.01) - round(0.5)
    assert epsilon_lower_bound(*laplace_scores(SeededNoise(1), scale.total, shift, COUNT), confidence=SURE) <= 1
    broken = laplace_scores(SeededNoise(1), 1.0, shift, COUNT)
    assert epsilon_lower_bound(*broken, confidence=SURE) > 1


def test_noise_on_a_grid_protects_only_values_on_the_grid() -> None:
    scale = Laplace(Pure(1)).scale(sensitivity=1.0, shape=(1,), grid=1.0)
    noise = SeededNoise(1).discrete_laplace(scale.total, (2, 2000), permit=make_permit())
    first, second = (0.25 + noise[0]) % 1, (0.75 + noise[1]) % 1
    assert epsilon_lower_bound(first, second, confidence=SURE) > 1


@pytest.mark.parametrize(("source", "count", "near"), [(ReleasedNoise(), 20_000, 0.0), (SeededNoise(2), COUNT, 0.75)])
def test_gaussian(source: Any, count: Any, near: float) -> None:
    mechanism = Gaussian(Approx(1, 1e-6))
    scale = mechanism.scale(sensitivity=1.0, shape=(1,))
    shift = worst(scale, 1.0)

    def measured(sigma: float) -> float:
        first, second = (source.rounded_gaussian(sigma, (count,), permit=make_permit()) for _ in range(2))
        return gdp_lower_bound(first, second + shift, delta=1e-6, confidence=SURE)

    assert near <= measured(scale.total) <= 1
    assert measured(scale.total / 4) > 1


def shared(parts: int, sigma: float, count: int) -> np.ndarray:
    source = SeededNoise(parts)
    found: Any = sum(source.rounded_gaussian(sigma, (count,), permit=make_permit()) for _ in range(parts))
    return np.asarray(found)


def test_gaussian_in_parts() -> None:
    parts, count = 30, 50_000
    scale = Gaussian(Approx(1, 1e-6)).scale(sensitivity=1.0, shape=(1,), parts=parts)
    shift = worst(scale, 1.0)
    drawn = shared(parts, scale.part, 2 * count)
    honest = gdp_lower_bound(drawn[:count], drawn[count:] + shift, delta=1e-6, confidence=SURE)
    assert 0.5 <= honest <= 1
    # Only a third of the parts arrives: less noise than was claimed.
    few = shared(parts // 3, scale.part, 2 * count)
    assert gdp_lower_bound(few[:count], few[count:] + shift, delta=1e-6, confidence=SURE) > 1


def test_parts_narrower_than_the_grid_are_caught() -> None:
    """σ = 4.53 shared among 2,000 parties on the integers: nearly no noise."""
    drawn = shared(2000, 4.53 / math.sqrt(2000), 4000)
    assert epsilon_lower_bound(drawn[:2000], drawn[2000:] + 1, delta=1e-6, confidence=SURE) > 3


def ratio_scores(rows: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """The log likelihood ratio between noise around 0 and around `shift`, up to the scale."""
    found: np.ndarray = np.sqrt(((rows - shift) ** 2).sum(1)) - np.sqrt((rows**2).sum(1))
    return found


def spherical_measured(first: np.ndarray, second: np.ndarray, shift: np.ndarray) -> float:
    # At the largest ratio scores are almost tied, up to floating point.
    scores = ratio_scores(first, shift), ratio_scores(second + shift, shift)
    return epsilon_lower_bound(*scores, confidence=SURE)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_spherical(size: int) -> None:
    source = SeededNoise(size)
    scale = Spherical(Pure(1)).scale(sensitivity=1.0, shape=(size,))
    shift = np.zeros(size)
    shift[0] = worst(scale, 1.0, size)

    def measured(beta: float) -> float:
        return spherical_measured(
            source._lattice_rows(beta, COUNT, size), source._lattice_rows(beta, COUNT, size), shift
        )

    assert (0.95, 0.8, 0.6)[size - 1] <= measured(scale.total) <= 1
    assert measured(scale.total / 2) > 1


def test_released_spherical() -> None:
    source, size, count = ReleasedNoise(), 2, 600
    scale = Spherical(Pure(1)).scale(sensitivity=1.0, shape=(size,))
    shift = np.array([worst(scale, 1.0, size), 0])

    def measured(beta: float) -> float:
        first, second = (
            np.array([source.spherical(beta, (size,), permit=make_permit()) for _ in range(count)]) for _ in range(2)
        )
        return spherical_measured(first, second, shift)

    assert measured(scale.total) <= 1
    assert measured(scale.total / 6) > 1


def test_spherical_noise_with_the_radius_of_one_dimension_is_caught() -> None:
    """A radius from Gamma(1) in ten dimensions piles the noise up around the value."""
    generator, size, count = np.random.default_rng(4), 10, 20_000
    scale = Spherical(Pure(1)).scale(sensitivity=1.0, shape=(size,))
    shift = np.zeros(size)
    shift[0] = worst(scale, 1.0, size)
    normal = generator.normal(size=(2, count, size))
    radius = generator.gamma(1, scale.total, (2, count, 1))
    twin = np.rint(normal / np.linalg.norm(normal, axis=2, keepdims=True) * radius)
    scores = (np.linalg.norm(rows, axis=1) for rows in (twin[0], twin[1] + shift))
    assert epsilon_lower_bound(*scores, confidence=SURE) > 1
    honest = SeededNoise(4)._lattice_rows(scale.total, 2 * count, size)
    scores = (np.linalg.norm(rows, axis=1) for rows in (honest[:count], honest[count:] + shift))
    assert epsilon_lower_bound(*scores, confidence=SURE) <= 1


@pytest.mark.parametrize(("source", "count", "near"), [(ReleasedNoise(), 20_000, 0.7), (SeededNoise(5), 20_000, 0.7)])
def test_noisy_max(source: Any, count: int, near: float) -> None:
    scale = NoisyMax(loss=Pure(1), sensitivity=1.0).scale
    shift = math.floor(1 / scale.grid + 1)
    tied, apart = np.array([0, 0]), np.array([-shift, shift])

    def measured(width: float) -> float:
        won = (source.noisy_max(np.tile(scores, (count, 1)), width, permit=make_permit()) for scores in (tied, apart))
        return epsilon_lower_bound(*won, confidence=SURE)

    assert near <= measured(scale.total) <= 1
    assert measured(scale.total / 4) > 1

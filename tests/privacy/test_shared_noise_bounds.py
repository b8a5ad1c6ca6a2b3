"""The claims about shared noise against exact probabilities, and how much of it each mechanism asks for."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gamma as gamma_distribution

from comity.errors import StudyError
from comity.privacy.loss import ZCDP, Pure
from comity.privacy.mechanisms import Gaussian, Laplace, Spherical
from comity.privacy.mechanisms.spherical import shared_loss
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.privacy.sampling.lattice_noise import SMOOTHING, count_parts

sensitivities = st.floats(1e-6, 1e6)
sizes = st.integers(1, 5000)
parties = st.integers(1, 2000)


@given(sensitivities, sizes, st.floats(0.01, 20), parties)
def test_laplace_parts_are_laid_out_for_the_same_noise(sensitivity: Any, size: Any, epsilon: float, parts: Any) -> None:
    alone = Laplace(Pure(epsilon)).scale(sensitivity=sensitivity, shape=(size,))
    shared = Laplace(Pure(epsilon)).scale(sensitivity=sensitivity, shape=(size,), parts=parts)
    assert (shared.total, shared.grid, shared.loss) == (alone.total, alone.grid, alone.loss)
    assert count_parts(shared.total, shared.part) == parts


@given(sensitivities, sizes, st.floats(0.01, 20), st.integers(2, 2000))
def test_spherical_parts_pay_for_rounding_precision_and_the_grid(
    sensitivity: Any, size: Any, epsilon: float, parts: int
) -> None:
    scale = Spherical(Pure(epsilon)).scale(sensitivity=sensitivity, shape=(size,), parts=parts)
    steps = sensitivity / scale.grid + math.sqrt(size)
    assert steps / scale.total + shared_loss(size, epsilon, parts) <= epsilon * (1 + 1e-15)
    assert count_parts(scale.total, scale.part) == parts
    # The smoothing adds next to nothing to the variance (d+1)β² of a coordinate.
    assert SMOOTHING * parts <= (size + 1) * scale.total**2 / 100
    assert scale.total * scale.grid <= 1.00101 * sensitivity / epsilon


def test_spherical_parts_on_a_coarse_grid_are_refused() -> None:
    Spherical(Pure(1)).scale(sensitivity=40.0, shape=(4,), grid=1.0)
    with pytest.raises(StudyError, match="finer"):
        Spherical(Pure(1)).scale(sensitivity=40.0, shape=(4,), parts=100, grid=1.0)


def spherical_sum(beta: float, parts: int, arrived: int, smoothing: float, reach: int) -> np.ndarray:
    """The probabilities of a sum of parts in two dimensions, by Fourier transforms of the parts' own."""
    nodes, weights = np.polynomial.legendre.leggauss(120)
    shape = float(Fraction(3, 2 * parts))
    # In y = v^shape the density near 0 is flat, so that few nodes do.
    top = gamma_distribution(shape, scale=2 * beta * beta).isf(1e-15) ** shape
    levels = (nodes + 1) / 2 * top
    variances = levels ** (1 / shape)
    density = weights / 2 * top * np.exp(-variances / (2 * beta * beta))
    values = np.fft.fftfreq(2 * reach) * 2 * reach
    total = np.zeros((2 * reach, 2 * reach))
    for variance, weight in zip(variances + smoothing, density / density.sum(), strict=True):
        one = np.exp(-(values**2) / (2 * variance))
        total += weight * np.outer(one, one) / one.sum() ** 2
    return np.fft.fftshift(np.fft.ifft2(np.fft.fft2(total) ** arrived).real)


def worst_ratio(probabilities: np.ndarray, shift: tuple[int, int]) -> float:
    """The largest |ln P(z)/P(z − s)| among points that the transforms resolve, per unit of |s|."""
    moved = np.roll(probabilities, shift, (0, 1))
    middle = len(probabilities) // 2
    seen = np.zeros(probabilities.shape, bool)
    seen[middle - 130 : middle + 130, middle - 130 : middle + 130] = True
    seen &= (probabilities > 1e-11) & (moved > 1e-11)
    return float(np.abs(np.log(probabilities[seen] / moved[seen])).max() / math.hypot(*shift))


@pytest.mark.parametrize("shift", [(1, 0), (3, 4), (10, 10)])
def test_spherical_parts_stay_within_the_claim_point_by_point(shift: Any) -> None:
    beta, parts = 14.0, 3
    honest = spherical_sum(beta, parts, parts, SMOOTHING, 400)
    assert 0.95 / beta <= worst_ratio(honest, shift) <= (1 + 1e-4) / beta
    # One more part than was laid out for is noise on top; one less is too little.
    assert worst_ratio(spherical_sum(beta, parts, parts + 1, SMOOTHING, 400), shift) <= (1 + 1e-4) / beta
    assert worst_ratio(spherical_sum(beta, parts, parts - 1, SMOOTHING, 400), shift) > 1.05 / beta


def test_spherical_parts_without_smoothing_exceed_the_claim() -> None:
    """A part whose variance happens to be far below one unit adds nothing; many of these pile up in one point."""
    beta, parts = 6.0, 40
    assert worst_ratio(spherical_sum(beta, parts, parts, 1e-9, 300), (1, 0)) > 1.1 / beta


def test_parts_have_the_width_that_is_stated() -> None:
    shape, parts = (4000,), 25
    noise: Any
    for noise, unit in ((Gaussian(ZCDP("0.1")), 1.0), (Laplace(Pure(1)), math.sqrt(2))):
        scale = noise.scale(sensitivity=1.0, shape=shape, parts=parts)
        part = noise.draw(SeededNoise(1), scale, shape, permit=simulated_permit("x"), part=True)
        whole = noise.draw(SeededNoise(2), scale, shape, permit=simulated_permit("x", 1))
        assert part.std() == pytest.approx(unit * scale.total / 5, rel=0.25)
        assert whole.std() == pytest.approx(unit * scale.total, rel=0.1)
    noise = Spherical(Pure(1))
    scale = noise.scale(sensitivity=1.0, shape=shape, parts=parts)
    part = noise.draw(SeededNoise(1), scale, shape, permit=simulated_permit("x"), part=True)
    assert part.std() == pytest.approx(math.sqrt(4001) * scale.total / 5, rel=0.3)

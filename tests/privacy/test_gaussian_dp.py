"""The lemma under the charge of Gaussian noise: rounded parts add up to a rounding of one Gaussian (proof.md, 3)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from comity.privacy.loss import GDP, Approx
from comity.privacy.mechanisms import Gaussian
from comity.privacy.mechanisms.gaussian import ripple, unevenness


def rounded(sigma: float, reach: int, around: float = 0.0) -> np.ndarray:
    """The probabilities of the integers −reach … reach for a rounding of N(around, σ²)."""
    z = np.arange(-reach, reach + 1.0) - around
    # On the side of the tail where nothing cancels.
    return np.asarray(ndtr((0.5 - np.abs(z)) / sigma) - ndtr((-0.5 - np.abs(z)) / sigma))


def summed(one: np.ndarray, parts: int) -> np.ndarray:
    total = one
    for _ in range(parts - 1):
        total = np.convolve(total, one)
    return total


def rounding_with_uniforms(sigma: float, parts: int, reach: int) -> np.ndarray:
    """The law of [Y + u_2 + … + u_n]: the density of Y + u_1 + … + u_n at the integers, by its transform."""
    t = np.linspace(-8, 8, 1 << 15, endpoint=False)
    transform = np.exp(-2 * (math.pi * sigma * t) ** 2) * np.sinc(t) ** parts
    integers = np.arange(-reach, reach + 1)
    return np.array([float((transform * np.cos(2 * math.pi * z * t)).sum()) * 16 / len(t) for z in integers])


@pytest.mark.parametrize(("part", "parts", "near"), [(0.71, 2, 0.5), (0.8, 3, 0.1), (1.0, 2, 0.5), (1.0, 5, 0.001)])
def test_sums_of_rounded_parts_are_a_rounding_up_to_the_ripple(part: float, parts: int, near: float) -> None:
    """At widths where the ripple can be seen it stays below the bound, and of two parts comes near it."""
    middle = round(4 * part * math.sqrt(parts))
    sums = summed(rounded(part, 40), parts)
    sums = sums[len(sums) // 2 - middle : len(sums) // 2 + middle + 1]
    found = float(np.abs(np.log(sums / rounding_with_uniforms(part * math.sqrt(parts), parts, middle))).max())
    assert near * ripple(part, parts) < found <= ripple(part, parts)


def test_the_ripple_of_two_parts_is_that_of_half_frequencies() -> None:
    """exp(−π²σ²) and not exp(−2π²σ²): the latter would be too small by far."""
    sums = summed(rounded(0.8, 40), 2)
    found = float(np.abs(np.log(sums[76:85] / rounding_with_uniforms(0.8 * math.sqrt(2), 2, 4))).max())
    assert found > 100 * math.exp(-2 * math.pi**2 * 0.64)
    assert 2 * math.exp(-(math.pi**2) * 4) < ripple(2.0, 2) < 2.0**-55
    assert ripple(3.0, 2) < 2.0**-126


def test_the_ripple_of_many_parts_is_above_the_sum_of_its_terms() -> None:
    for parts in (2, 64, 65, 66, 500):
        terms = [math.exp(-2 * math.pi**2 * k / (k + 1)) for k in range(1, parts)]
        assert 2.06 * sum(terms) <= ripple(1.0, parts) <= 2.31 * sum(terms)
    assert ripple(2.0, 1) == 0
    assert unevenness(7, 2.0, 5) == 7 * ripple(2.0, 5)


def delta_between(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(0.0, first - math.exp(epsilon) * second).sum())


def charged(mu: float, epsilon: float) -> float:
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def shifted(noise: np.ndarray, shift: int) -> tuple[np.ndarray, np.ndarray]:
    return np.append(noise, np.zeros(shift)), np.append(np.zeros(shift), noise)


@pytest.mark.parametrize(("mu", "parts"), [(0.5, 1), (2.0, 1), (30.0, 1), (1.0, 3)])
def test_the_noise_keeps_the_curve_that_it_is_charged_for(mu: float, parts: int) -> None:
    """Exact δ(ε) of the integers that are released, on a coarse grid, against Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""
    scale = Gaussian(GDP(mu)).scale(sensitivity=1.0, shape=(1,), parts=parts, grid=0.25)
    pair = shifted(summed(rounded(scale.part, 200), parts), 5)  # a sensitivity of 4 units, and one for the rounding
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        assert delta_between(*pair, epsilon) <= charged(mu, epsilon) * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("narrow", [0.95, 0.7])
def test_noise_that_is_too_narrow_does_not_keep_the_curve(narrow: float) -> None:
    mu, shift = 1.0, 5
    pair = shifted(rounded(narrow * shift / mu, 100), shift)
    assert max(delta_between(*pair, epsilon) - charged(mu, epsilon) for epsilon in (0.0, 0.5, 1.0)) > 1e-3


def test_parts_far_below_a_unit_do_not_keep_the_curve() -> None:
    """Each of a hundred parts is nearly always zero, and so is their sum."""
    part, parts = 0.15, 100
    pair = shifted(summed(rounded(part, 4), parts), 1)
    assert delta_between(*pair, 1.0) > 10 * charged(1 / (part * math.sqrt(parts)), 1.0)


def test_a_value_that_is_not_on_the_grid_is_told_by_its_noise() -> None:
    """Rounded noise *added* to 0 and to ¼ never collides; the rounding of a sum with ¼ keeps the curve."""
    mu = 0.25 / 3
    apart = np.zeros(82), np.zeros(82)
    apart[0][::2], apart[1][1::2] = rounded(3.0, 20), rounded(3.0, 20)
    assert delta_between(*apart, 1.0) > 0.99
    for epsilon in (0.0, 0.05, 0.2):
        pair = rounded(3.0, 60), rounded(3.0, 60, around=0.25)
        assert delta_between(*pair, epsilon) <= charged(mu, epsilon) + 1e-15


def test_widths_at_usual_budgets() -> None:
    """σ for sensitivity 1: the exact curve, and a thousandth for the grid, which is not made up for otherwise."""
    for epsilon, delta, sigma in ((1, 1e-6, 4.2247), (0.5, 1e-6, 8.0576), (0.1, 1e-6, 36.3047), (1, 1e-5, 3.7306)):
        scale = Gaussian(Approx(epsilon, delta)).scale(sensitivity=1.0, shape=(1,))
        assert sigma * 0.9999 < scale.total * scale.grid < sigma * 1.0012

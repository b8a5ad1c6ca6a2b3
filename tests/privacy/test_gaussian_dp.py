"""The lemma under the charge of Gaussian noise: its integers are a post-processed continuous Gaussian (proof.md, 3)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from comity.privacy.loss import GDP
from comity.privacy.mechanisms import Gaussian
from comity.privacy.mechanisms.gaussian import SMOOTHING, gap, unevenness


def pmf(variance: float, reach: int) -> np.ndarray:
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * variance))
    return np.asarray(weights / weights.sum())


def density(x: np.ndarray, variance: float) -> np.ndarray:
    return np.asarray(np.exp(-(x**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance))


def rippled(variance: float, smoothing: float, at: int) -> tuple[float, float]:
    """The probability of the integer 0 for the discrete Gaussian around −`at`, and for N(−at, σ'²) sent through the
    kernel φ_s(n − y)/Σ φ_s(m − y). Sums over a fine grid give integrals of such functions to the last digits."""
    y = np.arange(-60, 60, 1 / 64)
    kernel = density(y, smoothing) / sum(density(n - y, smoothing) for n in range(-90, 91))
    sent = float((density(y + at, variance - smoothing) * kernel).sum() / 64)
    integers = np.arange(-300, 301.0)
    return math.exp(-(at**2) / (2 * variance)) / float(np.exp(-(integers**2) / (2 * variance)).sum()), sent


@pytest.mark.parametrize(
    ("variance", "smoothing", "at"), [(0.52, 0.5, 0), (0.52, 0.5, 1), (20.0, 0.5, 3), (1.1, 1.0, 2)]
)
def test_integers_of_the_noise_are_a_post_processed_gaussian_up_to_the_ripple(variance, smoothing, at):
    """At small s the ripple is large enough to be seen, and stays below what the lemma says."""
    drawn, sent = rippled(variance, smoothing, at)
    ripple = 2 * sum(math.exp(-2 * math.pi**2 * smoothing * k * k) for k in range(1, 5))
    found = abs(math.log(drawn / sent))
    assert found <= 2.1 * ripple


@pytest.mark.parametrize("smoothing", [0.3, 0.5, 1.0])
def test_sums_over_the_integers_ripple_by_so_much_and_no_more(smoothing):
    y = np.linspace(0, 1, 257)
    sums = sum(density(n - y, smoothing) for n in range(-60, 61))
    ripple = 2 * sum(math.exp(-2 * math.pi**2 * smoothing * k * k) for k in range(1, 5))
    assert 0.99 * ripple < np.abs(sums - 1).max() <= ripple * (1 + 1e-6)


def test_the_ripple_of_the_smoothing_is_beyond_reach():
    assert 2 * math.exp(-2 * math.pi**2 * SMOOTHING) < 2.0**-220
    assert unevenness(1 << 30, 1000.0, 1) >= (1 << 30) * 4.2 * math.exp(-2 * math.pi**2 * SMOOTHING)
    assert unevenness(7, 2.0, 5) >= 7 * gap(2.0, 5) / 2


def delta_between(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(0.0, first - math.exp(epsilon) * second).sum())


@pytest.mark.parametrize(("mu", "parts"), [(0.5, 1), (2.0, 1), (1.0, 3)])
def test_the_noise_keeps_the_curve_that_it_is_charged_for(mu, parts):
    """Exact δ(ε) of the integers that are released, on a coarse grid, against Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""
    scale = Gaussian(GDP(mu)).scale(sensitivity=1.0, shape=(1,), parts=parts, grid=0.25)
    one = pmf(scale.part**2, 200)
    noise = one
    for _ in range(parts - 1):
        noise = np.convolve(noise, one)
    shift = 5  # a sensitivity of 4 units, and one for the rounding
    first, second = np.append(noise, np.zeros(shift)), np.append(np.zeros(shift), noise)
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        charged = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        assert delta_between(first, second, epsilon) <= charged * (1 + 1e-9) + 1e-15


def test_without_the_smoothing_the_curve_is_not_kept():
    """The positive control: a discrete Gaussian of σ = Δ/μ has atoms that a Gaussian does not have."""
    mu = 2.0
    noise = pmf(1 / mu**2, 60)
    first, second = np.append(noise, [0.0]), np.append([0.0], noise)
    charged = ndtr(mu / 2 - 0.5 / mu) - math.exp(0.5) * ndtr(-mu / 2 - 0.5 / mu)
    assert delta_between(first, second, 0.5) > charged * 1.02

"""The exact sampler of normal variables: its law, its tails, and that floating point decides nothing.

False alarms: seeded tests are fixed, released ones below 1e-7.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr
from scipy.stats import chisquare, kstest

from comity.audit import gdp_lower_bound
from comity.entropy import fresh_seed
from comity.privacy.loss import Approx
from comity.privacy.mechanisms import Gaussian
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import ReleasedNoise
from comity.privacy.sampling import lazy_bits as sampler
from comity.privacy.sampling.lazy_bits import LazyWords, exponential_between, normals, step_curve

ALARM = 1e-8


def seeded(number: int) -> LazyWords:
    return LazyWords(number.to_bytes(32, "big"))


def cells(sigma: float, reach: int) -> np.ndarray:
    z = np.abs(np.arange(-reach, reach + 1.0))
    return np.asarray(ndtr((0.5 - z) / sigma) - ndtr((-0.5 - z) / sigma))


def agreement(drawn: np.ndarray, sigma: float) -> float:
    """Chi-square against exact cell probabilities; each tail with fewer than ten expected is one cell."""
    reach = int(12 * sigma) + 3
    expected, counted = cells(sigma, reach) * len(drawn), np.bincount(drawn + reach, minlength=2 * reach + 1)
    inner = np.flatnonzero(expected >= 10)
    ends = slice(0, inner[0]), slice(inner[-1] + 1, None)
    seen = [*counted[inner], *(counted[end].sum() for end in ends)]
    wanted = [*expected[inner], *(max(float(expected[end].sum()), 1e-9) for end in ends)]
    return float(chisquare(seen, np.array(wanted) * sum(seen) / sum(wanted)).pvalue)


@pytest.mark.parametrize("sigma", [0.3, 0.71, 1.0, 2.0, 3.7, 15.99, 16.0, 40.0, 1000.3])
def test_rounded_normals_have_exact_cell_probabilities(sigma: float) -> None:
    assert agreement(normals(sigma, 400_000, seeded(1)).rounded(), sigma) > ALARM
    assert agreement(ReleasedNoise().rounded_gaussian(sigma, (100_000,), permit=simulated_permit("x")), sigma) > ALARM


@pytest.mark.parametrize("twin", ["truncated", "narrow", "discrete"])
def test_the_test_sees_what_is_not_a_rounded_normal(twin: str) -> None:
    real = normals(2.0, 400_000, seeded(2)).doubles()
    z = np.arange(-30, 31)
    weights = np.exp(-(z**2) / (2 * 0.71**2))
    drawn, sigma = {
        "truncated": (np.trunc(real), 2.0),
        "narrow": (np.rint(0.99 * real), 2.0),
        "discrete": (np.random.default_rng(1).choice(z, 400_000, p=weights / weights.sum()), 0.71),
    }[twin]
    assert agreement(drawn.astype(np.int64), sigma) < ALARM


@pytest.mark.parametrize("sigma", [0.05, 5.0, 2.0**20, 2.0**49 * 1.37, 2.0**50])
def test_the_real_numbers_are_normal_whatever_the_width(sigma: Any) -> None:
    assert kstest(normals(sigma, 200_000, seeded(3)).doubles() / sigma, "norm").pvalue > ALARM


def test_the_last_bits_of_wide_noise_are_even() -> None:
    """Where a sampler computes in doubles, low bits of wide noise are all zero."""
    drawn = normals(2.0**50, 100_000, seeded(4)).rounded()
    assert chisquare(np.bincount(drawn % 64, minlength=64)).pvalue > ALARM


@pytest.mark.parametrize("sigma", [1.0, 24.0, 31.9])
def test_the_tail_behind_the_last_cell(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a table up to three deviations a tail is met often enough to be looked at: its share and its shape."""
    monkeypatch.setattr(sampler, "step_curve", lambda s: step_curve(s, 3.0))
    count = 60_000
    drawn = np.abs(normals(sigma, count, seeded(5)).doubles()) / sigma
    start = math.ldexp(len(step_curve(sigma, 3.0).weights) - 1, step_curve(sigma, 3.0).exponent) / sigma
    beyond = drawn[drawn > start]
    share = 2 * float(ndtr(-start))
    assert abs(len(beyond) - count * share) < 6 * math.sqrt(count * share)
    assert kstest(beyond, lambda x: 1 - np.exp(log_ndtr(-x) - log_ndtr(-start))).pvalue > ALARM


def test_each_stretch_behind_the_last_cell_has_half_the_weight_of_the_one_before() -> None:
    """A cell is chosen as often as its weight says, which is what it is kept by."""
    curve, words = step_curve(5.0, 3.0), seeded(11)
    start, (first,) = words.take(1, 8000)
    last = len(curve.weights) - 1
    found = [curve.beyond(words, start + index, word) for index, word in enumerate(first.tolist())]
    offsets = np.array([cell - last for cell, _ in found])
    expected = [Fraction(curve.weights[-1], 32 << int(offset // 16)) for offset in offsets]
    assert [weight for _, weight in found] == expected
    shares = 0.5 ** np.arange(1, 9)
    seen = np.bincount(np.minimum(offsets // 16, 8), minlength=9)
    assert chisquare(seen, 8000 * np.append(shares, shares[-1])).pvalue > ALARM
    assert chisquare(np.bincount(offsets % 16)).pvalue > ALARM


@pytest.mark.parametrize("sigma", [0.1, 1.0, 1.999, 2.0, 3.1, 2.0**50])
@pytest.mark.parametrize("reach", [3.0, 12.0])
def test_the_steps_lie_above_the_density_and_add_up(sigma: float, reach: float) -> None:
    curve = step_curve(sigma, reach)
    width = Fraction(2) ** curve.exponent / Fraction(sigma)
    assert Fraction(1, 32) < width <= Fraction(1, 16)
    assert sum(curve.weights) == 1 << 62
    assert curve.ends[-1] == (1 << 62) - curve.weights[-1]
    for cell, weight in list(enumerate(curve.weights[:-1]))[:: 1 + len(curve.weights) // 40]:
        edge = cell * width
        _, most = exponential_between(edge * edge / 2, edge * edge / 2, 192)
        assert weight >= curve.height * most
    for stretch in range(5):
        edge = (len(curve.weights) - 1 + 16 * stretch) * width
        _, most = exponential_between(edge * edge / 2, edge * edge / 2, 192)
        assert Fraction(curve.weights[-1], 16 << (stretch + 1)) >= curve.height * most
    # Few proposals are lost to the steps.
    assert curve.height * math.sqrt(math.pi / 2) / float(width) > 0.96 * 2**62 or reach == 3.0


def test_exact_decisions_are_those_of_the_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    """When every comparison is settled by bounds, or none but the closest, the same seed gives the same numbers: what
    is drawn does not depend on how a machine rounds."""
    fast = normals(37.5, 300, seeded(6))
    monkeypatch.setattr(sampler, "SLACK", 2.0)
    slow = normals(37.5, 300, seeded(6))
    assert np.array_equal(fast.cells, slow.cells)
    assert np.array_equal(fast.places, slow.places)
    assert np.array_equal(fast.rounded(), slow.rounded())
    assert not np.array_equal(fast.rounded(), normals(37.5, 300, seeded(7)).rounded())


def at(edge: Fraction) -> Any:
    """An edge that is known at whatever precision it is asked for."""
    return lambda _: (edge, edge)


def test_a_comparison_that_64_bits_leave_open_is_settled_by_more() -> None:
    words = seeded(8)
    start, first = words.take(1, 40)
    for index, word in enumerate(first[0].tolist()):
        for bits in (65, 200, 500):
            number = words.longer(start + index, word, bits)
            assert number >> (bits - 64) == word
            above, below = Fraction(number + 1, 1 << bits), Fraction(number, 1 << bits)
            assert words.below(start + index, word, at(above))
            assert not words.below(start + index, word, at(below))


@pytest.mark.parametrize("x", [Fraction(0), Fraction(1, 3), Fraction(7), Fraction(150), Fraction(191), Fraction(5000)])
def test_bounds_of_the_exponential(x: Any) -> None:
    with localcontext() as context:
        context.prec = 400
        truth = Fraction((Decimal(-x.numerator) / Decimal(x.denominator)).exp())
    for bits in (64, 192, 768):
        least, most = exponential_between(x, x, bits)
        assert least < truth < most
        assert most - least <= Fraction(1, 1 << (bits - 8))


def test_rounding_is_that_of_the_exact_number() -> None:
    for sigma in (0.2, 1.0, 7.9, 8.0, 17.0, 2.0**33):
        drawn = normals(sigma, 200, seeded(9))
        whole, doubles = drawn.rounded(), drawn.doubles()
        for index in range(200):
            least, most = drawn.between(index, 256)
            assert most - least == Fraction(2) ** (drawn.exponent - 256)
            assert whole[index] - Fraction(1, 2) <= least < most <= whole[index] + Fraction(1, 2)
            assert abs(Fraction(float(doubles[index])) - least) <= abs(least) * Fraction(1, 2**51) + Fraction(2) ** (
                drawn.exponent - 63
            )


def test_bits_that_no_decision_looked_at_are_uniform() -> None:
    drawn = normals(1.0, 3000, seeded(10))
    further = [drawn.words.longer(int(p), int(w), 72) & 255 for p, w in zip(drawn.positions, drawn.places, strict=True)]
    assert chisquare(np.bincount(further, minlength=256)).pvalue > ALARM


def test_released_noise_holds_its_claim_and_a_narrow_twin_does_not() -> None:
    count, delta, sure = 400_000, 1e-6, 1 - 1e-7
    scale = Gaussian(Approx(1, delta)).scale(sensitivity=1.0, shape=(1,))
    shift = math.floor(1 / scale.grid + 1)

    def measured(sigma: float) -> float:
        first, second = (normals(sigma, count, LazyWords(fresh_seed())).rounded() for _ in range(2))
        return gdp_lower_bound(first, second + shift, delta=delta, confidence=sure)

    assert 0.7 <= measured(scale.total) <= 1
    assert measured(0.6 * scale.total) > 1

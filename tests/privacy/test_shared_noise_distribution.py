"""Parts of noise, and their sums, against the exact probabilities.

False alarms: seeded tests are fixed, released ones below 1e-7.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, logser, nbinom, poisson
from scipy.stats import gamma as gamma_distribution
from tests.support.noise import make_permit

from comity.errors import Refused, StudyError
from comity.privacy.randomness import ReleasedNoise, SeededNoise
from comity.privacy.sampling.lattice_noise import SMOOTHING, _log_rate, _logarithmic, count_parts, part_width
from comity.privacy.sampling.precise import PRECISE, Uniforms, gamma, poisson_table, whole_geometrics

ALARM = 1e-8


def sources(released: int = 20_000) -> list[Any]:
    return [pytest.param(ReleasedNoise(), released, id="released"), pytest.param(SeededNoise(7), 200_000, id="seeded")]


def pooled(counted: np.ndarray, expected: np.ndarray) -> float:
    common = expected >= 10
    observed = np.append(counted[common], counted[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    if wanted[-1] < 1:
        observed, wanted = observed[:-1], wanted[:-1]
    return float(chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)


def agreement(drawn: np.ndarray, probabilities: np.ndarray) -> float:
    """The p-value of integers against symmetric probabilities around the middle entry."""
    reach = len(probabilities) // 2
    assert np.abs(drawn).max() <= reach
    return pooled(np.bincount(drawn + reach, minlength=len(probabilities)), probabilities * len(drawn))


def laplace_parts(scale: float, parts: int, arrived: int, reach: int) -> np.ndarray:
    """The exact probabilities of `arrived` of `parts` parts, by convolution of their negative binomials."""
    one = nbinom.pmf(np.arange(reach + 1), 1 / parts, -math.expm1(-1 / scale))
    total = part = np.convolve(one, one[::-1])
    for _ in range(arrived - 1):
        total = np.convolve(total, part)
        cut = (len(total) - len(part)) // 2
        total = total[cut : cut + len(part)]
    return total


def laplace(scale: float, reach: int) -> np.ndarray:
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    found: np.ndarray = weights / weights.sum()
    return found


@pytest.mark.parametrize(("scale", "parts"), [(0.7, 3), (4.0, 2), (9.0, 7)])
def test_negative_binomial_parts_convolve_to_the_discrete_laplace(scale: float, parts: int) -> None:
    assert np.allclose(laplace_parts(scale, parts, parts, 600), laplace(scale, 600), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("source", "count"), sources())
@pytest.mark.parametrize(("scale", "parts"), [(0.4, 2), (5.3, 3), (40.0, 8)])
def test_laplace_parts(source: Any, count: Any, scale: float, parts: int) -> None:
    drawn = [source.laplace_part(scale, parts, (count,), permit=make_permit()) for _ in range(parts)]
    assert drawn[0].dtype == np.int64
    assert agreement(drawn[0], laplace_parts(scale, parts, 1, 1500)) > ALARM
    assert agreement(sum(drawn), laplace(scale, 1500)) > ALARM


def test_the_test_sees_a_missing_part() -> None:
    drawn: Any = sum(SeededNoise(1).laplace_part(5.0, 8, (200_000,), permit=make_permit()) for _ in range(7))
    assert agreement(drawn, laplace(5.0, 400)) < ALARM


@pytest.mark.parametrize("source", [ReleasedNoise(), SeededNoise(2)], ids=["released", "seeded"])
def test_wide_laplace_parts_keep_their_width(source: Any) -> None:
    """At the width of a hundred thousand coordinates, floating point alone settles few of the jumps' last units."""
    scale, parts, count = 2.0**40, 4, 4000
    drawn = sum(source.laplace_part(scale, parts, (count,), permit=make_permit()) for _ in range(parts)) / scale
    assert kstest(drawn, "laplace").pvalue > ALARM


def smoothed(discrete: np.ndarray, below: np.ndarray, at: np.ndarray) -> float:
    """The p-value of integers with P[X < k] = `below` and P[X = k] = `at`: uniform between the two."""
    spread = below + np.random.default_rng(5).random(len(discrete)) * at
    return float(kstest(spread, "uniform").pvalue)


@pytest.mark.parametrize("scale", [0.2, 1.0, 25.0, 3000.0])
def test_logarithmic_jumps(scale: float) -> None:
    drawn = _logarithmic(_log_rate(Decimal(scale)), 20_000)
    q = math.exp(-1 / scale)
    assert smoothed(drawn, logser.cdf(drawn - 1, q), logser.pmf(drawn, q)) > ALARM


@pytest.mark.parametrize("mean", [1e-3, 0.9, 40.5, 900.0])
def test_poisson_by_table(mean: float) -> None:
    drawn = poisson_table(Decimal(mean)).draw(100_000)
    assert smoothed(drawn, poisson.cdf(drawn - 1, mean), poisson.pmf(drawn, mean)) > ALARM


def test_tables_agree_with_the_distribution_function() -> None:
    for mean in (Decimal("0.01"), Decimal(7), Decimal(900)):
        table = poisson_table(mean)
        shares = np.array([float(Decimal(entry) / (1 << 192)) for entry in table.cumulated])
        assert np.allclose(shares, poisson.cdf(np.arange(len(shares)), float(mean)), rtol=1e-10, atol=2.0**-120)
        assert all(a <= b for a, b in itertools.pairwise(table.cumulated))
        assert len(shares) < 2**14
        beyond = PRECISE.subtract(1, PRECISE.divide(table.cumulated[-1], 1 << 192))
        assert beyond < Decimal(2) ** -170


def test_ties_of_the_upper_words_are_settled_by_the_lower_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniforms one above, at and one below an entry, none of which the upper 64 bits can tell apart."""
    table = poisson_table(Decimal(3))
    entry = table.cumulated[2]
    around = [entry - 1, entry, entry + 1]
    words = np.array([[value >> 128, (value >> 64) % 2**64, value % 2**64] for value in around], np.uint64)
    monkeypatch.setattr("comity.privacy.sampling.precise.os.urandom", lambda count: words.astype("<u8").tobytes())
    assert table.draw(3).tolist() == [2, 3, 3]


def test_the_decimals_agree_with_the_doubles() -> None:
    """Marking every number as unsure must change nothing but the time it takes."""
    count, log = 300, Decimal("-0.01")
    uniforms = Uniforms(count)
    logs = np.full(count, float(log))
    fast = whole_geometrics(uniforms, logs, lambda _: log)
    slow = whole_geometrics(uniforms, logs, lambda _: log, unsure=np.ones(count, bool))
    assert np.array_equal(fast, slow)
    assert np.allclose(uniforms.doubles, [float(uniforms.precise(i)) for i in range(count)], rtol=2.0**-50, atol=0)


@pytest.mark.parametrize("shape", [Fraction(1, 300), Fraction(2, 3), Fraction(1, 2), Fraction(7), Fraction(51, 14)])
def test_gamma_of_any_shape(shape: Any) -> None:
    logs = np.array([float(gamma(shape).ln()) for _ in range(600)])
    # Far below 1 a double holds no Gamma variable of a small shape, and P[X < x] is x^a/Γ(a + 1).
    lower = np.exp(float(shape) * logs) / math.gamma(float(shape) + 1)
    shares = np.where(logs < -40, lower, gamma_distribution(float(shape)).cdf(np.exp(np.maximum(logs, -40))))
    assert kstest(shares, "uniform").pvalue > ALARM


def mixed(beta: float, dimension: int, shape: float, smoothing: float, reach: int) -> np.ndarray:
    """Discrete Gaussians with a variance of Gamma(shape, 2β²) + smoothing, point by point on the lattice."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    quantiles = (nodes + 1) / 2
    # Near 0 and 1 the quantiles move fast: a smooth step spends more nodes there.
    steps, slope = quantiles**4 * (5 - 4 * quantiles), 20 * quantiles**3 * (1 - quantiles)
    variances = gamma_distribution(shape, scale=2 * beta * beta).ppf(steps) + smoothing
    values = np.arange(-reach, reach + 1)
    one = np.exp(-(values**2) / (2 * variances[:, None]))
    wide = np.arange(-20 * reach, 20 * reach + 1)
    one /= np.array([np.exp(-(wide**2) / (2 * v)).sum() for v in variances])[:, None]
    letters = "abc"[:dimension]
    found: np.ndarray = np.einsum(
        ",".join(["n", *("n" + letter for letter in letters)]) + "->" + letters, weights / 2 * slope, *[one] * dimension
    )
    return found


@pytest.mark.parametrize(
    ("source", "count"), [(ReleasedNoise(), 500), (SeededNoise(3), 60_000)], ids=["released", "seeded"]
)
@pytest.mark.parametrize(("dimension", "parts"), [(1, 2), (2, 3)])
def test_spherical_parts(source: Any, count: int, dimension: int, parts: int) -> None:
    beta, reach = 9.0, 110
    if source.seeded:
        total = sum(source._part_rows(beta, parts, count, dimension) for _ in range(parts))
    else:
        rows = [
            sum(source.spherical_part(beta, parts, (dimension,), permit=make_permit()) for _ in range(parts))
            for _ in range(count)
        ]
        total = np.array(rows)
    probabilities = mixed(beta, dimension, (dimension + 1) / 2, SMOOTHING * parts, reach)
    inside = total[(np.abs(total) <= reach).all(1)]
    if source.seeded:
        index = ((inside + reach) * (2 * reach + 1) ** np.arange(dimension)).sum(1)
        assert pooled(np.bincount(index, minlength=probabilities.size), probabilities.ravel() * count) > ALARM
    squares = (
        np.add.outer(*[np.arange(-reach, reach + 1) ** 2] * 2) if dimension == 2 else np.arange(-reach, reach + 1) ** 2
    )
    rings = (np.sqrt(squares) // 4).astype(int).ravel()
    expected = np.bincount(rings, weights=probabilities.ravel() * count)
    seen = np.bincount((np.sqrt((inside**2).sum(1)) // 4).astype(int), minlength=len(expected))
    assert pooled(seen, expected) > ALARM


def test_the_number_of_parts_is_read_off_a_scale_exactly() -> None:
    for parts in [*range(1, 3000), 10**6, 2**33 + 1]:
        for total in (1 / 3, 4.53e6):
            assert count_parts(total, part_width(total, parts)) == parts


@pytest.mark.parametrize("source", [ReleasedNoise(), SeededNoise(1)], ids=["released", "seeded"])
def test_parts_take_a_permit_and_sane_numbers(source: Any) -> None:
    draws: tuple[Callable[..., Any], ...] = (
        lambda scale, parts, allowed: source.laplace_part(scale, parts, (2, 3), permit=allowed),
        lambda scale, parts, allowed: source.spherical_part(scale, parts, (2, 3), permit=allowed),
    )
    for draw in draws:
        once = make_permit()
        assert draw(30.0, 3, once).shape == (2, 3)
        with pytest.raises(Refused):
            draw(30.0, 3, once)
        for scale, parts in ((0.0, 3), (math.nan, 3), (2.0**51, 3), (30.0, 0)):
            untouched = make_permit()
            with pytest.raises(StudyError):
                draw(scale, parts, untouched)
            assert not untouched.used


def test_seeds_repeat_and_released_draws_do_not() -> None:
    def draws(source: Any) -> list[np.ndarray]:
        return [
            source.laplace_part(50.0, 2, (20,), permit=make_permit()),
            source.spherical_part(50.0, 2, (20,), permit=make_permit()),
            source.rounded_gaussian(50.0, (20,), permit=make_permit()),
        ]

    assert all(np.array_equal(a, b) for a, b in zip(draws(SeededNoise(1)), draws(SeededNoise(1)), strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(draws(SeededNoise(1)), draws(SeededNoise(2)), strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(draws(ReleasedNoise()), draws(ReleasedNoise()), strict=True))

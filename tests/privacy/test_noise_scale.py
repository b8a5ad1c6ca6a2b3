"""How much noise each mechanism asks for, against exact probabilities."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from comity.errors import StudyError
from comity.privacy.accounting import NUMERICAL, gdp_square
from comity.privacy.loss import GDP, ZCDP, Approx, Pure
from comity.privacy.mechanisms import Gaussian, Laplace, Noise, NoisyMax, Scale, Spherical
from comity.privacy.mechanisms.gaussian import ripple, unevenness
from comity.privacy.mechanisms.spherical import gap, numerical_loss
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise

sensitivities = st.floats(1e-6, 1e6)
sizes = st.integers(1, 5000)
epsilons = st.floats(0.01, 20)


def pmf(sigma: float, reach: int) -> np.ndarray:
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * sigma * sigma))
    found: np.ndarray = weights / weights.sum()
    return found


def rounded_pmf(sigma: float, reach: int) -> np.ndarray:
    z = np.abs(np.arange(-reach, reach + 1.0))
    return np.asarray(ndtr((0.5 - z) / sigma) - ndtr((-0.5 - z) / sigma))


def renyi(first: np.ndarray, second: np.ndarray, order: float) -> float:
    seen = (first > 1e-290) & (second > 1e-290)
    logs = order * np.log(first[seen]) + (1 - order) * np.log(second[seen])
    top = logs.max()
    return float((top + np.log(np.exp(logs - top).sum())) / (order - 1))


def shifted(probabilities: np.ndarray, by: int) -> tuple[np.ndarray, np.ndarray]:
    pad = np.zeros(by)
    return np.append(probabilities, pad), np.append(pad, probabilities)


@given(sensitivities, sizes, epsilons)
def test_laplace_pays_for_the_rounded_sensitivity(sensitivity: Any, size: Any, epsilon: Any) -> None:
    scale = Laplace(Pure(epsilon)).scale(sensitivity=sensitivity, shape=(size,))
    assert (sensitivity / scale.grid + size) / scale.total <= epsilon
    assert scale.total * scale.grid <= 1.001001 * sensitivity / epsilon
    assert (scale.part, scale.tau, scale.loss) == (scale.total, 0.0, Pure(epsilon))


@given(sensitivities, sizes, st.one_of(epsilons, st.floats(20, 1e6)))
def test_spherical_pays_for_the_rounded_sensitivity_and_the_precision(
    sensitivity: Any, size: Any, epsilon: Any
) -> None:
    scale = Spherical(Pure(epsilon)).scale(sensitivity=sensitivity, shape=(size,))
    steps = sensitivity / scale.grid + math.sqrt(size)
    assert steps / scale.total + numerical_loss(size, epsilon) <= epsilon * (1 + 1e-15)
    assert scale.total * scale.grid <= 1.00101 * sensitivity / epsilon
    assert scale.total >= 10 * math.sqrt(size)


@given(sensitivities, sizes, st.floats(0.01, 5), st.integers(1, 100_000))
def test_gaussian_pays_for_the_rounded_sensitivity_and_the_parts(
    sensitivity: Any, size: Any, mu: float, parts: int
) -> None:
    scale = Gaussian(GDP(mu)).scale(sensitivity=sensitivity, shape=(size,), parts=parts)
    steps = sensitivity / scale.grid + math.sqrt(size)
    assert steps / scale.total <= mu
    assert unevenness(size, scale.part, parts) <= NUMERICAL * mu**2
    assert scale.part**2 * parts >= scale.total**2
    assert parts == 1 or scale.part >= 2
    assert scale.total * scale.grid <= 1.0011 * sensitivity / mu
    assert (scale.loss, Gaussian(GDP(mu)).charged) == (GDP(mu), GDP(mu))


def test_a_grid_on_which_parts_are_too_uneven_is_refused() -> None:
    """At just above two units a sum of parts is 2^−55 off in each coordinate: fine for one, not for ten thousand."""
    noise = Gaussian(GDP(1))
    one = noise.scale(sensitivity=100.0, shape=(1,), parts=2540, grid=1.0)
    assert 2 < one.part < 2.01
    assert 2 < noise.scale(sensitivity=1.0, shape=(10_000,), parts=2300, grid=1.0).part < 2.2
    with pytest.raises(StudyError, match="too far from Gaussian noise"):
        noise.scale(sensitivity=1.0, shape=(10_000,), parts=2540, grid=1.0)


@given(sensitivities, epsilons)
def test_noisy_max_pays_twice_for_each_score(sensitivity: Any, epsilon: Any) -> None:
    scale = NoisyMax(loss=Pure(epsilon), sensitivity=sensitivity).scale
    assert 2 * (sensitivity / scale.grid + 1) / scale.total <= epsilon


@given(st.floats(1e-9, 1e9), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_grids_are_powers_of_two_and_at_most_what_was_asked(grid: float, first: float, second: float) -> None:
    scale = Laplace(Pure(1)).scale(sensitivity=1.0, shape=(1,), grid=grid)
    assert math.frexp(scale.grid)[0] == 0.5
    assert grid / 2 < scale.grid <= grid
    assert abs(round(first / scale.grid) - round(second / scale.grid)) <= abs(first - second) / scale.grid + 1 + 1e-6


def test_an_epsilon_delta_budget_is_charged_in_mu() -> None:
    scale = Gaussian(Approx(1, 1e-6)).scale(sensitivity=2.0, shape=(3, 4))
    assert scale.loss == GDP.squared(gdp_square(1, 1e-6)) == Gaussian(Approx(1, 1e-6)).charged
    assert scale.total * scale.grid == pytest.approx(2 * 4.225, rel=2e-3)


@pytest.mark.parametrize("sigma", [0.3, 0.7, 2.0, 9.0])
def test_the_rounded_gaussian_is_zcdp_at_any_width(sigma: float) -> None:
    for by in (1, 3):
        first, second = shifted(rounded_pmf(sigma, int(30 * sigma) + 10), by)
        for order in (1.1, 2.0, 5.5):
            assert renyi(first, second, order) <= order * by**2 / (2 * sigma**2) * (1 + 1e-9)


@pytest.mark.parametrize(("part", "parts"), [(2.0, 2), (2.0, 8), (2.5, 20)])
def test_sums_of_parts_stay_within_the_claim(part: float, parts: int) -> None:
    one = total = rounded_pmf(part, 60)
    for _ in range(parts - 1):
        total = np.convolve(total, one)
    for by in (1, 4):
        first, second = shifted(total, by)
        claim = by / (part * math.sqrt(parts)) + 2 * ripple(part, parts)
        for order in (1.5, 2.0, 4.0):
            assert renyi(first, second, order) <= order * claim**2 / 2 * (1 + 1e-9)


def test_parts_below_the_grid_are_not_gaussian_and_are_refused() -> None:
    """σ = 4.53 in total over 400 parts: each is nearly always 0, and the claimed divergence is exceeded."""
    part, parts = 4.53 / 20, 400
    one = total = rounded_pmf(part, 8)
    for _ in range(parts - 1):
        total = np.convolve(total, one)
    first, second = shifted(total, 1)
    naive = 1 / (2 * part**2 * parts)
    assert renyi(first, second, 2.0) > 2 * naive * 1.05
    with pytest.raises(StudyError, match="finer"):
        Gaussian(Approx(1, 1e-6)).scale(sensitivity=1.0, shape=(1,), parts=1000, grid=1.0)


@pytest.mark.parametrize(("part", "parts"), [(0.75, 2), (0.8, 3), (1.0, 2)])
def test_sums_of_discrete_gaussians_are_within_the_gap_of_one(part: float, parts: int) -> None:
    """Of these spherical noise in parts is mixed; at widths where the distance can be seen."""
    one = total = pmf(part, 60)
    for _ in range(parts - 1):
        total = np.convolve(total, one)
    middle, reach = len(total) // 2, round(4 * part * math.sqrt(parts))
    whole = pmf(part * math.sqrt(parts), 60)[60 - reach : 61 + reach]
    found = float(np.abs(np.log(total[middle - reach : middle + reach + 1] / whole)).max())
    assert gap(part, parts) / 50 < found <= gap(part, parts) / 2


def test_the_gap_of_many_parts_is_above_the_sum_of_its_terms() -> None:
    for parts in (2, 64, 65, 66, 500):
        terms = [math.exp(-2 * math.pi**2 * 0.25 * k / (k + 1)) for k in range(1, parts)]
        assert 10 * sum(terms) <= gap(0.5, parts) <= 10 * sum(terms) * 1.1
    assert gap(2.0, 1) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Laplace(Pure(0)),
        lambda: Laplace(cast(Any, Approx(1, 1e-6))),
        lambda: Laplace(Pure(60)).scale(sensitivity=1.0, shape=(2,), parts=2),
        lambda: Laplace(Pure("1e6")).scale(sensitivity=1.0, shape=(2,), parts=2),
        lambda: Spherical(cast(Any, ZCDP(1))),
        lambda: Gaussian(Pure(1)),
        lambda: Gaussian(ZCDP(0)),
        lambda: Gaussian(Approx(1, 0)),
    ],
)
def test_a_loss_that_buys_nothing_is_refused(make: Any) -> None:
    with pytest.raises(StudyError):
        make()


@pytest.mark.parametrize("noise", [Laplace(Pure(1)), Spherical(Pure(1)), Gaussian(ZCDP(1))], ids=lambda n: n.name)
@pytest.mark.parametrize(
    "asked",
    [
        {"sensitivity": 0.0, "shape": (2,)},
        {"sensitivity": math.nan, "shape": (2,)},
        {"sensitivity": math.inf, "shape": (2,)},
        {"sensitivity": 1.0, "shape": (0,)},
        {"sensitivity": 1.0, "shape": (2,), "parts": 0},
        {"sensitivity": 1.0, "shape": (2,), "grid": 0.0},
        {"sensitivity": 1.0, "shape": (2,), "grid": math.nan},
        {"sensitivity": 1.0, "shape": (2,), "grid": 2.0**-55},
    ],
)
def test_what_can_not_be_calibrated_is_refused(noise: Noise, asked: Any) -> None:
    with pytest.raises(StudyError):
        noise.scale(**asked)


def test_noise_too_wide_for_its_integers_is_refused() -> None:
    with pytest.raises(StudyError, match="coarser"):
        Laplace(Pure("1e-12")).scale(sensitivity=1.0, shape=(1000,))
    with pytest.raises(StudyError, match="beyond its proof"):
        Spherical(Pure("1e-9")).scale(sensitivity=1.0, shape=(10_000,))


@settings(max_examples=20)
@given(
    st.sampled_from([Laplace(Pure(1)), Spherical(Pure(1)), Gaussian(ZCDP("0.1"))]), st.integers(1, 4), st.integers(1, 5)
)
def test_draws_have_the_shape_and_width_asked_for(noise: Any, rows: int, columns: int) -> None:
    scale = noise.scale(sensitivity=1.0, shape=(rows, columns))
    drawn = noise.draw(SeededNoise(1), scale, (rows, columns), permit=simulated_permit("x"))
    assert drawn.shape == (rows, columns)
    assert drawn.dtype == np.int64
    assert 0 < np.abs(drawn).max() < 60 * rows * columns * scale.total


def test_a_part_is_narrower_than_the_whole() -> None:
    noise = Gaussian(ZCDP("0.1"))
    scale = noise.scale(sensitivity=1.0, shape=(5000,), parts=100)
    part = noise.draw(SeededNoise(1), scale, (5000,), permit=simulated_permit("x"), part=True)
    whole = noise.draw(SeededNoise(2), scale, (5000,), permit=simulated_permit("x", 1))
    assert part.std() == pytest.approx(scale.total / 10, rel=0.05)
    assert whole.std() == pytest.approx(scale.total, rel=0.05)


def test_a_scale_says_what_is_charged() -> None:
    assert isinstance(Gaussian(Approx(1, 1e-6)).scale(sensitivity=1.0, shape=(1,)), Scale)
    assert Laplace(Pure(2)).scale(sensitivity=1.0, shape=(1,)).loss == Pure(2)

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from comity.errors import StudyError
from comity.privacy.accounting import (
    NUMERICAL,
    Spent,
    budget_to_rho,
    gaussian_budget,
    gdp_epsilon,
    gdp_square,
    zcdp_epsilon,
    zcdp_rho,
)
from comity.privacy.loss import GDP, ZCDP, Approx, Pure

rhos = st.floats(1e-8, 100)
deltas = st.floats(1e-15, 0.5)
epsilons = st.floats(1e-4, 50)


def test_known_values() -> None:
    assert math.sqrt(0.5 / zcdp_rho(1, 1e-6)) == pytest.approx(4.531, abs=5e-4)
    assert 1 / math.sqrt(gdp_square(1, 1e-6)) == pytest.approx(4.225, abs=5e-4)
    assert zcdp_epsilon(0.016, 1e-6) == pytest.approx(0.7988, abs=1e-4)


@pytest.mark.parametrize(("rho", "delta"), [(0.016, 1e-6), (1e-5, 1e-9), (0.5, 1e-5), (20.0, 1e-12), (0.1, 0.3)])
def test_the_best_order_is_found(rho: float, delta: float) -> None:
    orders = 1 + np.geomspace(1e-4, 1e9, 200_001)
    bounds = rho * orders + np.log(1 / (orders * delta)) / (orders - 1) + np.log1p(-1 / orders)
    best = max(0.0, bounds.min())
    # The true minimum lies a little below that of the orders tried.
    assert best * (1 - 1e-7) <= zcdp_epsilon(rho, delta) <= best


@given(rhos, deltas)
def test_zcdp_covers_the_gaussian_that_it_describes(rho: Any, delta: Any) -> None:
    """N(0, 1/2ρ) at sensitivity 1 is ρ-zCDP, and its exact δ at the converted ε is below the δ asked for."""
    epsilon = zcdp_epsilon(rho, delta)
    mu = math.sqrt(2 * rho)
    exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    assert exact <= delta * (1 + 1e-9)


def exact_delta(mu: float, epsilon: float) -> float:
    below = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    return float(norm.cdf(mu / 2 - epsilon / mu) - below)


@given(epsilons, deltas)
@settings(max_examples=60, deadline=None)
def test_a_budget_buys_a_rho_that_fits_and_hardly_a_larger_one(epsilon: Any, delta: Any) -> None:
    rho = zcdp_rho(epsilon, delta)
    assert Spent.zero().add(ZCDP(rho)).epsilon_at(Decimal(delta)) <= Decimal(epsilon)
    assert zcdp_epsilon(rho * (1 + 1e-6) + 1e-12, delta) > epsilon


@given(st.floats(1e-2, 50), deltas)
@settings(max_examples=60, deadline=None)
def test_a_budget_buys_a_mu_on_the_exact_curve(epsilon: float, delta: Any) -> None:
    square = gdp_square(epsilon, delta)
    assert Spent.zero().add(GDP.squared(square)).epsilon_at(Decimal(delta)) <= Decimal(epsilon)
    assert exact_delta(math.sqrt(square), epsilon) <= delta
    assert exact_delta(math.sqrt(square) * (1 + 1e-4), epsilon) > delta
    assert square >= 2 * zcdp_rho(epsilon, delta)


@given(st.floats(1e-6, 2**13), deltas)
@settings(max_examples=60, deadline=None)
def test_the_numerical_error_of_all_draws_is_paid_for(square: float, delta: Any) -> None:
    """Noise within exp(±κ) of ideal, point by point, is (ε + 2κ, e^κ δ)-DP where the ideal one is (ε, δ)-DP."""
    epsilon, kappa = gdp_epsilon(square, delta), NUMERICAL * square
    assert exact_delta(math.sqrt(square), epsilon - 2 * kappa) * math.exp(kappa) <= delta * (1 + 1e-12)
    assert 2 * kappa <= epsilon * 2.0**-30
    assert gdp_epsilon(2.0**13 * (1 + 1e-9), delta) == math.inf


@given(epsilons, deltas, st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_equal_shares_of_a_budget_fit_together(epsilon: Any, delta: Any, shares: int) -> None:
    parts = Spent.zero().add(ZCDP(zcdp_rho(epsilon, delta) / shares), times=shares)
    assert parts.epsilon_at(Decimal(delta)) <= Decimal(epsilon)
    parts = Spent.zero().add(GDP.squared(gdp_square(epsilon, delta) / shares), times=shares)
    assert parts.epsilon_at(Decimal(delta)) <= Decimal(epsilon)


@given(epsilons, st.floats(1e-12, 0.5))
@settings(max_examples=60, deadline=None)
def test_the_analytic_gaussian_is_on_the_safe_side_of_the_exact_curve(epsilon: Any, delta: float) -> None:
    sigma = 1 / math.sqrt(gdp_square(epsilon, delta)) * (1 + 1e-12)
    assert exact_delta(1 / sigma, epsilon) <= delta * (1 + 1e-9)
    assert exact_delta(1 / (sigma * 0.99), epsilon) > delta or sigma**-2 == pytest.approx(
        2**13 * min(epsilon, 1), rel=1e-6
    )
    assert sigma <= math.sqrt(0.5 / zcdp_rho(epsilon, delta))


@given(st.lists(st.decimals(0, 5, places=12), max_size=20))
def test_pure_losses_add_up_without_rounding(epsilons: Any) -> None:
    spent = Spent.zero()
    for epsilon in epsilons:
        spent = spent.add(Pure(epsilon))
    assert Fraction(spent.epsilon_at(Decimal(0))) == sum(map(Fraction, epsilons), Fraction(0))


@given(st.decimals("1e-40", 1), st.decimals("1e-40", 1), st.integers(1, 1000))
def test_sums_round_up(first: Any, second: Any, times: int) -> None:
    spent = Spent.zero().add(ZCDP(first), times).add(ZCDP(second))
    assert Fraction(spent.rho) >= Fraction(first) * times + Fraction(second)


def test_kinds_compose_by_adding_epsilon_and_delta() -> None:
    spent = Spent.zero().add(Pure("0.25")).add(Approx("0.5", "4e-7")).add(ZCDP("0.01"))
    expected = 0.75 + zcdp_epsilon(0.01, 6e-7)
    assert float(spent.epsilon_at(Decimal("1e-6"))) == pytest.approx(expected, rel=1e-12)
    assert spent.epsilon_at(Decimal("1e-6")) >= Decimal("0.75")
    gaussian = Spent.zero().add(Pure("0.25")).add(GDP("0.1"))
    assert float(gaussian.epsilon_at(Decimal("1e-6"))) == pytest.approx(0.25 + gdp_epsilon(0.01, 1e-6), rel=1e-12)
    # Beside a ρ a μ counts as μ²/2.
    both = Spent.zero().add(GDP("0.1")).add(ZCDP("0.01"))
    assert float(both.epsilon_at(Decimal("1e-6"))) == pytest.approx(zcdp_epsilon(0.015, 1e-6), rel=1e-8)


@pytest.mark.parametrize(
    ("spent", "delta"),
    [
        (Spent.zero().add(ZCDP("1e-9")), "0"),
        (Spent.zero().add(ZCDP("1e-9")).add(Approx(0, "1e-6")), "1e-6"),
        (Spent.zero().add(Approx("0.1", "2e-6")), "1e-6"),
    ],
)
def test_without_delta_left_no_epsilon_suffices(spent: Any, delta: str) -> None:
    assert spent.epsilon_at(Decimal(delta)) == Decimal("Infinity")


def test_which_budgets_buy_gaussian_noise() -> None:
    assert gaussian_budget(Approx(1, 1e-6)) == GDP.squared(gdp_square(1, 1e-6))
    assert gaussian_budget(GDP("0.5")) == GDP("0.5")
    assert 1 - 1e-9 < gaussian_budget(ZCDP("0.5")).square < 1
    assert Spent.zero().add(gaussian_budget(ZCDP("0.5"))).concentrated <= Decimal("0.5")
    assert budget_to_rho(Approx(1, 1e-6)) == ZCDP(zcdp_rho(1, 1e-6))
    assert budget_to_rho(ZCDP("0.5")) == ZCDP("0.5")
    for loss in (Pure(1), Approx(1, 0), Approx(0, 1e-6)):
        for budget in (budget_to_rho, gaussian_budget):
            with pytest.raises(StudyError, match=r"privacy\.delta"):
                budget(loss)
    with pytest.raises(StudyError):
        budget_to_rho(GDP(1))


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 1e-6), (-1.0, 0.1), (math.nan, 0.1), (1.0, 0.0), (1.0, 1.0), (1.0, math.nan)]
)
def test_figures_out_of_range_are_refused(epsilon: Any, delta: Any) -> None:
    with pytest.raises(StudyError):
        zcdp_rho(epsilon, delta)
    with pytest.raises(StudyError):
        gdp_square(epsilon, delta)


def test_extreme_figures_do_not_overflow() -> None:
    assert zcdp_epsilon(1e300, 1e-300) >= 1e300
    assert zcdp_epsilon(math.inf, 0.5) == math.inf
    assert Spent.zero().add(ZCDP("1e300"), 10**9).epsilon_at(Decimal("0.1")) == Decimal("Infinity")
    assert Spent.zero().add(GDP.squared("1e300"), 10**9).epsilon_at(Decimal("0.1")) == Decimal("Infinity")
    assert zcdp_epsilon(5e-324, 5e-324) >= 0


def test_what_is_added_and_taken_away_again_leaves_nothing_behind() -> None:
    """However many digits losses have: a run that is given up leaves its account as it was."""
    long = Decimal(1) / Decimal(3)
    losses: list[Any]
    losses = [GDP.squared(long.scaleb(-k)) for k in range(9)] + [Pure(long), ZCDP(long), Approx(long, "1e-9")]
    spent = Spent.zero()
    for loss in losses * 3:
        spent = spent.add(loss)
    for loss in losses * 3:
        spent = spent.minus(Spent.zero().add(loss))
    assert spent == Spent.zero()

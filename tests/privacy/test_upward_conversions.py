"""Conversions of losses only go up: what a ledger counts is never less than what was lost, by the exact curves.

The curves here are computed apart from `comity.privacy`: the worst pair of a pure epsilon is randomised response, that
of Gaussian noise two normals.
"""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from tests.support.ledgers import RECORD

from comity.privacy.accounting import Spent
from comity.privacy.currency import Currency, convert_to, loss_to_write_off
from comity.privacy.ledger import Draw, Ledger
from comity.privacy.loss import GDP, ZCDP, Approx, Loss, Pure, float_above

SLACK = 1e-12
"""The error of the curves below, which are computed in doubles."""

EPSILONS = st.decimals("0.001", "8", places=3)
DELTAS = st.sampled_from(["1e-9", "1e-6", "1e-5", "1e-3"]).map(Decimal)
PLACES = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
ORDERS = (1.0001, 1.1, 2.0, 5.0, 50.0)


def pure_delta(epsilon: float, at: float) -> float:
    """The hockey-stick divergence of randomised response."""
    truth = 1 / (1 + math.exp(-epsilon))
    return max(0.0, truth - math.exp(at) * (1 - truth))


def gaussian_delta(square: float, at: float) -> float:
    mu = math.sqrt(square)
    return float(norm.cdf(mu / 2 - at / mu) - math.exp(at) * norm.cdf(-mu / 2 - at / mu))


def pure_divergence(epsilon: float, order: float) -> float:
    """The Rényi divergence of randomised response, in a form that cancels nothing near order 1."""
    difference = 2 * math.sinh(order * epsilon / 2) * math.sinh((order - 1) * epsilon / 2)
    return math.log1p(difference / math.cosh(epsilon / 2)) / (order - 1)


def covers_pure(counted: Loss, epsilon: float) -> bool:
    match counted:
        case Pure(epsilon=found):
            return float(found) >= epsilon
        case Approx(epsilon=found):
            return float(found) >= epsilon
        case GDP(square=square):
            return all(gaussian_delta(float(square), at) >= pure_delta(epsilon, at) - SLACK for at in PLACES)
        case ZCDP(rho=rho):
            return all(pure_divergence(epsilon, order) <= float(rho) * order * (1 + 1e-9) for order in ORDERS)


def granted(currency: Currency, delta: Decimal) -> Pure | Approx:
    return Pure(1000) if currency is Currency.PURE else Approx(1000, delta)


@given(st.sampled_from(Currency), EPSILONS, DELTAS)
def test_a_pure_loss_is_never_counted_as_less(currency: Currency, epsilon: Decimal, delta: Decimal) -> None:
    entered = convert_to(currency, Pure(epsilon))
    assert entered is not None and covers_pure(entered, float(epsilon))
    assert covers_pure(loss_to_write_off(currency, Pure(epsilon), granted(currency, delta)), float(epsilon))


@given(EPSILONS)
def test_a_gaussian_loss_is_never_counted_as_less(mu: Decimal) -> None:
    entered = convert_to(Currency.CONCENTRATED, GDP(mu))
    assert isinstance(entered, ZCDP)
    # N(0, 1) and N(μ, 1) have the divergence αμ²/2 of every order α.
    assert entered.rho * 2 >= GDP(mu).square
    assert convert_to(Currency.GAUSSIAN, GDP(mu)) == GDP(mu)


@settings(max_examples=40)
@given(st.sampled_from(Currency), EPSILONS, DELTAS, DELTAS)
def test_what_is_written_off_with_a_delta_is_all_that_it_buys(
    currency: Currency, epsilon: Decimal, delta: Decimal, own: Decimal
) -> None:
    """No Gaussian noise within (epsilon, delta) costs more; where nothing can be said, the whole grant goes."""
    counted = loss_to_write_off(currency, Approx(epsilon, delta), granted(currency, own))
    match counted:
        case Pure():
            assert counted == Pure(max(epsilon, Decimal(1000)))
        case Approx():
            assert counted == Approx(epsilon, delta)
        case GDP(square=square):
            assert gaussian_delta(float(square), float(epsilon)) >= float(max(delta, own)) * (1 - 1e-6) - SLACK
        case ZCDP(rho=rho):
            fits = Spent.zero().add(ZCDP(rho * Decimal("1.000001"))).epsilon_at(max(delta, own)) <= epsilon
            assert not fits


@pytest.mark.parametrize("delta", ["1e-300", "1e-12", "9e-7"])
def test_a_delta_that_is_guessed_too_small_is_counted_at_the_granted_one(delta: str) -> None:
    for currency in (Currency.GAUSSIAN, Currency.CONCENTRATED):
        guessed, known = (loss_to_write_off(currency, Approx(1, one), Approx(3, "1e-6")) for one in (delta, "1e-6"))
        assert guessed == known
        larger = loss_to_write_off(currency, Approx(1, "1e-4"), Approx(3, "1e-6"))
        assert Spent.zero().add(larger).epsilon_at(Decimal("1e-6")) > 1.3


def test_a_later_grant_makes_no_room_for_what_was_written_off_beyond_the_first() -> None:
    """A pure ledger never had a run with a delta; the owner says that 5 may be missing of a grant of 1."""
    ledger = Ledger.in_memory(dataset="patients", grant=Pure(1), **RECORD)
    ledger.write_off(Approx(5, "1e-6"), "restored")
    ledger.grant_more(Pure(6), "a new year")
    assert ledger.summary()[0].left == 2


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([Currency.GAUSSIAN, Currency.CONCENTRATED, Currency.APPROX]), EPSILONS)
def test_a_write_off_costs_no_less_than_the_run_that_was_forgotten(currency: Currency, epsilon: Decimal) -> None:
    """One ledger remembers a run of this pure loss; the other, restored from a backup, writes it off."""
    remembering, restored = (
        Ledger.in_memory(dataset="patients", grant=Approx(1000, "1e-6"), currency=currency, **RECORD) for _ in range(2)
    )
    draw = Draw("x", 0, Pure(epsilon), "laplace", 1)
    remembering.reserve(study="readmission", run="r1", draws=[draw], **RECORD)
    remembering.draw(run="r1", release="x", index=0, step="s")
    restored.write_off(Pure(epsilon), "restored")
    assert restored.summary()[0].spent == remembering.summary()[0].spent


def test_a_forgotten_pure_release_does_not_break_the_grant(tmp_path: Path) -> None:
    """The attack: a pure 0.18 is forgotten and written off, and the rest of the grant is spent on Gaussian noise."""
    ledger = Ledger.create(tmp_path / "a", dataset="patients", grant=Approx(1, "1e-6"), **RECORD)
    ledger.write_off(Pure("0.18"), "restored from the backup of Monday")
    [account] = ledger.summary()
    assert float(account.spent.gaussian) == pytest.approx(0.0508, abs=1e-4)
    ceiling = ledger.entries()[0].sensitivity
    square = float(Decimal(ceiling.removeprefix("gdp:")) - account.spent.gaussian)
    truth = 1 / (1 + math.exp(-0.18))
    # Randomised response of 0.18 with Gaussian noise of what is left: the loss of the first is ±0.18.
    told = truth * gaussian_delta(square, 1 - 0.18) + (1 - truth) * gaussian_delta(square, 1 + 0.18)
    assert told <= 1e-6


@given(st.decimals("1e-9", "1e9", places=40))
def test_a_figure_that_becomes_a_double_is_rounded_up(value: Decimal) -> None:
    assert Decimal(repr(float_above(value))) >= value
    assert float_above(Decimal(repr(float(value)))) == float(value)

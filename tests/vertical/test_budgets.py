"""Budgets from the top down and from the bottom up agree, and the corrected constants are attained."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from math import sqrt
from typing import Any, cast

import numpy as np
import pytest

from comity.errors import StudyError
from comity.methods.vertical import Vertical, VerticalRegression
from comity.methods.vertical.budgets import affordable_epsilon, format_rounded_up, party_losses
from comity.methods.vertical.design import PLACES
from comity.methods.vertical.moments import l1_sensitivity_about, l2_sensitivity, party_share, to_units
from comity.privacy.accounting import gaussian_budget, gdp_epsilon
from comity.privacy.loss import Approx, Pure
from tests.support.vertical import HELD, build_regression, enumerate_rows, make_consortium, make_schema


def test_a_party_with_few_columns_loses_less_and_none_more_than_the_study() -> None:
    design = build_regression(4).design
    losses = party_losses(design, Approx(1, 1e-5))
    assert max(losses.values()) <= 1.0 + 1e-9 and losses["doum"] < losses["cedar"]


def test_wishes_and_losses_are_each_others_inverse() -> None:
    design = build_regression(4).design
    losses = party_losses(design, Approx(1, 1e-5))
    assert affordable_epsilon(design, losses, 1e-5) == pytest.approx(1.0, rel=1e-6)
    assert affordable_epsilon(design, {"doum": 2 * losses["doum"]}, 1e-5) > 1.5


def test_a_study_above_what_a_party_wishes_is_refused_with_the_figure() -> None:
    tried = build_regression(2, party_epsilon={"birch": 0.4})
    with pytest.raises(StudyError, match=r"up to 0\.4"):
        tried.declare(make_consortium(tried, Approx(1, 1e-5)))
    tried.declare(make_consortium(tried, Approx(0.4, 1e-5)))
    with pytest.raises(StudyError, match="names elm"):
        affordable_epsilon(tried.design, {"elm": 1.0}, 1e-5)


def test_pure_wishes_and_losses_are_each_others_inverse_and_in_the_plan() -> None:
    tried = build_regression(4, pure=True)
    losses = party_losses(tried.design, Pure(2))
    assert max(losses.values()) <= 2 and losses["doum"] < losses["cedar"]
    assert affordable_epsilon(tried.design, losses, 0.0) == pytest.approx(2.0)
    assert f"doum {format_rounded_up(losses['doum'])}" in tried.expectation(make_consortium(tried, Pure(2)))
    wishing = build_regression(4, pure=True, party_epsilon={"doum": losses["doum"] / 2})
    with pytest.raises(StudyError, match=r"up to (1|0\.9999),"):
        wishing.declare(make_consortium(wishing, Pure(2)))


@pytest.mark.parametrize("linear", [False, True])
def test_the_pure_loss_about_one_partys_columns_bounds_every_replacement_within_them(linear: bool) -> None:
    tried = build_regression(3, linear=linear, pure=True)
    design = tried.design
    rows = to_units(enumerate_rows(design)) * 2.0**-PLACES
    found = np.array([tried.entries.exact(row[None]) for row in rows])
    for party in tried.columns:
        others = np.ones(design.width, bool)
        others[design.places(party)] = False
        furthest = 0.0
        for row, own in zip(rows, found):
            alike = (np.abs(rows[:, others] - row[others]) < 1e-12).all(axis=1)
            furthest = max(furthest, np.abs(found[alike] - own).sum(axis=1).max())
        claimed = l1_sensitivity_about(design, party)
        assert 0.7 * claimed <= furthest <= claimed, party


@pytest.mark.parametrize("products", ["rlwe", "dealer"])
@pytest.mark.parametrize("loss", [Pure(2), Pure("0.37"), Approx(1, 1e-5), Approx("0.61", 1e-5)])
def test_what_the_plan_says_of_a_partys_own_columns_is_never_less_than_the_truth(products: str, loss: Any) -> None:
    """From the release itself: the noise serves its whole sensitivity; one party moves its own part, and the carry."""
    tried = build_regression(4, pure=isinstance(loss, Pure), products=products)
    release, said = tried.moments(loss), tried.expectation(make_consortium(tried, loss)).partition("alone: ")[2]
    shown = {party: float(figure) for party, figure in (one.split() for one in said.split(", "))}
    size, unit = tried.entries.size, 2 * 7 * tried.product.unit * (products == "rlwe")
    for party in tried.columns:
        if isinstance(loss, Pure):
            moved = (l1_sensitivity_about(tried.design, party) + unit * size) / cast(Any, release.bound).l1
            truth = float(loss.epsilon) * moved
        else:
            own = sqrt(party_share(tried.design, party)) * l2_sensitivity(tried.design)
            moved = (own + unit * sqrt(size)) / cast(Any, release.bound).l2
            truth = gdp_epsilon(float(gaussian_budget(loss).square) * moved**2, float(loss.delta))
        assert truth * (1 - 1e-9) <= shown[party] <= truth * 1.01


def test_the_carry_of_products_counts_in_wishes_too() -> None:
    tried = build_regression(3, pure=True)
    total_carry = 1.0
    without, with_it = party_losses(tried.design, Pure(1)), party_losses(tried.design, Pure(1), total_carry)
    assert all(with_it[party] > without[party] for party in without if without[party] < 1)
    assert affordable_epsilon(tried.design, with_it, 0.0, total_carry) == pytest.approx(1.0)
    assert tried.total_carry > 0 == build_regression(3, products="dealer").total_carry
    assert (
        format_rounded_up(0.90801) == "0.909"
        and format_rounded_up(1.0) in ("1.00", "1.01")
        and format_rounded_up(12.34) == "12.40"
    )


def test_no_part_is_shown_as_more_than_the_whole() -> None:
    assert format_rounded_up(1.0, Decimal(1)) == "1.00" and format_rounded_up(0.5, Decimal(1)) == "0.501"
    everything = make_schema(linear=True).columns
    held = {"ash": (*(column.name for column in everything[:-1]), "sick"), "birch": (everything[-1].name,)}
    tried = Vertical.over_columns(
        solver="quadratic",
        schema=make_schema(linear=True),
        columns=held,
        products="dealer",
        pure=True,
        max_rows=1 << 10,
    )
    whole = party_losses(tried.design, Pure(1))
    text = tried.expectation(make_consortium(tried, Pure(1)))
    # The other's one column is a yes/no, whose square says nothing: ash may move all that a record may.
    assert whole["ash"] == 1.0 and "alone: ash 1.00, birch 0." in text


class Coarse(VerticalRegression):
    """Products that are off by so much that three digits show it."""

    _carry = 0.5


def coarse(pure: bool, **options: Any) -> Coarse:
    plain = Vertical.over_columns(
        solver="quadratic", schema=make_schema(), columns=HELD[4], pure=pure, max_rows=1 << 14, **options
    )
    return Coarse(**{one.name: getattr(plain, one.name) for one in fields(plain)})


@pytest.mark.parametrize("loss", [Pure(2), Approx(1, 1e-5)])
def test_the_plan_counts_the_carry_of_products_about_each_party(loss: Any) -> None:
    pure = isinstance(loss, Pure)
    tried = coarse(pure)
    said = tried.expectation(make_consortium(tried, loss)).partition("alone: ")[2]
    shown = {party: float(figure) for party, figure in (one.split() for one in said.split(", "))}
    size, bound = tried.entries.size, cast(Any, tried.moments(loss).bound)
    for party in tried.columns:
        if pure:
            truth = 2 * (l1_sensitivity_about(tried.design, party) + 7 * 0.5 * size) / bound.l1
        else:
            own = sqrt(party_share(tried.design, party)) * l2_sensitivity(tried.design)
            moved = (own + 7 * 0.5 * sqrt(size)) / bound.l2
            truth = gdp_epsilon(float(gaussian_budget(loss).square) * moved**2, 1e-5)
        assert truth * (1 - 1e-9) <= shown[party] <= truth * 1.01
    wishing = coarse(pure, party_epsilon=dict.fromkeys(shown, 0.5))
    with pytest.raises(StudyError) as found:
        wishing.declare(make_consortium(wishing, loss))
    most = float(str(found.value).partition("up to ")[2].partition(",")[0])
    losses = party_losses(wishing.design, Pure(most) if pure else Approx(most, 1e-5), wishing.total_carry)
    assert max(losses.values()) == pytest.approx(0.5, rel=1e-3)

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comity.errors import Malformed, StudyError
from comity.privacy.loss import GDP, ZCDP, Approx, Loss, Pure, parse_loss

figures = st.decimals(min_value=0, max_value=10**6, allow_nan=False, allow_infinity=False)
small = st.decimals(min_value=0, max_value="0.999", allow_nan=False, allow_infinity=False)
losses = st.one_of(figures.map(Pure), figures.map(GDP), figures.map(ZCDP), st.builds(Approx, figures, small))


def test_a_float_stands_for_the_decimal_a_person_wrote() -> None:
    assert Pure(0.1).epsilon == Decimal("0.1")
    assert Pure(np.float64(0.1)) == Pure("0.1") == Pure(Decimal("0.1"))
    assert ZCDP(np.int64(2)) == ZCDP(2)


@pytest.mark.parametrize("value", [-1, -0.5, math.nan, math.inf, "-inf", "nan", "one", "", None, True, [1], 1j])
def test_what_is_no_loss_is_refused_with_the_value_in_the_sentence(value: Any) -> None:
    for make in (Pure, GDP, GDP.squared, ZCDP, lambda v: Approx(v, 0.1), lambda v: Approx(1, v)):
        with pytest.raises(StudyError) as caught:
            make(value)
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize("delta", [1, "1.0", 2.5])
def test_delta_stays_below_one(delta: Any) -> None:
    with pytest.raises(StudyError, match="below 1"):
        Approx(1, delta)


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (Pure("0.8"), "eps 0.80"),
        (Pure(3), "eps 3.00"),
        (Pure(0), "eps 0.00"),
        (Pure("1.23411"), "eps 1.235"),
        (Pure("0.00012341"), "eps 0.0001235"),
        (Pure("99999.5"), "eps 100000.00"),
        (GDP("0.212"), "mu 0.2120"),
        (GDP.squared("0.0449"), "mu 0.2119"),
        (GDP.squared("2"), "mu 1.4150"),
        (ZCDP("0.016"), "rho 0.0160"),
        (ZCDP("0.02435597"), "rho 0.02436"),
        (Approx("0.8", 1e-6), "(eps 0.80, delta 1e-6)"),
        (Approx(1, 0), "(eps 1.00, delta 0)"),
        (Approx(1, "0.000012341"), "(eps 1.00, delta 1.235e-5)"),
    ],
)
def test_losses_are_shown_rounded_up(loss: Any, text: str) -> None:
    assert str(loss) == text


@given(losses)
def test_stored_text_is_exact(loss: Loss) -> None:
    assert parse_loss(loss.as_text()) == loss


def test_stored_form() -> None:
    assert Pure(1.0).as_text() == "pure:1.0"
    assert ZCDP("0.016").as_text() == "zcdp:0.016"
    assert GDP("0.2").as_text() == "gdp:0.04"


@pytest.mark.parametrize("figure", ["1e-500", "1e9999999", "1e301", "9" * 400, "0." + "1" * 401])
def test_figures_beyond_reach_are_refused_in_one_sentence(figure: Any) -> None:
    for make in (Pure, GDP, GDP.squared, ZCDP, lambda v: Approx(v, 0)):
        with pytest.raises(StudyError, match="between 1E-300 and 1E"):
            make(figure)
    for text in (f"pure:{figure}", f"zcdp:{figure}"):
        with pytest.raises(Malformed):
            parse_loss(text)


@pytest.mark.parametrize("figure", ["1e-300", "1e300", "1e-160", "1e160"])
def test_figures_at_the_ends_compute(figure: str) -> None:
    assert (Pure(figure) * 3).epsilon >= 0 if figure != "1e300" else True
    assert Fraction(GDP.squared(figure).mu) ** 2 >= Fraction(figure)
    if figure == "1e160":
        with pytest.raises(StudyError):
            GDP(figure)
    elif figure != "1e300":
        assert GDP(figure).square >= Decimal("1e-300")


@pytest.mark.parametrize(
    "text", ["", "pure", "pure:", "pure:1,2", "approx:1", "zcdp:x", "renyi:1", "pure:-1", "approx:1,2"]
)
def test_text_that_is_no_loss_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        parse_loss(text)


@given(losses, st.integers(0, 1000))
def test_composition_never_falls_below_the_exact_sum(loss: Loss, times: int) -> None:
    if isinstance(loss, Approx) and loss.delta * times >= 1:
        with pytest.raises(StudyError):
            loss * times
        return
    composed = loss * times
    for name in ("epsilon", "square", "rho", "delta"):
        if hasattr(loss, name):
            exact = Fraction(getattr(loss, name)) * times
            assert exact <= Fraction(getattr(composed, name)) <= exact * (1 + Fraction(1, 10**50))


def test_a_loss_is_not_incurred_a_negative_number_of_times() -> None:
    with pytest.raises(StudyError, match="-1"):
        Pure(1) * -1


def test_losses_do_not_change() -> None:
    with pytest.raises(AttributeError):
        cast(Any, Pure(1)).epsilon = Decimal(0)

"""Two plain sentences about epsilon, and that their figure is a bound."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import norm

from comity.report.sentences import (
    best_guess_probability,
    explain_guarantee,
    format_percent,
    left_exceeds_difference,
)
from comity.study.results.result import Guarantee

PURE = Guarantee("eps 1.00", 1.0, 0.0, "a record", "replaced", "nobody", "private", seeded=False)


def test_the_sentence_says_how_far_a_belief_can_move() -> None:
    said = explain_guarantee(PURE)
    assert "knows every other record and is unsure between two versions of yours: a coin toss, 50 %" in said
    assert "their best guess is right at most 73.2 % of the time." in said
    assert "\n" not in said and said.count(". ") == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unit": "a whole party"}, "two versions of all your party's records"),
        ({"unit": "a person"}, "two versions of all your records"),
        ({"neighbours": "added or removed"}, "unsure whether your record took part"),
        ({"delta": 1e-6}, "at most 73.2 % of the time (delta 1e-6 is counted in)"),
        ({"epsilon": 10.0}, "99.996 %"),
        ({"epsilon": 60.0}, "promises nothing"),
        ({"epsilon": float("inf")}, "promises nothing"),
        ({"seeded": True}, "Without the seed it would mean: Suppose"),
    ],
)
def test_it_names_the_unit_the_relation_and_the_delta(change: Any, words: str) -> None:
    assert words in explain_guarantee(replace(PURE, **change))


def test_no_bound_is_stated_where_the_claim_does_not_hold() -> None:
    assert explain_guarantee(replace(PURE, claim="not private as claimed: eps 9")) == ""


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0])
def test_randomised_response_reaches_it_and_the_gaussian_stays_below(epsilon: float) -> None:
    assert best_guess_probability(epsilon, 0.0) == pytest.approx(exp(epsilon) / (1 + exp(epsilon)))
    for sigma in np.geomspace(0.3, 30, 40):
        # The exact delta of a Gaussian of sensitivity 1, and how often the better guess is right.
        delta = norm.cdf(0.5 / sigma - epsilon * sigma) - exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
        assert norm.cdf(0.5 / sigma) <= best_guess_probability(epsilon, float(delta)) + 1e-12


@pytest.mark.parametrize(
    ("loss", "left", "more"),
    [("mu 0.3", "eps 2.77", True), ("mu 0.3", "eps 0.00", False), ("eps 1", "eps 2.00", False)],
)
def test_what_is_left_is_called_more_than_the_difference_only_where_it_is(loss: str, left: str, more: bool) -> None:
    guarantee = SimpleNamespace(loss=loss)
    result = SimpleNamespace(guarantee=guarantee, accounts=[SimpleNamespace(left=left)])
    assert left_exceeds_difference(cast(Any, result)) is more


def test_percentages_are_rounded_up_and_never_to_certainty() -> None:
    assert (
        format_percent(0.731058) == "73.2 %"
        and format_percent(0.5) == "50.1 %"
        and format_percent(0.9999) == "99.991 %"
    )
    assert format_percent(1.0) is None
    for share in np.random.default_rng(0).uniform(0.5, 1, 200):
        shown = format_percent(float(share))
        assert shown is None or float(shown.removesuffix(" %")) / 100 >= share

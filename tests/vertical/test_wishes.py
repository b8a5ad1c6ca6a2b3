"""A party's wish about its own columns is a ceiling to the last digits, under Gaussian and under Laplace noise."""

from __future__ import annotations

from typing import Any

import pytest

from comity.errors import StudyError
from comity.methods.vertical.budgets import affordable_epsilon
from comity.privacy.loss import Approx, Pure
from tests.support.vertical import build_regression, make_consortium


@pytest.mark.parametrize("pure", [False, True], ids=["Gaussian", "Laplace"])
def test_a_study_a_little_above_a_wish_is_refused(pure: bool) -> None:
    wish = {"birch": 0.4}
    tried = build_regression(2, pure=pure, party_epsilon=wish)
    most = affordable_epsilon(tried.design, wish, 0.0 if pure else 1e-5)

    def declared(epsilon: Any) -> None:
        tried.declare(make_consortium(tried, Pure(epsilon) if pure else Approx(epsilon, 1e-5)))

    declared(0.999 * most)
    with pytest.raises(StudyError, match="party_epsilon allows"):
        declared(1.01 * most)

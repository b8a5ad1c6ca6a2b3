"""What a step makes of a record does not depend on the records beside it, whatever was received."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from comity.methods.vertical.design import PLACES
from comity.methods.vertical.rounds import compute_partial_scores
from tests.attacks.received_values import Case, cases_of, worst


@pytest.mark.parametrize("case", cases_of("RlweRounds", "DealerRounds", "ErrorsByColumns"), ids=lambda case: case.name)
def test_no_record_changes_the_part_of_another_whatever_was_received(case: Case) -> None:
    assert worst(case) <= 1


@pytest.mark.parametrize("width", [1, 7, 63, 64, 500])
@pytest.mark.parametrize("scale", [1.0, 1e-300, 3e7])
def test_sums_of_partial_scores_round_nothing_in_any_order(width: int, scale: float) -> None:
    generator = np.random.default_rng(width)
    units = generator.integers(-(1 << PLACES), 1 << PLACES, (40, width), endpoint=True).astype(np.float64)
    units[0] = 1 << PLACES
    weights = scale * generator.normal(size=width)
    weights[-1] = scale

    def scores(order: np.ndarray, rows: slice = slice(None)) -> np.ndarray:
        return compute_partial_scores(units[rows][:, order], weights[order], 0.0, 0.0, np.inf)

    found = scores(np.arange(width))
    for _ in range(5):
        np.testing.assert_array_equal(scores(generator.permutation(width)), found)
    np.testing.assert_array_equal(scores(np.arange(width), slice(3, 4)), found[3:4])
    exact = [sum(Fraction(x) * Fraction(w) for x, w in zip(row, weights)) / 2**PLACES for row in units]
    np.testing.assert_allclose(
        found, [float(one) for one in exact], rtol=0, atol=width * 2.0**-27 * np.abs(weights).max()
    )

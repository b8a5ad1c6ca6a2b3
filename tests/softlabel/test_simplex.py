"""What is summed of votes lies in the simplex, whatever stood in a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.methods.softlabel.statistic import enforce_simplex

PROPER = [0.2, 0.3, 0.5]


@pytest.mark.parametrize(
    "row",
    [
        [1.5, -0.5, 0.0],
        [1.0 + 1e-4, -1e-4, 0.0],
        [0.5, 0.5, 0.5],
        [0.3, 0.3, 0.3],
        [0.0, 0.0, 0.0],
        [np.nan, 0.5, 0.5],
        [np.inf, 0.0, 0.0],
    ],
)
def test_a_row_that_is_no_distribution_votes_evenly_and_leaves_the_others_alone(row: Any) -> None:
    with np.errstate(invalid="ignore"):
        found = enforce_simplex(np.array([PROPER, row]))
    np.testing.assert_allclose(found, [PROPER, [1 / 3] * 3])


def test_rounding_is_taken_out() -> None:
    found = enforce_simplex(np.array([[0.2, 0.3, 0.5 + 1e-7]]))
    assert found.sum() == pytest.approx(1, abs=1e-15)

"""The ridge of a descent: from the noise and the directions that stand out of it, not from the features alone."""

from __future__ import annotations

import numpy as np
import pytest

from comity.methods.averaging import Averaging, descent
from tests.averaging.default_consortium import make_consortium


def test_a_ridge_is_as_long_as_the_directions_that_it_leaves_standing() -> None:
    strengths = np.array([400.0, 90.0, 3.0])
    found = descent.solve_ridge(1.5, 10_000, strengths)
    standing = (strengths / (strengths + found)).sum()
    assert found == pytest.approx(12 * 1.5 * np.sqrt(standing)) and 1 < standing < 3


def test_it_is_never_more_than_the_length_of_the_noise_asks_for() -> None:
    many = np.full(500, 1e9)
    assert descent.solve_ridge(2.0, 25, many) == pytest.approx(1.2 * 2.0 * 5)
    assert descent.solve_ridge(2.0, 10**6, many) == pytest.approx(12 * 2.0 * np.sqrt(500), rel=1e-3)


def test_one_direction_is_taken_to_stand_where_none_is_known_to() -> None:
    assert descent.solve_ridge(2.0, 10**6, np.zeros(0)) == pytest.approx(24.0)


def test_features_that_say_nothing_do_not_shorten_the_steps_of_those_that_do() -> None:
    """Twice the features, none of them used: √d alone would make every step shorter by a third."""
    consortium = make_consortium()
    lengths = []
    for width in (400, 800):
        built = Averaging.over_rows(features=width, sizes=1000)
        moment, declared = np.zeros((width, width)), built.declare(consortium)
        moment[0, 0] = 1e4
        preconditioner = built.precondition([moment], consortium, declared)
        lengths.append(float(preconditioner.step(np.eye(1, width))[0, 0]))
        # What the noise of the second moment alone could have made does not count as standing.
        edge = np.sqrt(2 * width) * declared["second_moment"].opened_deviation(consortium)
        flat = built.precondition([np.eye(width) * edge * 0.9], consortium, declared).step(np.eye(1, width))[0, 0]
        alone = descent.solve_ridge(built.gradient_noise(consortium, declared), width, np.zeros(0))
        assert 1 / flat == pytest.approx(
            built.objective.step_curvature(built.clip_norm(consortium)) / 2 * edge * 0.9 + alone
        )
    assert lengths[1] == pytest.approx(lengths[0], rel=1e-6)

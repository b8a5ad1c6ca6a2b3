from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.errors import DataError
from comity.learn import hard_votes, one_hot


def test_one_hot_rows_lie_in_the_simplex() -> None:
    rows = one_hot(np.array([[0, 2], [1, 1]]), 3)
    assert rows.tolist() == [[[1, 0, 0], [0, 0, 1]], [[0, 1, 0], [0, 1, 0]]]
    assert one_hot([0.0, 1.0], 2).tolist() == [[1, 0], [0, 1]]
    assert one_hot(np.array([], int), 4).shape == (0, 4)


@pytest.mark.parametrize("labels", [[3], [-1], [0.5], [np.nan]])
def test_labels_outside_are_refused(labels: Any) -> None:
    with pytest.raises(DataError):
        one_hot(np.array(labels), 3)


def test_votes_of_vectors_and_of_class_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(11, 4))
    vectors, rows = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 5, 4))
    votes, classes = hard_votes(vectors, x), hard_votes(rows, x, multiclass=True)
    assert votes.shape == classes.shape == (2, 3, 11)
    for i in range(2):
        for j in range(3):
            assert votes[i, j].tolist() == [int(row @ vectors[i, j] > 0) for row in x]
            assert classes[i, j].tolist() == [int(np.argmax(rows[i, j] @ row)) for row in x]


def test_a_single_classifier() -> None:
    x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert hard_votes(np.array([1.0, 0.0]), x).tolist() == [1, 0, 0]
    assert hard_votes(np.eye(2), x, multiclass=True).tolist() == [0, 1, 1]


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(DataError, match="equally many"):
        hard_votes(np.ones(3), np.ones((5, 4)))
    with pytest.raises(DataError, match="equally many"):
        hard_votes(np.ones(4), np.ones((5, 4)), multiclass=True)


def test_scores_that_are_equal_but_for_rounding_are_equal() -> None:
    """0.1 + 0.2 − 0.3 is not 0 in doubles, and how far it is depends on the order in which a library adds up."""
    weights, x = np.array([0.1, 0.2, -0.3]), np.ones((4, 3))
    assert (x @ weights > 0).any()
    assert hard_votes(weights, x).tolist() == [0] * 4
    several = np.array([[0.3, 0.3, 0.0], [0.1, 0.2, 0.3], [0.2, 0.2, 0.2]])
    assert len(set((several @ x[0]).tolist())) > 1
    assert hard_votes(several, x, multiclass=True).tolist() == [0] * 4


def test_votes_do_not_depend_on_how_many_parties_are_computed_at_once() -> None:
    generator = np.random.default_rng(0)
    # Whole numbers over ten: many exact ties, few of which are equal in doubles.
    weights = generator.integers(-5, 6, (300, 3, 4)) / 10
    x = generator.integers(-5, 6, (50, 4)) / 10
    together = hard_votes(weights, x, multiclass=True)
    assert all(np.array_equal(together[k], hard_votes(weights[k], x, multiclass=True)) for k in range(300))
    exact = np.rint(10 * weights).astype(int) @ np.rint(10 * x).astype(int).T
    assert np.array_equal(together, exact.argmax(-2))

"""Public rows that repeat count for less: what a party contributes stays as far from any other as is declared."""

from __future__ import annotations

from itertools import product
from math import sqrt

import numpy as np
import pytest

from comity.learn.feature_map import fit_whitened_pca
from comity.learn.fits import one_hot
from comity.methods.softlabel.self_training import softmax_from_moments
from comity.methods.softlabel.votes import Votes, weight_repeats

DISTINCT = np.array([[1.0, 0.3], [-1.0, 0.2], [0.4, -1.0], [0.1, 0.7]])
REPEATED = DISTINCT[[0, 0, 0, 0, 1, 1, 2, 3]]


def test_a_row_found_c_times_counts_c_to_the_four_fifths_in_all() -> None:
    weight = weight_repeats(REPEATED)
    assert weight is not None
    assert weight.mean() == pytest.approx(1.0)
    together = np.array([weight[:4].sum(), weight[4:6].sum(), weight[6], weight[7]])
    np.testing.assert_allclose(together / together[3], [4**0.8, 2**0.8, 1, 1])


def test_rows_that_do_not_repeat_are_not_touched() -> None:
    assert weight_repeats(DISTINCT) is None
    assert Votes.on(DISTINCT, 3).weight is None


def test_minus_zero_is_zero() -> None:
    assert weight_repeats(np.array([[0.0, 1.0], [-0.0, 1.0]])) is not None


def test_the_weighted_rows_are_white() -> None:
    votes = Votes.on(REPEATED, 2)
    assert votes.weight is not None
    second = (votes.rows * votes.weight[:, None]).T @ votes.rows / len(REPEATED)
    np.testing.assert_allclose(second, np.eye(3), atol=1e-9)
    assert np.linalg.eigvalsh(second)[-1] <= 1


@pytest.mark.parametrize("classes", [2, 3])
def test_every_set_of_hard_votes_stays_within_the_sensitivity(classes: int) -> None:
    """Every vote on every row, copies apart: a party need not vote alike on rows that are alike."""
    rows = REPEATED[[0, 1, 2, 4, 6, 7]]
    votes = Votes.on(rows, classes)
    every = one_hot(np.array(list(product(range(classes), repeat=len(rows)))), classes)
    count = len(every)
    rest = np.zeros((count, 1, 2)), np.zeros((count, 1), int), np.ones((count, 1), bool)
    flat = votes.contribution(*rest, every).reshape(count, -1)
    apart = np.linalg.norm(flat[:, None] - flat, axis=-1).max()
    declared = 1.0 if classes == 2 else sqrt(2)
    assert votes.bound.l2 == declared
    assert declared * (1 - 1e-9) <= apart <= declared
    assert np.linalg.norm(flat, axis=1).max() <= votes.bound.radius


def test_weights_without_their_whitening_would_break_it() -> None:
    """Positive control: rows white without weights, weighted all the same, move further than is declared."""
    weight = np.array([4.0, 4.0, 4.0, 4.0, 0.0, 0.0, 0.0, 0.0]) / 2
    rows = fit_whitened_pca(np.random.default_rng(0).normal(size=(8, 2)))(np.random.default_rng(0).normal(size=(8, 2)))
    broken = Votes(classes=2, map=fit_whitened_pca(REPEATED), rows=rows, weight=weight)
    every = one_hot(np.array(list(product(range(2), repeat=8))), 2)
    rest = np.zeros((256, 1, 2)), np.zeros((256, 1), int), np.ones((256, 1), bool)
    flat = broken.contribution(*rest, every).reshape(256, -1)
    assert np.linalg.norm(flat[:, None] - flat, axis=-1).max() > 1.01


def test_weights_of_the_risk_are_copies_of_rows() -> None:
    generator = np.random.default_rng(1)
    moments = 0.1 * generator.normal(size=(2, 2))
    copies = softmax_from_moments(REPEATED, moments, 0.01)
    weighed = softmax_from_moments(DISTINCT, moments, 0.01, weight=np.array([4.0, 2.0, 1.0, 1.0]))
    np.testing.assert_allclose(weighed, copies, atol=1e-4)

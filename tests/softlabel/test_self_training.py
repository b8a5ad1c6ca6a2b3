"""Self-training and clusters on public rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from comity.entropy import Stream
from comity.errors import DataError
from comity.learn.fits import contrasts, fit_softmax, one_hot
from comity.methods.softlabel.self_training import (
    discriminant,
    find_clusters,
    match_shares,
    nearest_centre,
    posteriors,
    self_train,
    softmax_from_moments,
)


def blobs(rows: int = 3000, classes: int = 3, apart: float = 4.0, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    y = generator.integers(0, classes, rows)
    centres = apart * np.eye(classes, 5)
    return centres[y] + generator.normal(size=(rows, 5)), y


def test_a_discriminant_of_hard_labels_is_the_usual_one() -> None:
    x, y = blobs(apart=2.0)
    ours = posteriors(discriminant(x, one_hot(y, 3)), x)
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(x, y).predict_proba(x)
    # Five pseudo-counts a class out of a thousand.
    assert np.abs(ours - theirs).max() < 0.03
    assert np.mean(ours.argmax(1) == theirs.argmax(1)) > 0.99


def test_the_covariance_within_classes_is_that_of_soft_labels() -> None:
    """Against a sum over rows and classes of the weighted outer products."""
    x, y = blobs(rows=200)
    shares = 0.7 * one_hot(y, 3) + 0.1
    counts = shares.sum(0) + 5
    centres = (shares.T @ x + 5 * x.mean(0)) / counts[:, None]
    within = sum(np.einsum("n,ni,nj->ij", shares[:, c], x - centres[c], x - centres[c]) for c in range(3)) / 200
    expected = centres @ np.linalg.inv(within)
    np.testing.assert_allclose(discriminant(x, shares)[:, :-1], expected, rtol=1e-8)


def test_rounds_recover_labels_that_were_mostly_wrong() -> None:
    x, y = blobs()
    guess = np.where(np.random.default_rng(1).random(len(y)) < 0.55, np.random.default_rng(2).integers(0, 3, len(y)), y)
    before = np.mean(guess == y)
    after = np.mean(posteriors(self_train(x, one_hot(guess, 3), 4), x).argmax(1) == y)
    assert before < 0.7 and after > 0.97


def test_intercepts_alone_are_moved_to_given_shares() -> None:
    x, y = blobs(apart=2.0)
    weights, shares = discriminant(x, one_hot(y, 3)), np.array([0.7, 0.28, 0.02])
    moved = match_shares(weights, x, shares)
    np.testing.assert_allclose(posteriors(moved, x).mean(axis=0), shares, atol=1e-6)
    np.testing.assert_array_equal(moved[:, :-1], weights[:, :-1])
    with pytest.raises(DataError, match="3 positive numbers"):
        match_shares(weights, x, np.array([1.0, 0.0, 0.0]))


def test_a_class_that_nobody_was_guessed_to_be_does_no_harm() -> None:
    x, y = blobs()
    weights = self_train(x, one_hot(np.minimum(y, 1), 3), 2)
    assert weights.shape == (3, 6) and np.isfinite(weights).all()


def test_no_rounds_are_refused() -> None:
    with pytest.raises(DataError, match="at least one round"):
        self_train(np.zeros((3, 2)), np.ones((3, 2)) / 2, 0)


def test_clusters_find_separate_groups_and_are_the_same_for_everyone() -> None:
    x, y = blobs(rows=600, apart=12.0)
    centres = find_clusters(x, 3, Stream.public("test"))
    np.testing.assert_array_equal(centres, find_clusters(x, 3, Stream.public("test")))
    member = nearest_centre(x, centres)
    assert all(len(set(member[y == c])) == 1 for c in range(3)) and len(set(member)) == 3
    with pytest.raises(DataError, match="at least as many"):
        find_clusters(x[:2], 3, Stream.public("test"))


@pytest.mark.parametrize("classes", [2, 4])
def test_the_model_of_exact_moments_is_that_of_the_soft_labels(classes: int) -> None:
    """The votes enter the risk through their product with the rows alone."""
    x, y = blobs(rows=400, classes=classes, apart=1.0)
    shares = 0.8 * one_hot(y, classes) + 0.2 / classes
    direct = fit_softmax(x, shares, 1e-2).weights
    moments = contrasts(classes) @ shares.T @ x / len(x)
    np.testing.assert_allclose(softmax_from_moments(x, moments, 1e-2), direct, atol=2e-4)

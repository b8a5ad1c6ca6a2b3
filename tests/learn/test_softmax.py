from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.special import softmax as normalise

from comity.errors import DataError
from comity.learn import fit_logistic, fit_softmax, one_hot
from comity.learn.fits import contrasts


def unit_rows(rng: Any, *shape: Any) -> Any:
    x = rng.normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def gradient(x: Any, y: Any, l2: Any, w: Any) -> Any:
    return (normalise(x @ w.T, axis=1) - y).T @ x / len(x) + l2 * w


def loss(x: Any, y: Any, l2: Any, w: Any) -> Any:
    u = x @ w.T
    return np.mean(logsumexp(u, axis=1) - (y * u).sum(1)) + l2 / 2 * (w * w).sum()


@pytest.mark.parametrize(("n", "d", "classes"), [(4, 9, 3), (20, 4, 3), (6, 6, 6), (1, 3, 2)])
def test_it_finds_scipys_minimiser(n: int, d: int, classes: int) -> None:
    rng = np.random.default_rng(n)
    x, y, l2 = unit_rows(rng, n, d), rng.dirichlet(np.ones(classes), n), 1e-2
    found = minimize(
        lambda w: loss(x, y, l2, w.reshape(classes, d)),
        np.zeros(classes * d),
        jac=lambda w: gradient(x, y, l2, w.reshape(classes, d)).ravel(),
        method="BFGS",
        tol=1e-9,
    )
    np.testing.assert_allclose(fit_softmax(x, y, l2).weights, found.x.reshape(classes, d), atol=1e-5)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 7),
    d=st.integers(1, 7),
    classes=st.integers(2, 6),
    l2=st.sampled_from([1.0, 1e-2, 1e-4, 1e-7]),
    hard=st.booleans(),
)
def test_every_stack_is_solved_and_rows_sum_to_zero(
    seed: int, n: int, d: int, classes: int, l2: Any, hard: bool
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-1, 2, (3, n, d)) / np.sqrt(d)
    index = rng.integers(classes, size=(3, n))
    y = one_hot(index, classes) if hard else rng.dirichlet(np.ones(classes), (3, n))
    fit = fit_softmax(x, index, l2, classes=classes) if hard else fit_softmax(x, y, l2)
    assert fit.weights.shape == (3, classes, d)
    assert fit.converged.all()
    assert np.abs(fit.weights.sum(1)).max() <= 1e-13 * (1 + np.abs(fit.weights).max())
    for party in range(3):
        assert np.linalg.norm(gradient(x[party], y[party], l2, fit.weights[party])) <= 1.1e-10
        alone = fit_softmax(x[party], y[party], l2)
        assert np.linalg.norm(fit.weights[party] - alone.weights) <= 2e-10 / l2


@pytest.mark.parametrize("l2", [1e-4, 1e-9])
@pytest.mark.parametrize("case", ["separable", "one class", "duplicates that disagree"])
@pytest.mark.parametrize(("n", "d"), [(8, 30), (24, 6)])
def test_tiny_penalties_converge(l2: float, case: str, n: int, d: int) -> None:
    rng = np.random.default_rng(8)
    x, y = unit_rows(rng, 5, n, d), rng.integers(4, size=(5, n))
    if case == "separable":
        y = x[..., :4].argmax(-1)
    elif case == "one class":
        y[:] = 2
    else:
        x[:, 1::2] = x[:, ::2]
    fit = fit_softmax(x, y, l2, classes=4)
    assert fit.converged.all()
    worst = max(np.linalg.norm(gradient(a, one_hot(b, 4), l2, w)) for a, b, w in zip(x, y, fit.weights))
    assert worst <= 1.1e-10


def test_two_classes_are_the_logistic_model_at_half_the_penalty() -> None:
    """|W|² = |w|²/2 for W = (−w/2, w/2), so l2 on W is l2/2 on w."""
    rng = np.random.default_rng(4)
    x, y = unit_rows(rng, 9, 5), rng.integers(2, size=9)
    pair = fit_softmax(x, y, 1e-2, classes=2).weights
    np.testing.assert_allclose(pair[1] - pair[0], fit_logistic(x, y, 5e-3).weights, atol=1e-6)


def test_masked_records_weigh_nothing() -> None:
    rng = np.random.default_rng(6)
    x, y = unit_rows(rng, 4, 5, 8), rng.integers(3, size=(4, 5))
    mask = np.array([[0, 0, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 1, 0]], bool)
    x[~mask], y[~mask] = np.nan, 99
    fit = fit_softmax(x, y, 1e-3, classes=3, mask=mask)
    assert not fit.weights[0].any()
    for party in (1, 2, 3):
        alone = fit_softmax(x[party][mask[party]], y[party][mask[party]], 1e-3, classes=3)
        assert np.linalg.norm(fit.weights[party] - alone.weights) <= 2e-7


def test_no_records_give_zero() -> None:
    assert fit_softmax(np.zeros((2, 0, 4)), np.zeros((2, 0), int), 1e-3, classes=3).weights.shape == (2, 3, 4)


def test_a_row_that_sums_to_one_only_nearly_leaves_no_gradient_outside_the_subspace() -> None:
    rng = np.random.default_rng(7)
    x, y = unit_rows(rng, 6, 4), rng.dirichlet(np.ones(3), 6)
    fit = fit_softmax(x, y * (1 + 8e-10), 1e-3)
    assert np.linalg.norm(gradient(x, y, 1e-3, fit.weights)) <= 1.1e-10


def test_contrasts_are_an_orthonormal_basis_of_sum_zero() -> None:
    for classes in (2, 3, 7):
        basis = contrasts(classes)
        np.testing.assert_allclose(basis @ basis.T, np.eye(classes - 1), atol=1e-14)
        np.testing.assert_allclose(basis.sum(1), 0, atol=1e-14)


@pytest.mark.parametrize(
    ("y", "classes", "sentence"),
    [
        ([[0.5, 0.6]], None, "simplex"),
        ([[-0.1, 1.1]], None, "simplex"),
        ([[np.nan, 1.0]], None, "simplex"),
        ([2], 2, "class indices"),
        ([0.5], 2, "whole numbers"),
        ([0], None, "class indices"),
        ([[1.0]], None, "class indices"),
        ([[0.5, 0.5]], 3, "classes=3"),
    ],
)
def test_bad_labels_are_named(y: Any, classes: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        fit_softmax(np.ones((1, 2)), np.array(y), 1e-2, classes=classes)


@pytest.mark.long
def test_the_global_fit_is_exact_at_full_size() -> None:
    rng = np.random.default_rng(9)
    x = unit_rows(rng, 43_000, 123)
    y = normalise(6 * x @ rng.normal(size=(123, 6)), axis=1)
    assert fit_softmax(x, y, 1e-4).gradient_norm <= 1e-9

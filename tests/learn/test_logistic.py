from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from comity.errors import DataError
from comity.learn import fit_logistic, newton


def unit_rows(rng: Any, *shape: Any) -> Any:
    x = rng.normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def gradient(x: Any, y: Any, l2: Any, w: Any) -> Any:
    """Written out for one party, independently of the solver's own arithmetic."""
    return sum((expit(row @ w) - label) * row for row, label in zip(x, y)) / len(y) + l2 * w


def reference(x: Any, y: Any, l2: Any) -> Any:
    """The minimiser by scipy's trust-region Newton with its own code for loss, gradient and Hessian."""

    def loss(w: Any) -> Any:
        u = x @ w
        return np.mean(y * np.logaddexp(0, -u) + (1 - y) * np.logaddexp(0, u)) + l2 / 2 * w @ w

    def hessian(w: Any) -> Any:
        p = expit(x @ w)
        return (x.T * (p * (1 - p))) @ x / len(y) + l2 * np.eye(x.shape[1])

    found = minimize(
        loss,
        np.zeros(x.shape[1]),
        jac=lambda w: gradient(x, y, l2, w),
        hess=hessian,
        method="trust-exact",
        tol=1e-9,
    ).x
    for _ in range(3):
        found = found - np.linalg.solve(hessian(found), gradient(x, y, l2, found))
    return found


@pytest.mark.parametrize(("n", "d"), [(5, 12), (12, 5), (7, 7), (1, 4), (30, 3)])
@pytest.mark.parametrize("l2", [1e-1, 1e-3])
@pytest.mark.parametrize("soft", [False, True])
def test_it_finds_scipys_minimiser(n: int, d: int, l2: float, soft: bool) -> None:
    rng = np.random.default_rng(n * 100 + d)
    x, y = unit_rows(rng, n, d), rng.random(n)
    y = y if soft else np.round(y)
    np.testing.assert_allclose(fit_logistic(x, y, l2).weights, reference(x, y, l2), atol=1e-7)


@pytest.mark.parametrize("l2", [1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize(
    "case", ["separable", "noise", "one class", "duplicates that disagree", "one record", "zero rows"]
)
@pytest.mark.parametrize(("n", "d"), [(22, 60), (30, 8)])
def test_tiny_penalties_converge(l2: float, case: str, n: int, d: int) -> None:
    rng = np.random.default_rng(3)
    x = unit_rows(rng, 4, n, d)
    y = (rng.random((4, n)) < 0.5).astype(float)
    if case == "separable":
        y = (x[..., 0] > 0).astype(float)
    elif case == "one class":
        y = np.ones((4, n))
    elif case == "duplicates that disagree":
        x[:, 1::2], y[:, 1::2] = x[:, ::2], 1 - y[:, ::2]
    elif case == "one record":
        x, y = x[:, :1], y[:, :1]
    elif case == "zero rows":
        x[:, ::3] = 0
    fit = fit_logistic(x, y, l2)
    assert fit.converged.all()
    for party in range(4):
        true = np.linalg.norm(gradient(x[party], y[party], l2, fit.weights[party]))
        # Both sides evaluate x·w in their own order; at l2 = 1e-9, |w| can be 16,000.
        assert true <= 1e-10 + 1e-12
        assert fit.gradient_norm[party] == pytest.approx(true, abs=2e-12)


def test_coefficients_that_cancel_are_solved_again_in_the_span_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    x = np.repeat(unit_rows(rng, 40, 8, 30), 2, axis=1)
    y = np.tile([0.0, 1.0], (40, 8))
    y[:, :4] = rng.random((40, 4)) < 0.5
    assert fit_logistic(x, y, 1e-9).converged.all()
    monkeypatch.setattr(np.linalg, "qr", lambda turned: (_ for _ in ()).throw(RuntimeError("solved again")))
    with pytest.raises(RuntimeError, match="solved again"):
        fit_logistic(x, y, 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 9),
    d=st.integers(1, 9),
    parties=st.integers(1, 4),
    l2=st.sampled_from([10.0, 1e-1, 1e-4, 1e-7]),
    kind=st.sampled_from(["hard", "soft", "edges"]),
)
def test_every_stack_is_solved_and_equals_its_parties(
    seed: int, n: int, d: int, parties: int, l2: Any, kind: Any
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-1, 2, (parties, n, d)) / np.sqrt(d)
    y = rng.random((parties, n))
    y = np.round(y) if kind == "hard" else np.round(2 * y) / 2 if kind == "edges" else y
    fit = fit_logistic(x, y, l2)
    assert fit.converged.all()
    for party in range(parties):
        alone = fit_logistic(x[party], y[party], l2)
        assert alone.gradient_norm.shape == ()
        # Two points with gradients below tol lie within 2·tol/l2 of each other, by strong convexity.
        assert np.linalg.norm(fit.weights[party] - alone.weights) <= 2e-10 / l2


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 8), d=st.integers(1, 12))
def test_masked_records_weigh_nothing(seed: int, n: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = unit_rows(rng, 5, n, d), rng.random((5, n))
    mask = rng.random((5, n)) < 0.6
    mask[0] = False
    x[~mask], y[~mask] = np.nan, np.nan
    fit = fit_logistic(x, y, 1e-3, mask=mask)
    assert fit.converged.all()
    assert not fit.weights[0].any()
    for party in range(1, 5):
        alone = fit_logistic(x[party][mask[party]], y[party][mask[party]], 1e-3)
        assert np.linalg.norm(fit.weights[party] - alone.weights) <= 2e-7


def test_many_blocks_and_leading_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    x, y = unit_rows(rng, 3, 40, 4, 9), rng.random((3, 40, 4))
    whole = fit_logistic(x, y, 1e-2)
    monkeypatch.setattr(newton, "_BLOCK", 64)
    cut = fit_logistic(x, y, 1e-2)
    assert whole.weights.shape == (3, 40, 9)
    assert whole.gradient_norm.shape == (3, 40)
    np.testing.assert_allclose(cut.weights, whole.weights, atol=1e-7)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0, 3), (0, 5, 3)])
def test_no_records_give_zero(shape: Any) -> None:
    fit = fit_logistic(np.zeros(shape), np.zeros(shape[:-1]), 1e-4)
    assert fit.weights.shape == (*shape[:-2], 3)
    assert not fit.weights.any()
    assert fit.converged.all()


def test_what_could_not_be_reached_is_flagged() -> None:
    rng = np.random.default_rng(2)
    fit = fit_logistic(unit_rows(rng, 6, 3), rng.random(6), 1e-6, max_iterations=1)
    assert fit.gradient_norm > 1e-6
    assert not fit.converged


def test_a_penalty_that_rounding_swallows_is_flagged_not_raised() -> None:
    x = np.full((1, 3, 5), 1e6)
    fit = fit_logistic(x, np.array([[0.0, 1.0, 1.0]]), 1e-12)
    assert np.isfinite(fit.weights).all()
    assert np.isfinite(fit.gradient_norm).all()


@pytest.mark.parametrize(
    ("x", "y", "l2", "mask", "sentence"),
    [
        ([[np.nan, 1.0]], [1.0], 1e-3, None, "finite"),
        ([[1.0, 1.0]], [1.5], 1e-3, None, "between 0 and 1"),
        ([[1.0, 1.0]], [np.nan], 1e-3, None, "between 0 and 1"),
        ([[1.0, 1.0]], [1.0, 0.0], 1e-3, None, "one entry per record"),
        ([[1.0, 1.0]], [1.0], 1e-3, [True, True], "mask"),
        ([[1.0, 1.0]], [1.0], 0.0, None, "l2 must be"),
        ([[1.0, 1.0]], [1.0], np.inf, None, "l2 must be"),
        ([1.0, 1.0], [1.0], 1e-3, None, "shape"),
    ],
)
def test_bad_input_is_named(x: Any, y: Any, l2: Any, mask: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        fit_logistic(np.array(x), np.array(y), l2, mask=None if mask is None else np.array(mask))

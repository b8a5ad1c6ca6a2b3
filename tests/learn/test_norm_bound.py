from __future__ import annotations

from math import e, exp, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import lambertw
from scipy.special import softmax as normalise

from comity.errors import StudyError
from comity.learn import fit_logistic, fit_softmax, minimiser_radius, one_hot, vector_radius


def test_the_constants() -> None:
    assert vector_radius(1.0) ** 2 == pytest.approx(0.2785, abs=5e-5)
    assert minimiser_radius(1.0, 6) ** 2 == pytest.approx(0.8146, abs=5e-5)
    assert 52 < vector_radius(1e-4) < 53


@pytest.mark.parametrize("classes", [2, 3, 6, 20])
def test_no_scores_give_more_than_lamberts_value(classes: int) -> None:
    """Search over the scores u of one record of class 0, from many starts: h reaches W0, never passes it."""
    rng = np.random.default_rng(classes)
    best = -np.inf
    for _ in range(20):
        start = rng.normal(size=classes) * 3
        found = minimize(lambda u: -(u[0] - normalise(u) @ u), start, method="BFGS", tol=1e-12)
        best = max(best, -found.fun)
    bound = lambertw((classes - 1) / e).real
    assert best <= bound + 1e-12
    assert best == pytest.approx(bound, abs=1e-9)


@pytest.mark.parametrize("l2", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_one_record_of_the_right_length_attains_it(classes: int, l2: float) -> None:
    """The margin m of a single record solves l2·m = |x|²·C/(C−1)·(1 − p): choose |x| so that m = 1 + W0."""
    m = 1 + lambertw((classes - 1) / e).real
    wrong = (classes - 1) / (exp(m) + classes - 1)
    length = sqrt(l2 * m * (classes - 1) / classes / wrong)
    assert length <= 1
    w = fit_softmax(np.array([[length, 0.0]]), [0], l2, classes=classes).weights
    norm, radius = np.linalg.norm(w), minimiser_radius(l2, classes)
    assert norm <= radius * (1 + 1e-6)
    assert norm >= radius * (1 - 1e-6)


@pytest.mark.parametrize("l2", [1e-2, 1e-4, 1e-6])
def test_one_record_attains_it_with_a_single_vector(l2: float) -> None:
    m = 1 + lambertw(1 / e).real
    length = sqrt(l2 * m * (1 + exp(m)))
    assert length <= 1
    norm = np.linalg.norm(fit_logistic(np.array([[length, 0.0]]), [1.0], l2).weights)
    assert norm == pytest.approx(vector_radius(l2), rel=1e-6)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 6),
    classes=st.integers(2, 6),
    l2=st.sampled_from([10.0, 1e-1, 1e-3, 1e-5]),
    scale=st.sampled_from([0.01, 0.1, 1.0, 10.0]),
)
def test_no_fit_is_longer(seed: int, n: int, classes: int, l2: Any, scale: Any) -> None:
    rng = np.random.default_rng(seed)
    x = scale * rng.normal(size=(n, 4))
    index = rng.integers(classes, size=n)
    fit = fit_softmax(x, one_hot(index, classes), l2)
    norm = np.linalg.norm(fit.weights)
    assert norm <= minimiser_radius(l2, classes, gradient_norm=float(fit.gradient_norm))
    vector = fit_logistic(x, index % 2, l2)
    assert np.linalg.norm(vector.weights) <= vector_radius(l2, gradient_norm=float(vector.gradient_norm))


def test_adversarial_records_stay_inside() -> None:
    """Search for the records and soft labels that make |W| longest; the search gets near and never past."""
    l2, classes, n, d = 1e-3, 3, 2, 2
    rng = np.random.default_rng(0)

    def shortfall(flat: Any) -> Any:
        x = flat[: n * d].reshape(n, d)
        x = x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
        y = normalise(flat[n * d :].reshape(n, classes), axis=1)
        return -np.linalg.norm(fit_softmax(x, y, l2).weights)

    radius = minimiser_radius(l2, classes)
    longest = 0.0
    for _ in range(2):
        start = np.concatenate([rng.normal(size=n * d) * 0.2, rng.normal(size=n * classes) * 3])
        longest = max(longest, -minimize(shortfall, start, method="Nelder-Mead", options={"maxfev": 1200}).fun)
    assert 0.9 * radius < longest <= radius * (1 + 1e-9)


def test_a_gradient_left_over_widens_it() -> None:
    rough = fit_logistic(np.array([[0.05, 0.0], [0.3, 1.0]]), [1.0, 1.0], 1e-4, max_iterations=3)
    assert not rough.converged
    assert np.linalg.norm(rough.weights) <= vector_radius(1e-4, gradient_norm=float(rough.gradient_norm))
    assert vector_radius(1e-4, gradient_norm=1e-2) > vector_radius(1e-4)


@pytest.mark.parametrize(
    ("l2", "classes", "gradient_norm"), [(0.0, 2, 0.0), (1.0, 1, 0.0), (1.0, 2, -1.0), (np.nan, 2, 0)]
)
def test_bad_settings_are_named(l2: Any, classes: int, gradient_norm: float) -> None:
    with pytest.raises(StudyError):
        minimiser_radius(l2, classes, gradient_norm=gradient_norm)

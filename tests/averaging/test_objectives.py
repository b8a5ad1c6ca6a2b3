"""The fits behind the smoothed hinge and the regression, against other solvers and their own derivatives."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import Ridge

from comity.errors import DataError
from comity.learn.fits import Huber, OneMargin, SmoothedHinge, fit_one_margin
from comity.methods.averaging import descent
from comity.methods.averaging.objectives import objective_of
from tests.averaging.default_consortium import make_consortium, protocol


def sample(count: int = 80, width: int = 5, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, width)) / 3
    scores = x @ generator.normal(size=width)
    return x, (scores > 0).astype(float), np.clip(scores, -1, 1)


@pytest.mark.parametrize("loss", [SmoothedHinge(), Huber()])
def test_residual_and_curvature_are_derivatives(loss: Any) -> None:
    margins = np.linspace(-3.03, 3.02, 200)
    labels = np.tile([0.0, 1.0], 100)[None]

    def value(shift: Any) -> Any:
        return loss.evaluate((margins + shift)[None, :, None], labels)[0][0]

    _, state = loss.evaluate(margins[None, :, None], labels)
    estimate = (value(1e-6) - value(-1e-6)) / 2e-6
    np.testing.assert_allclose(loss.residual(state, labels)[0, :, 0], estimate, atol=1e-6)
    _, ahead = loss.evaluate((margins + 1e-6)[None, :, None], labels)
    bend = (loss.residual(ahead, labels) - loss.residual(state, labels))[0, :, 0] / 1e-6
    smooth = np.isclose(bend, np.rint(bend), atol=1e-3)
    np.testing.assert_allclose(loss.curvature(state)[0, :, 0, 0][smooth], bend[smooth], atol=1e-3)
    assert smooth.mean() > 0.9


@pytest.mark.parametrize("l2", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("kind", ["hinge", "squared"])
def test_fits_are_the_minimisers(l2: float, kind: str) -> None:
    x, classes, numbers = sample()
    loss, y = (SmoothedHinge(), classes) if kind == "hinge" else (Huber(), numbers)
    found = fit_one_margin(x, y, l2, loss)
    assert found.converged and found.weights.shape == (5,)

    def objective(w: Any) -> float:
        return float(loss.evaluate((x @ w)[None, :, None], y[None])[0].mean() + l2 / 2 * w @ w)

    best = minimize(objective, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    assert objective(found.weights) <= best.fun + 1e-10


def test_a_regression_whose_distances_stay_below_one_is_ridge_regression() -> None:
    x, _, y = sample()
    found = fit_one_margin(x, y, 0.1, Huber()).weights
    np.testing.assert_allclose(found, Ridge(alpha=0.1 * len(x), fit_intercept=False).fit(x, y).coef_, atol=1e-8)


@pytest.mark.parametrize("loss", [SmoothedHinge(), Huber()])
def test_padding_is_not_read_and_a_stack_is_its_parties(loss: OneMargin) -> None:
    x, y, _ = sample()
    stack = np.stack([x, np.full_like(x, np.nan)])
    stack[1, :30] = x[:30]
    mask = np.stack([np.ones(80, bool), np.arange(80) < 30])
    labels = np.stack([y, np.where(np.arange(80) < 30, y, 7.0)])
    found = fit_one_margin(stack, labels, 0.05, loss, mask=mask).weights
    np.testing.assert_allclose(found[0], fit_one_margin(x, y, 0.05, loss).weights, atol=1e-8)
    np.testing.assert_allclose(found[1], fit_one_margin(x[:30], y[:30], 0.05, loss).weights, atol=1e-8)


def test_wrong_targets_are_refused() -> None:
    x, y, _ = sample()
    with pytest.raises(DataError, match="0 or 1"):
        fit_one_margin(x, 2 * y, 0.1, SmoothedHinge())
    with pytest.raises(DataError, match="between -1 and 1"):
        fit_one_margin(x, 2 * y, 0.1, Huber())
    for loss in (SmoothedHinge(), Huber()):
        with pytest.raises(DataError, match="one entry per record"):
            fit_one_margin(x, y[:5], 0.1, loss)


@pytest.mark.parametrize("kind", ["logistic", "softmax", "svm", "linear"])
def test_a_residual_is_the_derivative_that_the_fit_makes_zero(kind: Any) -> None:
    """At its minimiser the sum of gradients balances the penalty, where nothing is clipped."""
    classes = {"softmax": 3, "linear": 0}.get(kind, 2)
    loss = objective_of(kind, classes)
    x, y, numbers = sample()
    y = numbers if kind == "linear" else np.digitize(numbers, [-0.2, 0.3]).astype(float) if kind == "softmax" else y
    weights = np.atleast_2d(loss.fit(x, y, 0.05).weights)
    gradient = loss.gradient(weights, x, y, np.ones(len(x), bool), loss.max_residual)
    np.testing.assert_allclose(gradient / len(x) + 0.05 * weights, 0, atol=1e-9)
    start = loss.residual(np.zeros((len(x), loss.width)), y)
    if kind != "linear":
        np.testing.assert_allclose(np.linalg.norm(start, axis=-1), loss.initial_residual)


def test_the_clip_follows_the_noise_between_its_two_ends() -> None:
    assert descent.clip_for(1.0) == descent.clip_for(0.01) == pytest.approx(0.5)
    assert descent.clip_for(1e-9) == descent.clip_for(0.001) == pytest.approx(0.7)
    assert descent.clip_for(0.01 / sqrt(10)) == pytest.approx(0.6)
    quiet, loud = (protocol(sizes=size).clip_norm(make_consortium()) for size in (10**6, 100))
    assert quiet == pytest.approx(0.7) and loud == pytest.approx(0.5)
    # A replaced record moves a sum twice as far as an added one, and what the study says stands.
    consortium, other = make_consortium(), make_consortium(neighbours="add-remove")
    assert descent.noise_level(consortium, 9, 100) == pytest.approx(2 * descent.noise_level(other, 9, 100))
    assert protocol(clip=0.3).clip_norm(consortium) == 0.3 and protocol(clip=9.0).clip_norm(consortium) == 1.0
    assert protocol("softmax").clip_norm(consortium) == 0.5 and protocol("svm").clip_norm(consortium) == 1.0

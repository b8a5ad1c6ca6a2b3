"""Coefficients from noisy moments: eigenvalues without the noise's part, and intervals that hold as often as they
say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.learn.noisy_regression import NoisyMoments, clean_values, estimate
from comity.learn.quadratic import DECIDED, spectral_norm

ROWS, WIDTH, DEVIATION = 4000, 12, 40.0
VARIANCES = DEVIATION**2 * (np.ones((WIDTH, WIDTH)) + np.eye(WIDTH))


def noise(generator: Any) -> Any:
    drawn = np.triu(generator.normal(size=(WIDTH, WIDTH)) * np.sqrt(VARIANCES))
    return drawn + np.triu(drawn, 1).T


def mixed(seed: int = 3) -> tuple[Any, Any]:
    """Deviations along axes that span from a half of the noise's norm to forty of it, and the axes."""
    generator = np.random.default_rng(seed)
    norm = spectral_norm(VARIANCES)
    values = norm * np.array([0.5, 0.8, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 30.0, 40.0])
    return values, np.linalg.qr(generator.normal(size=(WIDTH, WIDTH)))[0]


def found(gram: Any, moment: Any, square: float, spread: Any = None) -> NoisyMoments:
    ones = np.ones(WIDTH) if spread is None else spread
    return NoisyMoments(gram, moment, square, VARIANCES, np.full(WIDTH, DEVIATION**2), ROWS, 1.0, False, ones)


def cover(draws: int, residual: float = 0.2, unequal: bool = False) -> tuple[Any, Any]:
    """How often the interval of each weight holds it where a run tells it, and how often runs do."""
    values, axes = mixed()
    generator = np.random.default_rng(8)
    weights = 0.3 * generator.normal(size=WIDTH)
    inside, told = np.zeros(WIDTH), np.zeros(WIDTH)
    for _ in range(draws):
        rows = generator.normal(size=(ROWS, WIDTH)) * np.sqrt(values / ROWS) @ axes.T
        size = np.abs(rows[:, 0]) / rows[:, 0].std() if unequal else 1.0
        label = rows @ weights + residual * size * generator.normal(size=ROWS)
        gram, moment = rows.T @ rows + noise(generator), rows.T @ label + DEVIATION * generator.normal(size=WIDTH)
        square = float(label @ label) + DEVIATION * float(generator.normal())
        made = estimate(found(gram, moment, square), np.eye(WIDTH))
        shown = made.open <= DECIDED
        inside += shown & (np.abs(made.values - weights) <= 1.959964 * made.errors)
        told += shown
    return inside / np.maximum(told, 1), told / draws


def test_every_interval_that_is_told_holds_in_93_to_98_of_100() -> None:
    """600 draws: a share has a standard error of .009. Five of twelve eigenvalues are within four times the noise's
    norm. An interval that repeated the release from noisy moments held nearly always."""
    held, told = cover(600)
    shown = told >= 0.5
    assert shown.sum() >= 6
    assert held[shown].min() >= 0.92 and held[shown].max() <= 0.985
    assert 0.94 <= held[shown].mean() <= 0.972


def test_intervals_hold_where_residuals_are_larger_in_the_rows_that_decide_a_weight() -> None:
    held, told = cover(200, residual=2.0, unequal=True)
    assert held[0] >= 0.93 and told[0] > 0


def test_cleaned_eigenvalues_are_those_of_the_matrix_without_noise_in_the_axes_of_the_noisy_one() -> None:
    values, axes = mixed()
    gram, generator = (axes * values) @ axes.T, np.random.default_rng(1)
    raw, cleaned, wanted = [], [], []
    for _ in range(400):
        noisy, vectors = np.linalg.eigh(gram + noise(generator))
        raw.append(noisy)
        cleaned.append(clean_values(noisy, np.full((WIDTH, WIDTH), DEVIATION**2)))
        wanted.append(np.einsum("ij,ik,kj->j", vectors, gram, vectors))
    means = [np.mean(one, axis=0) for one in (raw, cleaned, wanted)]
    off = np.abs(means[1] - means[2])
    assert off.max() < 0.35 * np.abs(means[0] - means[2]).max()
    assert (np.diff(cleaned, axis=1) >= 0).all() and np.min(cleaned) >= 0


def test_without_noise_estimates_are_the_exact_fit_and_an_empty_column_is_not_told() -> None:
    values, axes = mixed()
    gram = (axes * values) @ axes.T
    gram[-1], gram[:, -1] = 0.0, 0.0
    weights = np.append(np.linspace(-1, 1, WIDTH - 1), 0.0)
    square, none = 500 + float(weights @ gram @ weights), np.zeros(WIDTH)
    exact = NoisyMoments(gram, gram @ weights, square, 0 * VARIANCES, none, ROWS, 1.0, False, np.ones(WIDTH))
    made = estimate(exact, np.eye(WIDTH))
    np.testing.assert_allclose(made.values, weights, atol=1e-7)
    assert made.open[-1] == 1.0 and (made.open[:-1] <= DECIDED).all()


def test_a_column_that_may_have_larger_weights_is_told_less_often() -> None:
    """Its weight may hide in what an estimate leaves out of others, too."""
    values, axes = mixed()
    gram, weights = (axes * values) @ axes.T, np.full(WIDTH, 0.2)
    moment, square = gram @ weights, float(weights @ gram @ weights) + 100
    plain = estimate(found(gram, moment, square), np.eye(WIDTH))
    larger = estimate(found(gram, moment, square, np.where(np.arange(WIDTH) == 0, 100.0, 1.0)), np.eye(WIDTH))
    assert larger.errors[0] > plain.errors[0] and larger.open[0] > plain.open[0]
    assert (larger.open >= plain.open - 1e-9).mean() > 0.7


def test_estimates_are_right_on_average_for_weights_along_an_axis_that_noise_moves() -> None:
    """An inverse of a noisy matrix is too large on average; by a sixth of the weight at 1.5 times the noise's norm."""
    values, axes = mixed()
    values[:2] = values[2]
    gram, weights, generator = (axes * values) @ axes.T, axes[:, 0], np.random.default_rng(4)
    off = []
    for _ in range(600):
        moment = gram @ weights + DEVIATION * generator.normal(size=WIDTH)
        made = estimate(found(gram + noise(generator), moment, values[0] + 100.0), weights[None])
        off.append(float(made.values[0]) - 1)
    assert abs(np.mean(off)) < 0.06


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_units_of_the_label_change_estimates_alone(scale: float) -> None:
    values, axes = mixed()
    gram, weights = (axes * values) @ axes.T + noise(np.random.default_rng(0)), np.linspace(-0.5, 0.5, WIDTH)
    one = estimate(found(gram, gram @ weights, 800.0), np.eye(WIDTH))
    moments = NoisyMoments(
        gram,
        scale * gram @ weights,
        scale**2 * 800.0,
        VARIANCES,
        scale**2 * np.full(WIDTH, DEVIATION**2),
        ROWS,
        scale,
        False,
        np.ones(WIDTH),
    )
    other = estimate(moments, np.eye(WIDTH))
    np.testing.assert_allclose(other.values, scale * one.values, rtol=1e-6, atol=1e-9 * scale)
    np.testing.assert_allclose(other.open, one.open, rtol=1e-6)

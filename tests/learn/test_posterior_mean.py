"""Weights from noisy moments: the fit where these are clear, and the mean target where they are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comity.learn.noisy_regression import NoisyMoments
from comity.learn.posterior_mean import mean_weights
from comity.learn.quadratic import solve_where_clear, spectral_norm

WIDTH = 12
CHANCE = np.random.default_rng(0)
WEIGHTS = CHANCE.normal(size=WIDTH) / 6


def draw(count: int, seed: int) -> tuple[Any, Any]:
    chance = np.random.default_rng(seed)
    columns = chance.uniform(-1, 1, (count, WIDTH)) * np.linspace(0.2, 1, WIDTH) + 0.2
    target = columns @ WEIGHTS + 0.2 + 0.1 * chance.normal(size=count)
    return np.column_stack([columns, np.ones(count)]), np.clip(target, -1, 1)


def moments(rows: Any, target: Any, deviation: float, seed: int) -> NoisyMoments:
    chance, width = np.random.default_rng(seed), rows.shape[1]
    noise = np.triu(chance.normal(size=(width, width)))
    noise += np.triu(noise, 1).T
    noise[-1, -1] = 0.0
    return NoisyMoments(
        rows.T @ rows + deviation * noise,
        rows.T @ target + deviation * chance.normal(size=width),
        float(target @ target + deviation * chance.normal()),
        np.full((width, width), deviation**2),
        np.full(width, deviation**2),
        len(rows),
        1.0,
        True,
        np.ones(width),
    )


def share_explained(weights: Any, seed: int = 99) -> float:
    rows, target = draw(4000, seed)
    return float(1 - np.mean((rows @ weights - target) ** 2) / np.var(target))


def test_clear_moments_give_least_squares() -> None:
    rows, target = draw(5000, 1)
    fitted = np.linalg.lstsq(rows, target, rcond=None)[0]
    assert mean_weights(moments(rows, target, 1e-9, 2), 1e-18) == pytest.approx(fitted, abs=2e-3)


def test_hidden_moments_give_the_mean() -> None:
    """Of columns that noise hides nothing is left; of the mean all that its own noise leaves."""
    rows, target = draw(2000, 1)
    found = [share_explained(mean_weights(moments(rows, target, 3000.0, seed), 3000.0**2)) for seed in range(40)]
    known = [share_explained(_mean_alone(moments(rows, target, 3000.0, seed))) for seed in range(40)]
    assert np.mean(found) > np.mean(known) - 0.15


def _mean_alone(found: NoisyMoments) -> Any:
    return np.append(np.zeros(WIDTH), found.moment[-1] / found.gram[-1, -1])


@pytest.mark.parametrize("deviation", [10.0, 30.0, 100.0, 300.0])
def test_a_model_is_not_worse_than_a_mean_and_hardly_than_a_ridge(deviation: float) -> None:
    rows, target = draw(1500, 3)
    ours, ridge, alone = [], [], []
    for seed in range(30):
        found = moments(rows, target, deviation, seed)
        ours.append(share_explained(mean_weights(found, deviation**2)))
        norm = spectral_norm(found.variances)
        ridge.append(share_explained(solve_where_clear(found.gram, found.moment, norm).weights))
        alone.append(share_explained(_mean_alone(found)))
    assert np.mean(ours) > np.mean(alone) - 0.01
    assert np.mean(ours) > np.mean(ridge) - 0.05
    assert np.min(ours) > np.min(alone) - 0.2


def test_less_noise_is_not_worse() -> None:
    rows, target = draw(1500, 3)
    means = []
    for deviation in (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 0.1):
        found = [moments(rows, target, deviation, seed) for seed in range(20)]
        means.append(np.mean([share_explained(mean_weights(one, deviation**2)) for one in found]))
    assert (np.diff(means) > -0.01).all()


def test_a_target_that_varies_little_within_its_bounds_keeps_its_mean() -> None:
    """A ridge of the noise's size knows nothing of the target's variance: it is far worse than the mean."""
    rows, target = draw(1500, 5)
    small = 0.02 * target
    found = [moments(rows, small, 20.0, seed) for seed in range(20)]
    truth, own = draw(4000, 6)
    own = 0.02 * own

    def explained(weights: Any) -> float:
        return float(1 - np.mean((truth @ weights - own) ** 2) / np.var(own))

    ridge = [explained(solve_where_clear(one.gram, one.moment, spectral_norm(one.variances)).weights) for one in found]
    assert np.mean([explained(mean_weights(one, 400.0)) for one in found]) > np.mean(ridge) + 1


def test_noise_in_products_of_columns_shortens_weights() -> None:
    """The moments are exact, but what they are divided by is not."""
    rows, target = draw(1500, 3)
    exact = rows.T @ target
    lengths = []
    for deviation in (1.0, 300.0):
        found = [
            replace(moments(rows, target, deviation, seed), moment=exact, moment_variances=0 * exact)
            for seed in range(20)
        ]
        lengths.append(np.mean([np.linalg.norm(mean_weights(one, deviation**2)[:-1]) for one in found]))
    assert lengths[1] < 0.7 * lengths[0]


def test_columns_without_any_square_have_no_weight() -> None:
    empty = NoisyMoments(
        np.zeros((2, 2)), np.zeros(2), 0.0, np.ones((2, 2)), np.ones(2), 10, 1.0, constant=False, spread=np.ones(2)
    )
    assert not mean_weights(empty, 1.0).any()

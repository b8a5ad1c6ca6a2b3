"""Private predictors that the published datasets are compared with: perturbed fits, votes and committees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.errors import DataError
from comity.learn.fits import fit_logistic
from comity.methods.synthetic.published.baselines.private_predictors import (
    by_committee,
    by_majority,
    functional_mechanism,
    objective_perturbation,
    perturbed_budget,
    printed_loss,
)
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise


def ball(count: Any, width: Any, seed: int = 0) -> Any:
    chance = np.random.default_rng(seed)
    rows = chance.normal(size=(count, width))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), chance


def test_without_noise_the_perturbed_fit_is_the_fit() -> None:
    class Quiet(SeededNoise):
        def spherical(self, beta: Any, shape: Any, *, permit: Any) -> Any:
            permit.use()
            return np.zeros(shape, np.int64)

    rows, _ = ball(300, 4)
    labels = (rows[:, 0] > 0).astype(np.int64)
    found = objective_perturbation(rows, labels, epsilon=5.0, l2=0.05, source=Quiet(0), permit=simulated_permit("fit"))
    np.testing.assert_allclose(found, fit_logistic(rows, labels, 0.05).weights, atol=1e-6)


def test_the_noise_has_the_corrected_norm() -> None:
    """|b| ~ Gamma(d, 2/ε'), of mean 2d/ε'; seen through what it adds to the gradient at the minimiser."""
    rows, _ = ball(100, 3)
    labels = (rows[:, 0] > 0).astype(np.int64)
    epsilon, l2 = 2.0, 0.1
    left, penalty = perturbed_budget(epsilon, 100, l2, 0.25)
    norms = []
    for seed in range(120):
        w = objective_perturbation(
            rows, labels, epsilon=epsilon, l2=l2, source=SeededNoise(seed), permit=simulated_permit("fit")
        )
        gradient = rows.T @ (1 / (1 + np.exp(-rows @ w)) - labels) / 100 + penalty * w
        norms.append(100 * np.linalg.norm(gradient))
    assert np.mean(norms) == pytest.approx(3 * 2 / left, rel=0.2)


def test_the_printed_noise_is_narrower_by_the_number_of_records_times_the_penalty() -> None:
    """|b| ~ Gamma(d, 2/(nλε)): at nλ = 10 a tenth of what ε needs, so the loss is ten times the claim."""
    rows, _ = ball(100, 3)
    labels = (rows[:, 0] > 0).astype(np.int64)
    epsilon, l2, norms = 2.0, 0.1, []
    for seed in range(120):
        w = objective_perturbation(
            rows,
            labels,
            epsilon=epsilon,
            l2=l2,
            source=SeededNoise(seed),
            permit=simulated_permit("fit"),
            noise="printed",
        )
        # The paper's penalty is λ|w|².
        gradient = rows.T @ (1 / (1 + np.exp(-rows @ w)) - labels) / 100 + 2 * l2 * w
        norms.append(100 * np.linalg.norm(gradient))
    assert np.mean(norms) == pytest.approx(3 * 2 / (100 * l2 * epsilon), rel=0.2)
    assert printed_loss(epsilon, 100, l2, 0.25) == pytest.approx(10 * epsilon, rel=0.01)


def test_where_the_determinant_takes_all_the_penalty_grows_and_half_is_left() -> None:
    expected: Any = (pytest.approx(1 - 0.005, abs=1e-4), 0.01)
    assert perturbed_budget(1.0, 10_000, 0.01, 0.25) == expected
    left, penalty = perturbed_budget(0.1, 10, 1e-6, 1.0)
    assert left == 0.05 and penalty > 1


@pytest.mark.parametrize(("model", "slope"), [("logistic", 1.0), ("svm", 1.0)])
def test_a_replaced_record_moves_the_gradient_of_the_sum_by_at_most_two(model: str, slope: float) -> None:
    from comity.learn.fits import Logistic, SmoothedHinge

    loss = SmoothedHinge() if model == "svm" else Logistic()
    rows, chance = ball(200, 3)
    worst = 0.0
    for w in 3 * chance.normal(size=(50, 3)):
        labels = chance.integers(0, 2, 200).astype(float)[None]
        _, shares = loss.evaluate((rows @ w)[None, :, None], labels)
        gradients = loss.residual(shares, labels)[0] * rows
        assert np.linalg.norm(gradients, axis=1).max() <= slope + 1e-12
        gaps = np.linalg.norm(gradients[:, None] - gradients[None], axis=2)
        worst = max(worst, float(gaps.max()))
    assert 1 < worst <= 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("noise", "times", "holds"), [("corrected", 1, True), ("corrected", 6, False), ("printed", 1, False)]
)
def test_perturbed_fits_of_neighbours_are_no_clearer_than_claimed(noise: Any, times: int, holds: bool) -> None:
    """One of three records on the line is replaced; a sixth of the noise is caught, and so is the printed one."""
    rows = np.array([[1.0], [1.0], [1.0]])

    def fits(labels: Any, first: Any) -> np.ndarray:
        return np.array(
            [
                objective_perturbation(
                    rows,
                    labels,
                    epsilon=1.0 * times,
                    l2=1.0,
                    source=SeededNoise(seed),
                    permit=simulated_permit("fit"),
                    noise=noise,
                )[0]
                for seed in range(first, first + 4000)
            ]
        )

    found = epsilon_lower_bound(fits(np.array([1, 1, 1]), 0), fits(np.array([1, 1, 0]), 10_000))
    assert (found <= 1.0) is holds


def test_records_outside_the_ball_are_refused() -> None:
    with pytest.raises(DataError, match="unit ball"):
        objective_perturbation(
            np.full((3, 2), 2.0), np.ones(3), epsilon=1.0, l2=1.0, source=SeededNoise(0), permit=simulated_permit("fit")
        )


def test_votes_and_committees() -> None:
    predictors = [np.array([1.0, 0.0]), np.array([1.0, -3.0]), np.array([-1.0, 0.0]), np.array([0.5, 0.0])]
    rows = np.array([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.0]])
    assert by_majority(predictors, rows).tolist() == [1, 0, 0]
    np.testing.assert_allclose(by_committee(predictors, rows), [0.375, -0.125, -0.375])


def test_no_replaced_record_moves_the_polynomial_by_more_than_is_printed() -> None:
    """Corners of the domain, where products are largest: what the noise is scaled for, and within it the truth."""
    chance = np.random.default_rng(3)
    for width in (1, 2, 4):
        corners = chance.choice([-1.0, 1.0], (300, width + 1))
        moved = 0.0
        for one, other in zip(corners, corners[::-1]):
            squares = np.abs(np.outer(one[:-1], one[:-1]) - np.outer(other[:-1], other[:-1])).sum()
            linear = np.abs(2 * one[-1] * one[:-1] - 2 * other[-1] * other[:-1]).sum()
            moved = max(moved, float(squares + linear))
        printed = 2 * (1 + 2 * width + width**2)
        assert 0.4 * printed < moved <= 2 * (2 * width + width**2) < printed


def test_a_committee_of_the_functional_mechanism_learns_with_many_records() -> None:
    chance = np.random.default_rng(0)
    rows = chance.uniform(-1, 1, (20_000, 2))
    targets = 0.8 * rows[:, 0]
    predictors = [
        functional_mechanism(rows, targets, epsilon=5.0, source=SeededNoise(seed), permit=simulated_permit("fit"))
        for seed in range(3)
    ]
    assert np.mean((by_committee(predictors, rows) - targets) ** 2) < 0.01

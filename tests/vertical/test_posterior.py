"""What noisy moments say about a classifier: normal classes are found again, noise leaves a constant, and the
deviations that are claimed are those of repeated releases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.data import Classes, Numeric, Schema
from comity.methods.vertical import Vertical, VerticalRegression
from comity.methods.vertical import posterior as module
from comity.methods.vertical.moments import OpenedMoments
from comity.methods.vertical.posterior import CLEAR, HIDDEN, Posterior, clean_covariance, public_trust

WIDTH, ROWS = 6, 20_000
NAMES = [f"x{place}" for place in range(WIDTH)]


@pytest.fixture(autouse=True)
def _without_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RIDGE_SHARE", 0.0)


def protocol(intercept: bool = True) -> VerticalRegression:
    return Vertical.over_columns(
        schema=Schema(tuple(Numeric(name, -1, 1) for name in NAMES), Classes("y", ("no", "yes"))),
        columns={"a": (*NAMES[::2], "y"), "b": tuple(NAMES[1::2])},
        products="dealer",
        max_rows=1 << 16,
        solver="quadratic",
        intercept=intercept,
    )


def normal_classes(share: float = 0.3, apart: float = 1.0) -> tuple[Any, Any]:
    """Numbers whose classes are normal with one covariance, and labels."""
    generator = np.random.default_rng(8)
    labels = generator.uniform(size=ROWS) < share
    mixed = 0.15 * (np.eye(WIDTH) + 0.4 * generator.normal(size=(WIDTH, WIDTH)))
    return generator.normal(size=(ROWS, WIDTH)) @ mixed + apart * np.outer(labels, 0.1 * (np.arange(WIDTH) < 3)), labels


def posterior(held: VerticalRegression, x: Any, labels: Any, deviation: float, seed: int = 0) -> Posterior:
    design, ends = held.design, held.design.label.table.ravel()
    columns = np.empty((len(x), design.width))
    columns[:, design.features] = x[:, [*range(0, WIDTH, 2), *range(1, WIDTH, 2)]] / 2
    columns[:, design.label.start] = np.where(labels, ends.max(), ends.min())
    exact = held.entries.exact(columns)
    noise = deviation * np.random.default_rng(seed).normal(size=exact.shape)
    return OpenedMoments.of(held.entries, exact + noise, len(x), deviation).posterior()


def test_without_noise_normal_classes_have_the_weights_of_discriminant_analysis() -> None:
    held, (x, labels) = protocol(), normal_classes()
    order = [*range(0, WIDTH, 2), *range(1, WIDTH, 2)]
    one, other = x[labels], x[~labels]
    within = (np.cov(one.T) * len(one) + np.cov(other.T) * len(other)) / len(x)
    slope = np.linalg.solve(within, one.mean(axis=0) - other.mean(axis=0))
    middle = (one.mean(axis=0) + other.mean(axis=0)) / 2
    centre = np.log(labels.mean() / (1 - labels.mean())) - middle @ slope
    found = posterior(held, x, labels, 0.0)
    assert found.weights[:-1] / 2 == pytest.approx(slope[order], abs=0.02 * np.abs(slope).max())
    assert held.design.constant * found.weights[-1] == pytest.approx(centre, abs=0.02)
    assert found.slope < 0.05 and found.intercept < 0.01


def test_columns_that_say_nothing_leave_the_frequencies() -> None:
    held, (x, labels) = protocol(), normal_classes(apart=0.0)
    found = posterior(held, x, labels, 600.0)
    scores = x[:, [*range(0, WIDTH, 2), *range(1, WIDTH, 2)]] / 2 @ found.weights[:-1]
    assert scores.std() < 0.15 and np.all(scores + held.design.constant * found.weights[-1] < 0)
    assert found.slope > 0.5


def test_without_a_constant_scores_go_through_zero() -> None:
    held, (x, labels) = protocol(intercept=False), normal_classes(share=0.5)
    centred = x - x.mean(axis=0)
    found = posterior(held, centred, labels, 100.0)
    scores = centred[:, [*range(0, WIDTH, 2), *range(1, WIDTH, 2)]] @ found.weights
    assert len(found.weights) == WIDTH and np.mean((scores > 0) == labels) > 0.65


@pytest.mark.parametrize("deviation", [300.0, 1500.0])
def test_deviations_are_those_of_repeated_releases(deviation: float) -> None:
    """Of the intercept, and of the scores of all columns together: within a factor of two."""
    held, (x, labels) = protocol(), normal_classes()
    exact = posterior(held, x, labels, 0.0)
    found = [posterior(held, x, labels, deviation, seed) for seed in range(40)]
    scores = x[:, [*range(0, WIDTH, 2), *range(1, WIDTH, 2)]]
    along = scores @ exact.weights[:-1]
    slopes = [along @ (scores @ one.weights[:-1]) / (along @ along) for one in found]
    claimed = float(np.median([one.slope for one in found]))
    assert 0.5 * claimed < np.std(slopes) + abs(np.mean(slopes) - 1) < 2 * claimed


def test_the_public_part_of_the_trust_falls_from_one_to_zero() -> None:
    assert public_trust(0.0) == public_trust(CLEAR) == 1.0 and public_trust(HIDDEN) == public_trust(99.0) == 0.0
    assert public_trust(float(np.sqrt(CLEAR * HIDDEN))) == pytest.approx(0.5)


def test_eigenvalues_that_noise_made_are_evened_out_and_others_taken_back() -> None:
    generator, width, noise = np.random.default_rng(2), 60, 0.02
    direction = generator.normal(size=width)
    direction /= np.linalg.norm(direction)
    true = 0.01 * np.eye(width) + 0.8 * np.outer(direction, direction)
    drawn = np.triu(noise * generator.normal(size=(width, width)))
    seen = true + drawn + np.triu(drawn, 1).T
    spread, axes, unknown = clean_covariance(seen, np.full((width, width), noise**2))
    assert abs(axes[:, -1] @ direction) > 0.95 and spread[-1] == pytest.approx(0.8, rel=0.1)
    assert np.ptp(spread[:-1]) == pytest.approx(0.0) and spread[0] == pytest.approx(0.01, rel=0.5)
    assert 0 < unknown < noise**2
    assert clean_covariance(true, np.zeros((width, width)))[2] == 0.0

"""Twenty classes: the rounds come close to a fit without privacy, and less noise never makes a worse model."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.federation.evaluation.assessment import log_loss
from comity.methods.averaging import Averaging
from comity.methods.averaging.objectives import objective_of
from comity.study.simulation.simulate import RunOptions, simulate

NAMES, ROWS, CLASSES = ("ash", "birch", "cedar"), 15_000, 20
EPSILONS = (1.0, 3.0, 10.0, 100.0, 10_000.0)


def table(seed: int, rows: int) -> Records:
    # Every table has the same classes.
    weights = np.random.default_rng(0).normal(size=(CLASSES, 13)) * 1.1
    rng = np.random.default_rng(seed)
    x = np.hstack([rng.uniform(-1, 1, (rows, 12)), np.ones((rows, 1))]) / np.sqrt(13)
    scores = np.sqrt(13) * x @ weights.T + rng.gumbel(size=(rows, CLASSES))
    return Records(x, scores.argmax(axis=1))


@lru_cache(maxsize=16)
def loss(epsilon: float | None) -> float:
    """On fresh records, at this ε or without privacy."""
    train, test = table(1, ROWS), table(2, 10_000)
    assert train.labels is not None and test.labels is not None
    truth = test.labels.astype(np.int64)
    if epsilon is None:
        objective = objective_of("softmax", CLASSES)
        fit = objective.fit(train.features, train.labels.astype(float), 1 / ROWS)
        scores = test.features @ objective.coefficients(fit.weights).T
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return log_loss(shares / shares.sum(axis=1, keepdims=True), truth)
    found = simulate(
        Averaging.over_rows(features=13, sizes=ROWS // 3, classes=tuple(map(str, range(CLASSES))), model="softmax"),
        parties={name: Records(train.features[at::3], train.labels[at::3]) for at, name in enumerate(NAMES)},
        epsilon=epsilon,
        delta=1e-6,
        unit="record",
        seed=5,
        options=RunOptions(baselines=False, hosts=False),
    )
    model: Any = found.presented
    return log_loss(np.asarray(model.predict_proba(test.features)), truth)


def test_a_model_of_twenty_classes_comes_close_to_one_without_privacy() -> None:
    assert loss(10.0) < 1.04 * loss(None)
    assert loss(1.0) < 1.07 * loss(None)


def test_less_noise_never_makes_a_worse_model() -> None:
    found = [loss(epsilon) for epsilon in EPSILONS]
    for louder, quieter in pairwise(found):
        assert quieter < 1.01 * louder


@pytest.mark.parametrize("classes", [2, 3, 4, 20])
@pytest.mark.parametrize("clip", [0.2, 0.5, 1.4])
def test_steps_are_made_for_equally_likely_classes(classes: int, clip: float) -> None:
    objective = objective_of("softmax", classes)
    made = objective.step_curvature(clip)
    assert made == pytest.approx(min(0.5, clip * max(1 / classes, 0.18))) and made <= objective.curvature(clip)
    # Among equally likely classes, the derivative of the mean residual by one margin: a step of 2/κ along it overshoots
    # by no more than it corrects.
    moved = 1e-4 * np.eye(classes - 1, 1)
    labels, filled = np.arange(classes, dtype=float), np.ones(classes, bool)
    steepness = objective.gradient(moved, np.ones((classes, 1)), labels, filled, clip)[0, 0] / classes / 1e-4
    assert -1e-9 <= steepness <= made

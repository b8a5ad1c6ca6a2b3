"""How sure a model is: a pair of numbers that is bounded whatever weights are asked about, believed by its noise."""

from __future__ import annotations

from itertools import product
from math import exp
from typing import Any

import numpy as np
import pytest

from comity.audit.bound import mu_lower_bound
from comity.data import Records
from comity.methods.averaging import Averaging, AveragingProtocol, calibration
from comity.methods.averaging.calibration import PRIOR_DEVIATION, FactorEstimate, calibration_sums
from comity.privacy.loss import Approx
from comity.study.simulation.simulate import RunOptions, simulate
from tests.averaging.default_consortium import make_consortium, make_records, protocol
from tests.support.audits import COUNT, DELTA, SURE, claimed_mu, draw_views

ONE = np.ones(1, bool)


def pairs(built: AveragingProtocol, scale: float, generator: Any) -> np.ndarray:
    """What single records give at weights of one length, along some directions and across all labels."""
    angles = np.linspace(0, 2 * np.pi, 17)
    points = np.stack([r * np.array([np.cos(a), np.sin(a)]) for r in (0.1, 1.0) for a in angles])
    found = []
    for label, _ in product(range(len(built.classes)), range(3)):
        weights = generator.normal(size=built.shape)
        weights *= scale / np.linalg.norm(weights)
        found.append(calibration_sums(built.objective, weights, points[:, None], np.full((34, 1), float(label)), ONE))
    return np.concatenate(found)


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_no_record_moves_a_calibration_further_than_declared(kind: Any, neighbours: str) -> None:
    built = protocol(kind, make_records(kind, width=2))
    declared = built.declare(make_consortium(neighbours=neighbours))["calibration"].sensitivity
    generator = np.random.default_rng(2)
    found = np.concatenate([pairs(built, scale, generator) for scale in (0.0, 1.0, 1.6, 4.0, 1e4, 1e160)])
    apart = np.linalg.norm(found[:, None] - found[None], axis=-1) if neighbours == "replace" else None
    worst = float(np.linalg.norm(found, axis=-1).max() if apart is None else apart.max())
    assert 0.8 * declared < worst <= declared


@pytest.mark.parametrize("weight", [1e308, -1e308, np.inf, np.nan])
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_no_weights_turn_a_sum_into_something_that_is_no_number(kind: Any, weight: float) -> None:
    built, rows = (
        protocol(kind, make_records(kind, width=2)),
        np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.0, 0.0]]),
    )
    found = calibration_sums(built.objective, np.full(built.shape, weight), rows, np.zeros(4), np.ones(4, bool))
    assert np.isfinite(found).all() and np.linalg.norm(found) <= 4 * calibration.limits_of(built.objective).sensitivity(
        replaced=False
    )
    none = calibration_sums(built.objective, np.ones(built.shape), rows, np.zeros(4), np.zeros(4, bool))
    np.testing.assert_array_equal(none, np.zeros(2))


def test_a_calibration_loses_no_more_than_is_debited_for_it() -> None:
    """All asks at weights for which one record is wrong as surely as can be, and its neighbour right with a doubt."""
    built, consortium = Averaging.over_rows(features=2, sizes=100, rounds=1), make_consortium(Approx(40.0, DELTA))
    release, weights = built.declare(consortium)["calibration"], np.array([[40.0, 1.0]])
    rows, labels = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.0, 1.0])
    first, second = (
        calibration_sums(built.objective, weights, rows[at : at + 1], labels[at : at + 1], ONE) for at in (0, 1)
    )

    def measured(one: Any, other: Any) -> float:
        seen = [
            sum(draw_views(release, consortium, value, 10 * side + ask) for ask in range(release.times))
            for side, value in enumerate((one, other))
        ]
        return mu_lower_bound(*((s @ (one - other)).reshape(COUNT) for s in seen), confidence=SURE)

    assert 0.7 * claimed_mu(release) < measured(first, second) <= claimed_mu(release)
    # Scores that are not shortened: the first record pulls forty times as far. A twentieth of it is enough.
    assert measured(40 * first / 20, second) > claimed_mu(release)


def test_models_without_probabilities_are_not_asked() -> None:
    for kind in ("svm", "linear"):
        built = protocol(kind, solver="gradient")
        names = [release.name for release in built.declare(make_consortium()).releases]
        assert built.calibrations == 0 and "calibration" not in names
        assert "calibrate" not in built.expectation(make_consortium())
    assert "2 more sums of two numbers calibrate" in protocol().expectation(make_consortium())


def test_a_factor_is_believed_as_far_as_its_noise_allows() -> None:
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(4000, 1)) * 3
    labels = (generator.random(4000) < 1 / (1 + np.exp(-scores[:, 0]))).astype(float)
    loss, filled = Averaging.over_rows(features=1, sizes=1).objective, np.ones(4000, bool)

    def found(length: float, deviation: float, seed: int = 0) -> FactorEstimate:
        estimate, noise = FactorEstimate(), np.random.default_rng(seed)
        for _ in range(calibration.CALIBRATIONS):
            told = calibration_sums(loss, np.array([[estimate.factor * length]]), scores, labels, filled)
            estimate = estimate.update(told + deviation * noise.normal(size=2), deviation)
        return estimate

    # Scores that are half, once and twice as long as they should be.
    for length in (0.5, 1.0, 2.0):
        assert found(length, 1.0).factor * length == pytest.approx(1.0, abs=0.1)
    # Noise that drowns all records leaves the model as it is, and what is not known of it.
    lost = [found(2.0, 1e6, seed) for seed in range(200)]
    assert np.sqrt(np.mean([one.log**2 for one in lost])) < PRIOR_DEVIATION / 2
    assert np.sqrt(np.mean([found(2.0, 30.0, seed).log ** 2 for seed in range(50)])) > PRIOR_DEVIATION / 2
    # No answer takes it further than a factor of 4.
    far = FactorEstimate()
    for _ in range(5):
        far = far.update(np.array([-1e9, 1.0]), 1e-3)
    assert far.factor == pytest.approx(4.0) and FactorEstimate().update(np.array([5.0, -3.0]), 1.0).factor == 1.0


def test_what_the_second_number_says_is_how_the_first_grows() -> None:
    for kind in ("logistic", "softmax"):
        built, records = protocol(kind, make_records(kind)), make_records(kind)["ash"]
        weights = np.random.default_rng(1).normal(size=built.shape)
        targets, filled = built.scale_targets(np.asarray(records.labels)), np.ones(len(records), bool)
        assert (np.linalg.norm(records.features @ weights.T, axis=1) < 1).any()
        scores = records.features @ weights.T
        along = scores / np.maximum(1, np.linalg.norm(scores, axis=1, keepdims=True))
        pull = [(built.objective.residual(scores * exp(more), targets) * along).sum() for more in (-1e-5, 0.0, 1e-5)]
        found = calibration_sums(built.objective, weights, records.features, targets, filled)
        np.testing.assert_allclose(found, [pull[1], (pull[2] - pull[0]) / 2e-5], rtol=1e-5)


def test_a_model_that_a_low_clip_makes_too_sure_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(10_000, 4)) / 4
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    labels = (generator.random(10_000) < 1 / (1 + np.exp(-6 * rows[:, 0]))).astype(int)
    records = {name: Records(rows[at::5], labels[at::5]) for at, name in enumerate(("a", "b", "c", "d", "e"))}

    def log_loss() -> float:
        outcome = simulate(
            Averaging.over_rows(features=4, sizes=2000, clip=0.15),
            parties=records,
            test=Records(rows, labels),
            epsilon=2.0,
            delta=1e-6,
            unit="record",
            seed=1,
            options=RunOptions(baselines=False, hosts=False),
        )
        return next(figure.value for figure in outcome.assessment.figures if figure.name == "log loss")

    told = log_loss()
    monkeypatch.setattr(calibration, "CALIBRATIONS", 0)
    assert told < 0.98 * log_loss()

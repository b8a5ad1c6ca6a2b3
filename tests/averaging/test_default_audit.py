"""What a coordinator with one party sees of two neighbours: measured loss within the claim, broken twins beyond it.

The coalition knows every contribution but the changed one, and its own part of the noise: left are the honest parts.
Bounds are taken at a confidence of 1 − 1e-7 and draws are seeded.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, cast

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.audit.bound import mu_lower_bound
from comity.federation.declare.payers import spent_by
from comity.methods.averaging import Averaging, second_moments
from comity.privacy.loss import Approx, Pure
from experiments.papers.averaging.adult import noises
from tests.averaging.default_consortium import make_consortium
from tests.support.audits import DELTA, SURE, claimed_mu, draw_views


def gradients(built: Any, y: Any, clip: Any) -> Any:
    """A party of one of two opposite records, at weights for which both are wrong as surely as can be."""
    x = np.zeros((1, built.features))
    x[0, :2] = 0.1, sqrt(0.99) * (1 if y else -1)
    weights = np.zeros(built.shape)
    weights[0, 0] = -1000.0
    return built.objective.gradient(weights, x, np.ones(1), np.ones(1, bool), clip)


def measured_gradients(built: Any, consortium: Any, *, clip: Any = None, parts: Any = None) -> float:
    """All rounds at the worst weights that a coordinator can ask for."""
    release = built.declare(consortium)["gradient"]
    first, second = (gradients(built, y, built.clip_norm(consortium) if clip is None else clip) for y in (0, 1))
    scores = []
    for side, value in enumerate((first, second)):
        rounds = [
            draw_views(release, consortium, value, 100 * side + number, parts=parts)
            for number in range(built.round_count(consortium))
        ]
        scores.append(sum((one * (first - second)).sum((-2, -1)) for one in rounds))
    return mu_lower_bound(*scores, confidence=SURE)


@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_gradients_lose_no_more_than_is_debited_for_them(epsilon: float) -> None:
    built, consortium = Averaging.over_rows(features=2, sizes=100, rounds=2), make_consortium(Approx(epsilon, DELTA))
    found, claimed = measured_gradients(built, consortium), claimed_mu(built.declare(consortium)["gradient"])
    assert 0.7 * claimed < found <= claimed
    assert (
        float(spent_by(built.declare(consortium), "ash", consortium).epsilon_at(cast(Approx, consortium.loss).delta))
        <= epsilon
    )
    # Gradients as they come, without the clip.
    assert measured_gradients(built, consortium, clip=1.0) > claimed


def test_noise_laid_out_for_parts_that_the_reader_knows_is_caught() -> None:
    built, consortium = (
        Averaging.over_rows(features=2, sizes=100, rounds=2),
        make_consortium(Approx(8.0, DELTA), parties=3),
    )
    claimed = claimed_mu(built.declare(consortium)["gradient"])
    assert measured_gradients(built, consortium) <= claimed
    # As if nobody colluded: one of the two counted parts is the reader's own.
    assert measured_gradients(built, consortium, parts=1) > claimed


def test_the_second_moment_loses_no_more_than_its_share() -> None:
    built, consortium = Averaging.over_rows(features=2, sizes=100), make_consortium(Approx(20.0, DELTA))
    release = built.declare(consortium)["second_moment"]
    pair = [second_moments.sum_moments(np.array([row]), built.blocks) for row in ([1.0, 0.0], [0.0, 1.0])]

    def measured(stretched: float = 1.0) -> float:
        seen = [draw_views(release, consortium, stretched * value, side) for side, value in enumerate(pair)]
        return mu_lower_bound(*(one @ (pair[0] - pair[1]) for one in seen), confidence=SURE)

    assert 0.6 * claimed_mu(release) < measured() <= claimed_mu(release)
    # Rows that were not brought into the unit ball.
    assert measured(stretched=2.0) > claimed_mu(release)


def test_blocks_of_a_wide_second_moment_lose_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_moments, "MAX_WHOLE_FEATURES", 2)
    monkeypatch.setattr(second_moments, "_MAX_ENTRIES", 4)
    built, consortium = Averaging.over_rows(features=3, sizes=100), make_consortium(Approx(20.0, DELTA))
    release = built.declare(consortium)["second_moment"]
    assert len(built.blocks) > 1
    pair = [second_moments.sum_moments(np.array([row]), built.blocks) for row in ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0])]

    def measured(stretched: float = 1.0) -> float:
        seen = [draw_views(release, consortium, stretched * value, side) for side, value in enumerate(pair)]
        return mu_lower_bound(*(one @ (pair[0] - pair[1]) for one in seen), confidence=SURE)

    assert 0.6 * claimed_mu(release) < measured() <= claimed_mu(release)
    assert measured(stretched=2.0) > claimed_mu(release)


def averages(built: Any, consortium: Any, flipped: Any) -> Any:
    """m·w of a party whose one record is flipped; the study takes it for a larger one, so that it moves furthest."""
    x, y = np.array([[1.0, 0.0]]), np.array([1.0 if flipped else 0.0])
    l2 = built.penalty(consortium) * built.sizes
    return built.sizes * np.atleast_2d(built.objective.fit(x, built.scale_targets(y), l2).weights)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_pure_average_keeps_its_epsilon(epsilon: float) -> None:
    built, consortium = Averaging.over_rows(features=2, model="svm", sizes=1000, l2=0.1), make_consortium(Pure(epsilon))
    release = built.declare(consortium)["models"]
    first, second = averages(built, consortium, False), averages(built, consortium, True)
    # The pair is nearly the worst that the noise is scaled for.
    assert np.linalg.norm(first - second) > 0.95 * release.sensitivity

    def measured(parts: Any = None) -> float:
        scores = []
        for side, value in enumerate((first, second)):
            seen = draw_views(release, consortium, value, 7 + side, parts=parts)
            scores.append(np.linalg.norm(seen - second, axis=(1, 2)) - np.linalg.norm(seen - first, axis=(1, 2)))
        return epsilon_lower_bound(*scores, confidence=SURE)

    found = measured()
    assert 0.6 * epsilon < found <= epsilon
    # Two of the four counted parts are missing.
    assert measured(parts=2) > epsilon


def test_the_average_with_delta_keeps_its_loss() -> None:
    built = Averaging.over_rows(features=2, model="svm", sizes=1000, l2=0.1, solver="average")
    consortium = make_consortium(Approx(4.0, DELTA))
    release = built.declare(consortium)["models"]
    first, second = averages(built, consortium, False), averages(built, consortium, True)
    scores = [
        (draw_views(release, consortium, v, s) * (first - second)).sum((1, 2)) for s, v in enumerate((first, second))
    ]
    assert 0.7 * claimed_mu(release) < mu_lower_bound(*scores, confidence=SURE) <= claimed_mu(release)


def test_literal_laplace_noise_is_caught_and_spherical_noise_is_not() -> None:
    """K = 1 and 64 weights: a record whose features are all alike moves every weight by as much."""
    epsilon, l2, width, count = 3.0, 10.0, 64, 300_000
    loss = Averaging.over_rows(features=width, sizes=1).objective
    x = np.full((1, width), 1 / sqrt(width))
    fits = [loss.fit(x, np.array([y]), l2).weights for y in (0.0, 1.0)]
    scale, generator = 2.0 / (epsilon * l2), np.random.default_rng(8)

    def measured(kind: Any) -> float:
        scores = []
        for fit in fits:
            found = []
            for _ in range(6):
                if kind == "literal":
                    seen = fit + generator.laplace(scale=scale, size=(count // 6, width))
                    found.append(np.abs(seen - fits[1]).sum(1) - np.abs(seen - fits[0]).sum(1))
                else:
                    noise = generator.normal(size=(count // 6, width))
                    noise *= generator.gamma(width, scale, (count // 6, 1)) / np.linalg.norm(
                        noise, axis=1, keepdims=True
                    )
                    far = [np.linalg.norm(fit + noise - other, axis=1) for other in fits]
                    found.append(far[1] - far[0])
            scores.append(np.concatenate(found))
        return epsilon_lower_bound(*scores, confidence=SURE)

    assert measured("literal") > epsilon
    assert measured("spherical") <= epsilon


def test_the_noise_of_the_reproduction_has_the_shapes_that_it_names() -> None:
    literal = np.array(list(noises("literal", 2.0, 3, 4000, "test")))
    assert np.abs(literal).mean() == pytest.approx(2.0, rel=0.05)
    radius = np.linalg.norm(list(noises("spherical", 2.0, 3, 4000, "test")), axis=1)
    assert radius.mean() == pytest.approx(6.0, rel=0.05) and radius.var() == pytest.approx(12.0, rel=0.15)

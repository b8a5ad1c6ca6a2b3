"""Neighbouring consortia, one party replaced by its opposite: measured loss within the claim, broken twins beyond it.

Bounds are taken at a confidence of 1 − 1e-7 and draws are seeded. The penalty outweighs the curvature, so that the
replaced party moves the model by 94 per cent or more of what its noise allows for.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound, gdp_lower_bound
from comity.data import Records
from comity.entropy import Stream
from comity.federation.coordinator.released import perturb
from comity.methods.softlabel.published.method import PublishedSoftLabel
from comity.privacy.loss import Approx, Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from experiments.papers.softlabel.har import wrong_radius

from .consortia import all_alike, longest_model_l2, make_cohort, make_consortium, protocol

SURE = 1 - 1e-7
COUNT = 200_000
PARTIES, WIDTH = 3, 2
DELTA = 1e-6


def public(width: int = WIDTH) -> np.ndarray:
    x = np.zeros((4, width))
    x[:, 0] = 1.0
    return x


def worst(classes: int, method: str, width: int = WIDTH) -> PublishedSoftLabel:
    """The protocol at the penalty where one party moves its model furthest relative to the claim."""
    return protocol(classes, method, l2=longest_model_l2(classes) if method == "avg" else 10.0, public=public(width))


def minimiser(method: Any, last: Records) -> np.ndarray:
    """What would be released without noise; the other two parties disagree, so that the last one decides a vote."""
    width = method.auxiliary.shape[1]
    records = [all_alike(1.0, 0, width=width), all_alike(1.0, 1, width=width), last]
    total = make_cohort(method, records).sum(method.train if method.method == "avg" else method.vote)
    mean = total.value / total.parties
    return mean if method.method == "avg" else method.fit(mean)


def neighbours(method: Any) -> tuple[np.ndarray, np.ndarray]:
    width = method.auxiliary.shape[1]
    if method.method == "avg":
        return minimiser(method, all_alike(1.0, 0, width=width)), minimiser(method, all_alike(-1.0, 0, width=width))
    return minimiser(method, all_alike(1.0, 0, width=width)), minimiser(method, all_alike(1.0, 1, width=width))


def released(
    method: Any, model: np.ndarray, loss: Any, seed: int, *, count: int = COUNT, shrink: float = 1.0
) -> np.ndarray:
    """Many released models at once, as `perturb` makes them one by one; `shrink` draws less noise than declared."""
    consortium, source = make_consortium(PARTIES, loss), SeededNoise(seed)
    release = method.declare(consortium)["model"]
    scale, shape = release.scale(consortium), (count, *release.shape)
    if isinstance(loss, Pure):
        noise = source._lattice_rows(scale.total * shrink, count, prod(release.shape)).reshape(shape)
    else:
        noise = source.rounded_gaussian(scale.total * shrink, shape, permit=simulated_permit("model"))
    found: np.ndarray = (np.rint(model / scale.grid) + noise) * scale.grid
    return found


def norms(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.sqrt((values**2).sum((-2, -1)))
    return found


def spherical_scores(models: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The log likelihood ratio of the two neighbours, up to its scale."""
    found: np.ndarray = norms(models - second) - norms(models - first)
    return found


def measured_pure(method: Any, seed: int, **kwargs: Any) -> float:
    first, second = neighbours(method)
    scores = [
        spherical_scores(released(method, model, Pure(1), seed + place, **kwargs), first, second)
        for place, model in enumerate((first, second))
    ]
    return epsilon_lower_bound(*scores, confidence=SURE)


def measured_gaussian(method: Any, seed: int, **kwargs: Any) -> float:
    first, second = neighbours(method)
    apart = first - second
    scores = [
        (released(method, model, Approx(1, DELTA), seed + place, **kwargs) * apart).sum((1, 2))
        for place, model in enumerate((first, second))
    ]
    return gdp_lower_bound(*scores, delta=DELTA, confidence=SURE)


@pytest.mark.parametrize("loss", [Pure(1), Approx(1, DELTA)])
@pytest.mark.parametrize("classes", [2, 3])
def test_models_drawn_at_once_are_those_that_a_coordinator_releases(loss: Any, classes: int) -> None:
    soft, consortium = worst(classes, "soft"), make_consortium(PARTIES, loss)
    model, _ = neighbours(soft)
    one = perturb(soft.declare(consortium)["model"], 0, model, consortium, SeededNoise(5), lambda _, make: make())
    np.testing.assert_array_equal(one, released(soft, model, loss, 5, count=1)[0])


CASES = [(2, "soft"), (3, "soft"), (2, "avg"), (3, "avg"), (2, "vote")]


@pytest.mark.parametrize(("classes", "method"), CASES)
def test_spherical_noise_holds_its_pure_claim(classes: Any, method: Any) -> None:
    assert 0.5 <= measured_pure(worst(classes, method), 1) <= 1


@pytest.mark.parametrize(("classes", "method"), CASES)
def test_gaussian_noise_holds_its_claim(classes: Any, method: Any) -> None:
    assert 0.5 <= measured_gaussian(worst(classes, method), 1) <= 1


def test_half_of_the_noise_is_caught() -> None:
    assert measured_pure(worst(2, "soft"), 1, shrink=1 / 2) > 1
    assert measured_gaussian(worst(2, "soft"), 1, shrink=1 / 2) > 1


def test_a_sensitivity_divided_by_the_square_of_the_parties_is_caught() -> None:
    assert measured_pure(worst(2, "soft"), 1, shrink=1 / PARTIES) > 1
    assert measured_gaussian(worst(2, "soft"), 1, shrink=1 / PARTIES) > 1


def test_a_vote_with_the_noise_of_a_share_is_caught() -> None:
    """One party turns the whole majority round: the noise may not be divided by their number."""
    assert measured_pure(worst(2, "vote"), 1, shrink=1 / PARTIES) > 1
    assert measured_gaussian(worst(2, "vote"), 1, shrink=1 / PARTIES) > 1


def test_a_radius_of_gamma_one_is_caught() -> None:
    """The published curves' noise: far too often almost nothing."""
    soft = worst(2, "soft", width=4)
    first, second = neighbours(soft)
    stream = Stream.public("test wrong radius")
    scale = soft.sensitivity(PARTIES)
    scores = [
        -norms(np.stack([model + wrong_radius(scale, soft.shape, stream) for _ in range(8_000)]) - first)
        for model in (first, second)
    ]
    assert epsilon_lower_bound(*scores, confidence=SURE) > 1.5
    # The same look at noise of the right radius finds nothing.
    right = [-norms(released(soft, model, Pure(1), place) - first) for place, model in enumerate((first, second))]
    assert epsilon_lower_bound(*right, confidence=SURE) <= 1

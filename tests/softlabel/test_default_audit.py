"""Neighbouring consortia under the default protocol: one party replaced by its worst case, for every statistic.

What is looked at is the opened sum against the strongest declared adversary: the contributions in grid units and the
parts of noise that the colluders do not know. Bounds are taken at a confidence of 1 − 1e-7 and draws are seeded.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod, sqrt
from typing import Any

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound, gdp_lower_bound
from comity.data import Records
from comity.federation.coordinator.lifecycle import run
from comity.learn.local_models import as_local_model
from comity.methods.softlabel.method import SoftLabel, SoftLabelProtocol
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Approx, Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.privacy.sampling.lattice_noise import count_parts

from .consortia import labels
from .default_consortia import STATISTICS, contribution, host_parties, make_consortium, quantise

SURE = 1 - 1e-7
COUNT = 100_000
DELTA = 1e-6
PARTIES = 3
PURE = ("votes", "class-sums", "cells", "models")
CASES = [(name, classes) for name in STATISTICS for classes in (2, 3)]
PURE_CASES = [(name, classes) for name in PURE for classes in (2, 3)]


@cache
def protocol(statistic: Any, classes: int) -> SoftLabelProtocol:
    """Few public rows in the plane: the fewer numbers carry noise, the more an audit can see."""
    rows = 4 if statistic == "histograms" else 40
    auxiliary = np.random.default_rng(3).normal(size=(rows, 2)) / 4
    return SoftLabel.over_rows(auxiliary=auxiliary, classes=labels(classes), statistic=statistic, sizes=1)


def gaussian(epsilon: float) -> GDP:
    """The Gaussian noise of (epsilon, DELTA): over so few numbers the protocol would take spherical noise instead."""
    return gaussian_budget(Approx(epsilon, DELTA))


def who_for(loss: Any) -> Any:
    return make_consortium(PARTIES, loss)


def all_for(chosen: int) -> Any:
    return as_local_model(lambda features, labels_, auxiliary, classes: np.full(len(auxiliary), chosen))


def candidates(tried: SoftLabelProtocol, consortium: Any) -> list[np.ndarray]:
    """Contributions of parties at the edges of what there can be, in grid units."""
    classes = len(tried.classes)
    one = Records(np.zeros((1, 2)), np.zeros(1, np.int64))
    if tried.choice(consortium).statistic.needs == "votes":
        return [quantise(tried, consortium, contribution(tried, consortium, one, all_for(k))) for k in range(classes)]
    circle = [np.array([np.cos(turn), np.sin(turn)]) for turn in np.linspace(0, 2 * np.pi, 12, endpoint=False)]
    # All records in one place, or in two opposite ones.
    alike = [Records(x[None] * 0.9, np.array([k])) for x, k in product(circle, range(classes))]
    apart = [
        Records(np.stack([x, -x]) * 0.9, np.array(pair))
        for x, pair in product(circle, product(range(classes), repeat=2))
    ]
    return [quantise(tried, consortium, contribution(tried, consortium, own)) for own in (*alike, *apart)]


@cache
def neighbours(statistic: str, classes: int, loss: Any) -> tuple[np.ndarray, np.ndarray]:
    """Sums of three contributions, the last party's being the two that lie furthest apart."""
    tried, consortium = protocol(statistic, classes), who_for(loss)
    found = np.stack(candidates(tried, consortium))
    flat = found.reshape(len(found), -1).astype(float)
    far = np.sqrt(((flat[:, None] - flat[None]) ** 2).sum(-1))
    first, second = np.unravel_index(far.argmax(), far.shape)
    others = found[0] + found[-1]
    return others + found[first], others + found[second]


def release_of(tried: SoftLabelProtocol, consortium: Any) -> Any:
    return tried.declare(consortium)[tried.choice(consortium).statistic.name]


def opened(
    tried: SoftLabelProtocol, units: np.ndarray, loss: Any, seed: int, *, count: int = COUNT, shrink: float = 1.0
) -> Any:
    """Many opened sums at once; `shrink` draws parts of less noise than declared."""
    consortium = who_for(loss)
    release = release_of(tried, consortium)
    scale, out = release.scale(consortium), np.repeat(units[None], count, axis=0)
    for part in range(consortium.honest_parts):
        source = SeededNoise(1000 * seed + part)
        if isinstance(loss, Pure):
            parts, size = count_parts(scale.total, scale.part), prod(release.shape)
            out += source._part_rows(scale.total * shrink, parts, count, size).reshape(out.shape)
        else:
            out += source.rounded_gaussian(scale.part * shrink, out.shape, permit=simulated_permit(release.name))
    return out.astype(float)


def norms(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.sqrt((values**2).sum((-2, -1)))
    return found


def measured(statistic: str, classes: int, loss: Any, **kwargs: Any) -> float:
    tried, (first, second) = protocol(statistic, classes), neighbours(statistic, classes, loss)
    sums = [opened(tried, units, loss, place + 1, **kwargs) for place, units in enumerate((first, second))]
    if isinstance(loss, Pure):
        return epsilon_lower_bound(*(norms(s - second) - norms(s - first) for s in sums), confidence=SURE)
    apart = (first - second) / norms((first - second).astype(float))
    return gdp_lower_bound(*((s * apart).sum((1, 2)) for s in sums), delta=DELTA, confidence=SURE)


@pytest.mark.parametrize("loss", [Pure(1), gaussian(1)])
@pytest.mark.parametrize("statistic", ["votes", "cells"])
def test_sums_drawn_at_once_are_those_that_a_run_opens(
    loss: Any, statistic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, consortium = protocol(statistic, 3), who_for(loss)
    own = Records(np.array([[0.3, 0.1], [-0.2, 0.4]]), np.array([0, 2]))
    parties, hosts = host_parties(tried, [own] * PARTIES, consortium=consortium)
    for place, host in enumerate(hosts.values()):
        host.noise = SeededNoise(1000 + place)
    seen: Any
    seen, kind = [], type(tried.choice(consortium).statistic)
    model = kind.model
    monkeypatch.setattr(kind, "model", lambda self, mean, sd: seen.append(mean) or model(self, mean, sd))
    run(parties)
    exact = PARTIES * quantise(tried, consortium, contribution(tried, consortium, own))
    # A run adds the part of the third party as well, which a colluder would know.
    third = opened(tried, 0 * exact, loss, 1, count=1)[0]
    release = release_of(tried, consortium)
    last = release.noise.draw(
        SeededNoise(1002), release.scale(consortium), release.shape, permit=simulated_permit(release.name), part=True
    )
    np.testing.assert_array_equal(np.rint(seen[0] * PARTIES / release.spacing(consortium)), exact + third + last)


@pytest.mark.parametrize(("statistic", "classes"), CASES)
def test_the_replaced_party_is_nearly_as_far_as_its_noise_allows_for(statistic: Any, classes: Any) -> None:
    loss = gaussian(1)
    first, second = neighbours(statistic, classes, loss)
    consortium, tried = who_for(loss), protocol(statistic, classes)
    release = release_of(tried, consortium)
    moved = float(norms((first - second).astype(float))) * release.spacing(consortium)
    rounding = release.spacing(consortium) * sqrt(prod(release.shape))
    least = 0.85 if (statistic, classes) in (("class-sums", 3), ("models", 3)) else 0.99
    assert least * release.sensitivity <= moved <= release.sensitivity + rounding


@pytest.mark.parametrize(("statistic", "classes"), CASES)
def test_gaussian_noise_holds_its_claim(statistic: Any, classes: Any) -> None:
    assert 0.4 <= measured(statistic, classes, gaussian(1)) <= 1


@pytest.mark.parametrize(("statistic", "classes"), PURE_CASES)
def test_spherical_noise_holds_its_pure_claim(statistic: Any, classes: Any) -> None:
    assert 0.3 <= measured(statistic, classes, Pure(1)) <= 1


@pytest.mark.parametrize("statistic", STATISTICS)
def test_half_of_the_sensitivity_is_caught(statistic: Any) -> None:
    assert measured(statistic, 3, gaussian(1), shrink=1 / 2) > 1


@pytest.mark.parametrize("statistic", PURE)
def test_half_of_the_sensitivity_is_caught_under_pure_epsilon(statistic: Any) -> None:
    assert measured(statistic, 3, Pure(1), shrink=1 / 2) > 1


@pytest.mark.parametrize("statistic", ["votes", "histograms", "cells"])
def test_a_missing_factor_of_the_root_of_two_is_caught(statistic: str) -> None:
    """Two points of the simplex, or two disjoint cells, lie that much further apart than each from the origin."""
    assert measured(statistic, 3, gaussian(1), shrink=1 / sqrt(2)) > 1


def gamma_one(tried: SoftLabelProtocol, units: np.ndarray, seed: int) -> np.ndarray:
    """Noise in a uniform direction whose length is exponential: the radius that the published curves fit."""
    consortium = who_for(Pure(1))
    release = release_of(tried, consortium)
    scale, generator = release.scale(consortium), np.random.default_rng(seed)
    direction = generator.normal(size=(COUNT, *units.shape))
    length = generator.exponential(scale.total, COUNT)[:, None, None]
    found: np.ndarray = units + np.rint(direction / norms(direction)[:, None, None] * length)
    return found


@pytest.mark.parametrize("statistic", PURE)
def test_a_radius_of_gamma_one_is_caught(statistic: Any) -> None:
    tried, (first, second) = protocol(statistic, 3), neighbours(statistic, 3, Pure(1))
    wrong = [-norms(gamma_one(tried, units, place) - first) for place, units in enumerate((first, second))]
    assert epsilon_lower_bound(*wrong, confidence=SURE) > 1.5
    # The same look at noise of the right radius finds nothing.
    right = [-norms(opened(tried, units, Pure(1), place + 1) - first) for place, units in enumerate((first, second))]
    assert epsilon_lower_bound(*right, confidence=SURE) <= 1


@pytest.mark.long
@pytest.mark.parametrize(("statistic", "classes"), CASES)
@pytest.mark.parametrize("epsilon", [0.3, 3])
def test_other_claims_hold_over_more_draws(statistic: Any, classes: Any, epsilon: float) -> None:
    assert measured(statistic, classes, gaussian(epsilon), count=1_000_000) <= epsilon
    if statistic != "histograms":
        assert measured(statistic, classes, Pure(epsilon), count=1_000_000) <= epsilon

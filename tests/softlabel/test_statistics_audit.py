"""Neighbouring consortia, one party's data replaced by its worst case: measured loss within the claim of each one.

What is drawn are the parts of the honest parties, as they add up in the secure sum, around sums that pass through
`contribution`, the bound and the grid. Bounds are taken at a confidence of 1 − 1e-7 and draws are seeded. Twins with a
factor left out of the sensitivity, or with the radius of the published curves, are caught.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound, gdp_lower_bound
from comity.entropy import Stream
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Release
from comity.federation.declare.protection import Summed
from comity.federation.declare.release import Array
from comity.learn.fits import one_hot
from comity.methods.softlabel.choice import choose_noise
from comity.methods.softlabel.record_sums import Cells, ClassSums
from comity.methods.softlabel.statistic import Statistic
from comity.methods.softlabel.votes import Histograms, Models, Votes
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from experiments.papers.softlabel.har import wrong_radius
from experiments.papers.softlabel.release import total

SURE, DELTA, COUNT = 1 - 1e-7, 1e-6, 100_000
# Under Gaussian noise a factor of √2 takes more draws to tell from none with that confidence.
MORE = 300_000
ROWS = np.random.default_rng(0).normal(size=(30, 2)) * np.array([3.0, 1.0])


def make_consortium(loss: Loss) -> Consortium:
    """Four parties of whom one colludes: three parts of the noise count."""
    return Consortium(parties=("ash", "birch", "cedar", "doum"), loss=loss)


def released(statistic: Statistic, loss: Loss) -> Release:
    return Release(
        name=statistic.name,
        source=EVERY_PARTY,
        to=COORDINATOR,
        protection=Summed(choose_noise(loss)),
        form=Array(statistic.shape, "<i8"),
        bound=statistic.bound,
    )


def votes(classes: int) -> tuple[Statistic, np.ndarray, np.ndarray]:
    statistic = Votes.on(ROWS, classes, 1)
    rest = ROWS[None, :1], np.zeros((1, 1), int), np.ones((1, 1), bool)
    first, second = (statistic.contribution(*rest, one_hot(np.full(30, c), classes)[None]) for c in (0, 1))
    return statistic, first, second


def histograms() -> tuple[Statistic, np.ndarray, np.ndarray]:
    statistic = Histograms.on(ROWS[:3], 2)
    rest = ROWS[None, :1], np.zeros((1, 1), int), np.ones((1, 1), bool)
    first, second = (statistic.contribution(*rest, one_hot(np.full(3, c), 2)[None]) for c in (0, 1))
    return statistic, first, second


def class_sums() -> tuple[Statistic, np.ndarray, np.ndarray]:
    """One record far beyond the clip, of either class: the constant turns round with the direction."""
    statistic = ClassSums.on(ROWS, 2, records_per_party=100, dimensions=1)
    row = ROWS[np.abs(statistic.rows[:, 0]).argmax()]
    both = statistic.contribution(np.stack([row, row])[:, None], np.array([[0], [1]]), np.ones((2, 1), bool))
    return statistic, both[:1], both[1:]


def frequencies() -> tuple[Statistic, np.ndarray, np.ndarray]:
    """No direction at all: a party of one class, replaced by one of the other."""
    statistic = ClassSums.on(ROWS, 2, records_per_party=10, dimensions=0)
    both = statistic.contribution(np.stack([ROWS[:3]] * 2), np.array([[0] * 3, [1] * 3]), np.ones((2, 3), bool))
    return statistic, both[:1], both[1:]


def cells() -> tuple[Statistic, np.ndarray, np.ndarray]:
    statistic = Cells.on(ROWS, 2, cells=1)
    both = statistic.contribution(ROWS[:2, None], np.array([[0], [1]]), np.ones((2, 1), bool))
    return statistic, both[:1], both[1:]


def models() -> tuple[Statistic, np.ndarray, np.ndarray]:
    statistic = Models.on(ROWS, 2, 1)
    both = statistic.contribution(
        np.stack([ROWS[:4]] * 2), np.array([[0, 1, 1, 0], [1, 0, 0, 1]]), np.ones((2, 4), bool)
    )
    return statistic, both[:1], both[1:]


WORST = {
    "votes of two": lambda: votes(2),
    "votes of three": lambda: votes(3),
    "histograms": histograms,
    "class sums": class_sums,
    "class frequencies": frequencies,
    "cells": cells,
    "models": models,
}


def sums(statistic: Statistic, release: Release, terms: Consortium, *own: np.ndarray) -> list[np.ndarray]:
    """Totals of three parties that contribute nothing in particular and one of the two."""
    others = np.stack([statistic.bound.neutral(statistic.shape)] * 3)
    return [total(release, [others, one], terms).astype(float) for one in own]


def parts(release: Release, terms: Consortium, seed: int, shrink: float, count: int) -> np.ndarray:
    """Many sums of the honest parties' parts; `shrink` draws them for a smaller sensitivity."""
    scale, source, size = release.scale(terms), SeededNoise(seed), prod(release.shape)
    honest = terms.honest_parts
    if isinstance(terms.loss, Pure):
        drawn = source._part_rows(scale.total * shrink, honest, count * honest, size)
    else:
        drawn = source.rounded_gaussian(
            scale.part * shrink, (count * honest, size), permit=simulated_permit(release.name)
        )
    found: np.ndarray = drawn.reshape(count, honest, *release.shape).sum(axis=1)
    return found


def measured(case: str, loss: Loss, *, shrink: float = 1.0, seed: int = 1, count: int = COUNT) -> float:
    statistic, *own = WORST[case]()
    terms, release = make_consortium(loss), released(statistic, loss)
    first, second = sums(statistic, release, terms, *own)
    noisy = [
        centre + parts(release, terms, seed + place, shrink, count) for place, centre in enumerate((first, second))
    ]
    axes = (1, 2)
    if isinstance(loss, Pure):

        def away(y: Any, centre: Any) -> Any:
            return np.sqrt(((y - centre) ** 2).sum(axes))

        return epsilon_lower_bound(*(away(y, second) - away(y, first) for y in noisy), confidence=SURE)
    return gdp_lower_bound(*((y * (first - second)).sum(axes) for y in noisy), delta=DELTA, confidence=SURE)


@pytest.mark.parametrize("case", [case for case in WORST if case != "histograms"])
def test_spherical_parts_hold_the_pure_claim(case: Any) -> None:
    assert 0.4 <= measured(case, Pure(1)) <= 1


@pytest.mark.parametrize("case", WORST)
def test_gaussian_parts_hold_the_claim(case: Any) -> None:
    assert 0.5 <= measured(case, Approx(1, DELTA)) <= 1


@pytest.mark.parametrize(
    ("case", "missing"),
    [
        ("votes of three", sqrt(2)),
        ("histograms", sqrt(2)),
        ("cells", sqrt(2)),
        ("class sums", 2.0),
        ("class frequencies", sqrt(2)),
        ("models", 2.0),
    ],
)
def test_a_missing_factor_is_caught(case: str, missing: Any) -> None:
    """√2 between corners of a simplex taken for 1, or the diameter of a ball taken for its radius."""
    assert measured(case, Approx(1, DELTA), shrink=1 / missing, count=MORE) > 1
    if case != "histograms":
        assert measured(case, Pure(1), shrink=1 / missing) > 1


def test_the_radius_of_the_published_curves_is_caught() -> None:
    """Gamma(1) instead of Gamma(d), at the right sensitivity."""
    statistic, *own = votes(3)
    first, second = (one[0] for one in own)
    stream = Stream.public("test wrong radius of a sum")
    scores = [
        -np.linalg.norm(
            np.stack([centre + wrong_radius(statistic.bound.l2, statistic.shape, stream) for _ in range(8_000)])
            - first,
            axis=(1, 2),
        )
        for centre in (first, second)
    ]
    assert epsilon_lower_bound(*scores, confidence=SURE) > 1.5

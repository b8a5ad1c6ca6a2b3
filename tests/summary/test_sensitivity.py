"""How far one record moves what is released, by brute force, for messages that no honest coordinator would send too."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any

import numpy as np
import pytest

from comity.entropy import Stream
from comity.learn.record_sum import upper_triangle
from comity.methods.summary import ratio
from comity.methods.summary.features import (
    LENGTH,
    MEAN_WEIGHT,
    MOMENT_LENGTH,
    MOMENT_SENSITIVITY,
    FourierFeatures,
    count_moments,
    split_moments,
    sum_moments,
)
from comity.methods.summary.ratio import MAX_RANK, Ratio, Spectrum

from .consortia import COLUMNS, build_one_shot, make_consortium, make_records


def vector(phi: Any) -> np.ndarray:
    return np.concatenate([upper_triangle(phi[None, :]), MEAN_WEIGHT * phi])


def test_no_two_feature_vectors_are_further_apart_than_the_moments_are_noised_for() -> None:
    """Over the angle between two unit vectors, which is all that the distance depends on."""
    cosines = np.linspace(-1, 1, 20_001)
    square = 2 - 2 * cosines**2 + MEAN_WEIGHT**2 * (2 - 2 * cosines)
    assert sqrt(square.max()) <= MOMENT_SENSITIVITY
    assert sqrt(square.max()) == pytest.approx(MOMENT_SENSITIVITY, rel=1e-5)
    chance = np.random.default_rng(1)
    for _ in range(300):
        one, other = chance.normal(size=(2, 5))
        one, other = LENGTH * one / np.linalg.norm(one), LENGTH * other / np.linalg.norm(other)
        apart = np.linalg.norm(vector(one) - vector(other))
        assert apart <= MOMENT_SENSITIVITY
        assert np.linalg.norm(vector(one)) <= MOMENT_LENGTH
        assert np.linalg.norm(vector(one) - vector(np.zeros(5))) <= MOMENT_SENSITIVITY


def test_the_sum_of_moments_is_that_of_its_records_and_opens_to_what_it_was_made_of() -> None:
    features = FourierFeatures.draw(COLUMNS, 12, 2.0, Stream.public("moments"))
    rows = make_records()["ash"].features
    phi = features(rows)
    total = sum_moments(rows, features)
    assert total.shape == (count_moments(12),)
    assert total == pytest.approx(sum(vector(one) for one in phi), rel=1e-9)
    product, mean = split_moments(total, 12)
    assert product == pytest.approx(phi.T @ phi) and mean == pytest.approx(phi.sum(axis=0))


def test_replacing_a_record_moves_an_owners_moments_by_no_more_than_declared() -> None:
    built = build_one_shot()
    release, features = built.declare(make_consortium())["moments"], built.features(make_consortium())
    chance, rows, largest = np.random.default_rng(2), make_records()["ash"].features, 0.0
    before = sum_moments(rows, features)
    # Far outside of what a schema allows, and what is no number at all.
    for other in (*chance.normal(size=(40, COLUMNS)) * 50, np.full(COLUMNS, np.nan), np.full(COLUMNS, 1e300)):
        changed = rows.copy()
        changed[0] = other
        largest = max(largest, float(np.linalg.norm(sum_moments(changed, features) - before)))
    assert 0.9 * sqrt(2) < largest <= release.sensitivity


def spectra() -> Iterator[Spectrum]:
    """As a coordinator may send them: honest, enormous, tiny, crooked."""
    chance = np.random.default_rng(3)
    for scale in (1.0, 1e-12, 1e12, 1e-300):
        yield Spectrum(chance.normal(size=10), chance.normal(size=(10, 4)), scale * chance.random(4) + 1e-300)
    yield Spectrum(1e200 * np.ones(10), 1e200 * np.ones((10, 3)), np.array([1e-300, 1.0, 1e300]))
    yield Spectrum(np.zeros(10), np.zeros((10, 0)), np.zeros(0))


def test_the_consumers_rows_lie_in_the_unit_ball_whatever_the_coordinator_sends() -> None:
    features = FourierFeatures.draw(COLUMNS, 10, 2.0, Stream.public("wish"))(make_records()["elm"].features)
    declared = build_one_shot().declare(make_consortium())["wish"]
    for seen in spectra():
        rows = seen.in_ball(features)
        assert rows.shape == (len(features), seen.rank) and np.isfinite(rows).all()
        assert (np.linalg.norm(rows, axis=1) <= 1 + 1e-12).all()
    assert declared.shape == (MAX_RANK,) and 2 <= declared.sensitivity <= 2.001


def test_no_record_counts_for_more_than_the_bound_whatever_the_coordinator_sends() -> None:
    features = FourierFeatures.draw(COLUMNS, 10, 2.0, Stream.public("mass"))(make_records()["ash"].features)
    chance = np.random.default_rng(4)
    for seen in spectra():
        for theta in (
            chance.normal(size=1 + seen.rank),
            1e308 * np.ones(1 + seen.rank),
            -1e308 * np.ones(1 + seen.rank),
        ):
            found = Ratio(seen, theta)(features)
            assert ((found >= 0) & (found <= ratio.MAX_RATIO)).all()
    declared = build_one_shot().declare(make_consortium())["mass"]
    assert ratio.MAX_RATIO**2 <= declared.sensitivity <= ratio.MAX_RATIO**2 * 1.001


def test_an_inner_product_of_features_can_be_negative_enough_for_the_bound_to_be_met() -> None:
    """With the mean left out of the account the noise would be too narrow: the worst pair is at s = −c²/2, not at 0."""
    worst = -(MEAN_WEIGHT**2) / 2
    square = 2 - 2 * worst**2 + MEAN_WEIGHT**2 * (2 - 2 * worst)
    assert sqrt(square) > sqrt(2 + 2 * MEAN_WEIGHT**2)
    assert sqrt(square) * LENGTH**2 <= MOMENT_SENSITIVITY * (1 + 1e-12)

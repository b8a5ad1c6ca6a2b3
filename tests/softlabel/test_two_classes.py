"""Posterior means of class sums of two classes: what a clip took is given back, and what noise made is taken away."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from comity.methods.softlabel.record_sums import EXPLAINED, clip
from comity.methods.softlabel.two_classes import Expected, likely_shares, likely_sums, sample_squares

RECORDS, DIRECTIONS = 20, 3
EXPECTED = Expected(
    clip=clip(2, DIRECTIONS, RECORDS),
    records=RECORDS,
    parts=np.array([0.5, 0.3, 0.2]),
    sampled=sample_squares(np.random.default_rng(7).normal(size=(4000, DIRECTIONS)), RECORDS),
    explained=EXPLAINED,
)


def opened(share: float, parties: int, seed: int, slope: float = 0.0, expected: Expected = EXPECTED) -> np.ndarray:
    """The mean of parties' clipped sums, of records in white directions of which the first says this much."""
    generator = np.random.default_rng(seed)
    labels = (generator.random((parties, expected.records)) < share).astype(int)
    rows = generator.normal(size=(*labels.shape, len(expected.parts)))
    rows[..., 0] -= slope * (labels - share)
    sides = (1 - 2 * labels) / sqrt(2)
    sums = np.concatenate([sides[..., None] * rows, sides[..., None]], axis=-1).mean(axis=1)
    length = np.linalg.norm(sums, axis=-1, keepdims=True)
    return np.asarray((sums * np.minimum(1, expected.clip / length)).mean(axis=0)[None])


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.5, 0.8])
def test_shares_are_those_of_parties_that_the_clip_shortened(share: float) -> None:
    mean = opened(share, 20_000, 0)
    found = likely_sums(mean, 1e-2, EXPECTED).shares
    assert found.sum() == pytest.approx(1)
    assert found[1] == pytest.approx(share, abs=0.03)
    # The opened frequency itself is nearer to one half.
    if share <= 0.1:
        assert 0.5 - mean[0, -1] / sqrt(2) > share + 0.08


def test_moments_are_those_before_the_clip() -> None:
    mean = opened(0.2, 20_000, 1, slope=1.0)
    # Of the contrast and the first direction: slope·share·(1 − share)·2/√2.
    likely = likely_sums(mean, 1e-3, EXPECTED)
    assert likely.directions[0, 0] == pytest.approx(sqrt(2) * 0.2 * 0.8, rel=0.05)
    assert likely.deviation > 1.1e-3 and np.abs(likely.directions[0, 1:]).max() < 0.01


def test_classes_are_treated_alike() -> None:
    mean = opened(0.2, 50, 2, slope=0.5)
    one, other = (likely_sums(sign * mean, 0.1, EXPECTED) for sign in (1, -1))
    np.testing.assert_allclose(one.shares, other.shares[::-1])
    np.testing.assert_allclose(one.directions, -other.directions)
    np.testing.assert_allclose(likely_shares(mean[:, -1:], 0.1, 5), likely_shares(-mean[:, -1:], 0.1, 5)[::-1])


def test_more_noise_leaves_less_and_in_the_end_nothing() -> None:
    mean = opened(0.2, 50, 3, slope=1.0)
    found = [likely_sums(mean, deviation, EXPECTED) for deviation in np.geomspace(1e-4, 1e3, 60)]
    kept = [float(np.linalg.norm(one.directions)) for one in found]
    assert (np.diff(kept[20:]) <= 1e-9).all() and kept[-1] < 1e-6 and kept[0] > 0.1
    # No step of noise by a quarter takes more than a fifth of what there was: there is no threshold.
    assert max(-np.diff(kept)) < 0.2 * kept[0]
    np.testing.assert_allclose(found[-1].shares, 0.5, atol=1e-3)


def test_moments_of_noise_alone_are_taken_away_and_those_that_stand_out_are_kept() -> None:
    generator, deviation = np.random.default_rng(4), 0.08
    nothing = np.array([[0.0, 0.0, 0.0, 0.35]])
    drawn = nothing + deviation * generator.normal(size=(40, 1, 4))
    found = np.stack([likely_sums(one, deviation, EXPECTED).directions for one in drawn])
    assert (found**2).sum() < 0.3 * (drawn[..., :-1] ** 2).sum()
    clear = np.array([[0.3, 0.0, 0.0, 0.2]])
    assert likely_sums(clear, deviation, EXPECTED).directions[0, 0] > 0.25


def test_directions_of_little_public_variance_are_shrunk_more() -> None:
    alike = np.array([[0.1, 0.1, 0.1, 0.2]])
    found = likely_sums(alike, 0.08, EXPECTED).directions[0]
    assert found[0] > found[1] > found[2] > 0


def test_a_rare_class_leaves_little_for_directions_to_tell() -> None:
    """2p(1 − p) is all that there is: the same moments are noise where one class is rare."""
    even, rare = (np.array([[0.2, 0.0, 0.0, frequency]]) for frequency in (0.0, 0.69))
    roomy = replace(EXPECTED, clip=2.0)
    kept = [likely_sums(one, 0.08, roomy).directions[0, 0] for one in (even, rare)]
    assert kept[1] < 0.85 * kept[0]


def test_posterior_means_are_nearer_than_opened_frequencies() -> None:
    generator, deviation = np.random.default_rng(5), 0.09
    errors = []
    for seed, share in enumerate(generator.random(60)):
        mean = opened(share, 200, seed) + deviation * generator.normal(size=(1, DIRECTIONS + 1))
        likely = likely_sums(mean, deviation, EXPECTED).shares[1]
        errors.append((likely - share, np.clip(0.5 - mean[0, -1] / sqrt(2), 0, 1) - share))
    ours, plain = np.square(errors).mean(axis=0)
    assert ours < 0.85 * plain


@pytest.mark.parametrize("records", [1, 5, 50])
def test_what_parties_name_says_how_frequent_classes_are(records: int) -> None:
    generator = np.random.default_rng(6)
    for share in (0.1, 0.35, 0.5):
        counts = generator.binomial(records, share, 200_000)
        named = np.mean(counts > records / 2) + 0.5 * np.mean(2 * counts == records)
        found = likely_shares(np.array([[(1 - 2 * named) / sqrt(2)]]), 1e-4, records)
        if named > 1e-3:
            assert found[1] == pytest.approx(share, abs=0.05)
        else:
            # All name the first class: the second may have any share that is hardly ever the larger one.
            assert 0.05 < found[1] < 0.4
    # Noise alone says nothing.
    np.testing.assert_allclose(likely_shares(np.array([[0.3]]), 1e3, records), 0.5, atol=1e-3)

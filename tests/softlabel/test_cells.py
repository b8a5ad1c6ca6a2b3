"""Cells: what a party says of each, where they lie, and when they are believed."""

from __future__ import annotations

from itertools import product
from math import sqrt

import numpy as np
import pytest

from comity.methods.softlabel.record_sums import Cells, shrink_cells
from comity.methods.softlabel.self_training import discriminant

GENERATOR = np.random.default_rng(0)
LEFT, RIGHT = np.array([-2.0, 0.0, 0.0]), np.array([2.0, 0.0, 0.0])
ROWS = np.concatenate([GENERATOR.normal(place, 0.3, (50, 3)) for place in (LEFT, RIGHT)])


def two_cells(classes: int = 3) -> Cells:
    return Cells.on(ROWS, classes, cells=2)


def test_a_party_says_the_most_frequent_label_of_each_cell_in_which_it_has_records() -> None:
    cells = two_cells()
    features = np.stack([LEFT, LEFT, LEFT, RIGHT, RIGHT])[None]
    labels = np.array([[0, 0, 1, 1, 2]])
    got = cells.contribution(features, labels, np.ones((1, 5), bool))[0]
    left = int(np.linalg.norm(cells.centres - cells.places(LEFT), axis=1).argmin())
    expected = np.zeros((3, 2))
    # Three records of two labels say one thing; two that tie say half of each.
    expected[:, left], expected[:, 1 - left] = (1, 0, 0), (0, 0.5, 0.5)
    np.testing.assert_allclose(got, expected / np.linalg.norm(expected))
    alone = cells.contribution(features, labels, np.array([[True, True, True, False, False]]))[0]
    np.testing.assert_allclose(alone[:, left], (1, 0, 0))
    assert not alone[:, 1 - left].any()


def test_every_party_of_few_records_stays_within_the_sensitivity() -> None:
    """All labels of up to two records in each of two cells, pair by pair; 4^4 parties, some of which reach it."""
    cells = two_cells()
    features = np.broadcast_to(np.stack([LEFT, LEFT, RIGHT, RIGHT]), (256, 4, 3))
    every = np.array(list(product(range(-1, 3), repeat=4)))
    sent = cells.bound.enforce(cells.contribution(features, every, every >= 0), cells.shape)
    flat = sent.reshape(256, -1)
    apart = np.linalg.norm(flat[:, None] - flat, axis=-1).max()
    assert sqrt(2) * (1 - 1e-9) <= apart <= cells.bound.l2 * (1 + 1e-9)


def test_cells_lie_where_encoded_rows_differ_most() -> None:
    """Whitened, a direction of a hundredth of the spread would count as much, and part the groups as often as not."""
    generator = np.random.default_rng(3)
    side = np.repeat([-1.0, 1.0], 100)
    rows = np.column_stack([side + 0.2 * generator.normal(size=200), 0.02 * generator.choice([-1.0, 1.0], (200, 12))])
    cells = Cells.on(rows, 3, cells=2)
    assert abs(np.corrcoef(cells.member, side)[0, 1]) == pytest.approx(1.0)


def test_cells_that_differ_by_noise_alone_fall_back_on_their_mean() -> None:
    generator, deviation = np.random.default_rng(1), 0.03
    alike = np.tile(np.array([[0.15], [0.08], [0.04]]), 12)
    noise = deviation * generator.normal(size=(40, 3, 12))
    found = np.stack([shrink_cells(alike + one, deviation) for one in noise])
    apart, before = (np.square(one - one.mean(axis=2, keepdims=True)).sum() for one in (found, alike + noise))
    assert apart < 0.2 * before
    np.testing.assert_allclose(found.mean(axis=2), (alike + noise).mean(axis=2))
    # Every cell of one class: nothing is taken away.
    plain = np.eye(3)[:, np.arange(12) % 3] / sqrt(12)
    np.testing.assert_allclose(shrink_cells(plain + noise[0], deviation), plain + noise[0], atol=1e-12)


def test_cells_that_clearly_differ_are_believed_however_little_they_do() -> None:
    """A single square of differences that is expected would call smaller ones noise. Here they have a square of .07,
    three times the deviation that noise gives it in the first case."""
    generator = np.random.default_rng(5)
    little = 0.29 * np.eye(8)[:, np.arange(27) % 8] / np.sqrt(27)
    for deviation in (0.033, 1e-3, 1e-5):
        found = [kept(little + deviation * generator.normal(size=(8, 27)), deviation) for _ in range(8)]
        assert np.mean(found) > 0.75


def test_cells_are_believed_by_the_evidence_and_by_the_prior_where_noise_would_answer() -> None:
    generator, deviation = np.random.default_rng(2), 0.12
    half = 0.5 * np.eye(4)[:, np.arange(8) % 4] / sqrt(8)
    noise = generator.normal(size=(4, 8))
    grown = [kept(scale * half + deviation * noise, deviation) for scale in (0.0, 1.0, 2.0, 3.0)]
    assert grown == sorted(grown) and grown[-1] > 0.99
    assert kept(9 * noise, 9.0) == pytest.approx(0.8, abs=0.01)
    np.testing.assert_array_equal(shrink_cells(noise[:, :1], 0.01), noise[:, :1])


def kept(mean: np.ndarray, deviation: float) -> float:
    """The share of the differences between cells that is left of them."""
    apart = mean - mean.mean(axis=1, keepdims=True)
    return float((shrink_cells(mean, deviation) * apart).sum() / (apart**2).sum())


def test_the_model_is_made_of_what_stands_out() -> None:
    """Three cells that say the same but for noise: the discriminant of equal shares, and not of the loudest labels."""
    cells = Cells.on(ROWS, 3, cells=3)
    mean = np.array([[0.3, 0.3, 0.3], [0.1, 0.1, 0.1], [0.1, 0.1, 0.1]])
    off = 0.01 * np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [-1.0, 0.0, 1.0]])
    unlike = cells.model(mean + off, 0.01)
    np.testing.assert_allclose(unlike, cells.model(mean, 0.01), atol=1e-5)
    assert unlike.shape == discriminant(cells.rows, np.full((len(ROWS), 3), 1 / 3)).shape

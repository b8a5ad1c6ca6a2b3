"""Second moments of wide records: their blocks, how far a record moves them, steps that never overshoot, and a plan
that says when steps go nowhere."""

from __future__ import annotations

from itertools import pairwise, product
from math import sqrt
from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.federation.coordinator.lifecycle import run
from comity.learn.record_sum import upper_triangle
from comity.methods.averaging import Averaging, second_moments
from comity.methods.averaging.second_moments import (
    MAX_WHOLE_FEATURES,
    count_entries,
    make_blocks,
    read_matrices,
    read_square,
    sum_moments,
)
from comity.privacy.loss import Approx, Pure
from comity.study.simulation.simulate import RunOptions, simulate
from tests.averaging.default_consortium import factor_in_one_place, make_consortium, parties, ridge_in_one_place

NAMES = ("ash", "birch", "cedar", "doum", "elm")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A width above which blocks begin that a test can fill."""
    monkeypatch.setattr(second_moments, "MAX_WHOLE_FEATURES", 6)
    monkeypatch.setattr(second_moments, "_MAX_ENTRIES", 21)


@pytest.mark.parametrize("features", [1, 400, 511, MAX_WHOLE_FEATURES])
def test_up_to_a_width_all_second_moments_are_released(features: Any) -> None:
    assert make_blocks(features) == (slice(0, features),)
    assert count_entries(make_blocks(features)) == features * (features + 1) // 2 + 1


@pytest.mark.parametrize("features", [MAX_WHOLE_FEATURES + 1, 3000, 10_000, 100_000])
def test_wider_records_release_blocks_of_no_more_entries(features: Any) -> None:
    blocks = make_blocks(features)
    assert blocks[0].start == 0 and blocks[-1].stop == features
    assert all(one.stop == other.start for one, other in pairwise(blocks))
    assert count_entries(blocks) <= max(count_entries(make_blocks(MAX_WHOLE_FEATURES)), features + 1)
    lengths = {block.stop - block.start for block in blocks}
    assert max(lengths) - min(lengths) <= 1


def test_the_vector_holds_the_blocks_of_the_second_moment() -> None:
    rows = np.random.default_rng(0).normal(size=(2, 9, 7))
    blocks = (slice(0, 3), slice(3, 5), slice(5, 7))
    found = sum_moments(rows, blocks)
    assert found.shape == (2, count_entries(blocks))
    for party in range(2):
        whole = rows[party].T @ rows[party]
        for matrix, block in zip(read_matrices(found[party], blocks), blocks):
            np.testing.assert_allclose(matrix, whole[block, block])
        assert read_square(found[party]) == pytest.approx((rows[party] ** 2).sum())
    np.testing.assert_allclose(sum_moments(rows, (slice(0, 7),))[:, :-1], upper_triangle(rows))


def ball() -> np.ndarray:
    """Rows of two blocks of two features: on the axes, between them, across the blocks, and shorter ones."""
    grid = np.array(list(product((-1.0, 0.0, 0.5, 1.0), repeat=4)))
    norms = np.linalg.norm(grid, axis=1)
    return np.concatenate([grid[norms > 0] / norms[norms > 0, None], 0.5 * grid[norms == 1], np.zeros((1, 4))])


DIAGONAL = tuple(slice(at, at + 1) for at in range(4))


@pytest.mark.parametrize("blocks", [(slice(0, 4),), (slice(0, 2), slice(2, 4)), DIAGONAL])
def test_no_record_moves_the_blocks_further_than_declared(blocks: Any) -> None:
    vectors = np.stack([sum_moments(row[None], blocks) for row in ball()])
    worst = np.linalg.norm(vectors[:, None] - vectors[None], axis=-1).max()
    added = np.linalg.norm(vectors, axis=-1).max()
    assert worst == pytest.approx(sqrt(2)) and added == pytest.approx(sqrt(1.25))
    built = Averaging.over_rows(features=4, sizes=100)
    for name in ("second_moment", "whitened_moment"):
        assert built.declare(make_consortium())[name].sensitivity >= worst
        assert built.declare(make_consortium(neighbours="add-remove"))[name].sensitivity >= added


def test_a_wide_study_declares_its_blocks_and_their_sensitivity(narrow: None) -> None:
    built = Averaging.over_rows(features=12, sizes=1000)
    release = built.declare(make_consortium())["second_moment"]
    assert len(built.blocks) > 1 and release.shape == (count_entries(built.blocks),)
    assert release.sensitivity == pytest.approx(sqrt(2), rel=1e-6)


def test_k_times_the_blocks_is_never_less_than_the_second_moment() -> None:
    generator = np.random.default_rng(1)
    blocks = (slice(0, 2), slice(2, 5), slice(5, 6))
    for _ in range(20):
        rows = generator.normal(size=(9, 6)) * generator.uniform(0, 3, size=6) + generator.normal(size=6)
        inside = np.zeros((6, 6))
        for matrix, block in zip(read_matrices(sum_moments(rows, blocks), blocks), blocks):
            inside[block, block] = matrix
        assert np.linalg.eigvalsh(len(blocks) * inside - rows.T @ rows)[0] >= -1e-9
    # And less would not do: rows of one direction across all blocks.
    rows = np.ones((5, 3))
    inside = np.diag((rows**2).sum(0))
    assert np.linalg.eigvalsh(2.9 * inside - rows.T @ rows)[0] < 0


def test_wide_records_descend_by_the_steps_of_their_blocks(narrow: None) -> None:
    generator = np.random.default_rng(2)
    rows = generator.normal(size=(5, 60, 12))
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    truth = generator.normal(size=12)
    records = {n: Records(x, (x @ truth > 0).astype(int)) for n, x in zip(NAMES, rows)}
    built, consortium = Averaging.over_rows(features=12, sizes=60, rounds=4), make_consortium()
    released = run(parties(built, records, consortium)[0])["model"]
    everything, labels = rows.reshape(-1, 12), np.concatenate([own.labels for own in records.values()])
    matrix = np.zeros((12, 12))
    for block in built.blocks:
        part = everything[:, block]
        matrix[block, block] = part.T @ part
    ridge = ridge_in_one_place(built, consortium, [matrix[block, block] for block in built.blocks])
    matrix = built.objective.step_curvature(
        built.clip_norm(consortium)
    ) / 2 * built.touched_blocks * matrix + ridge * np.eye(12)
    weights, way = np.zeros((1, 12)), []
    for _ in range(4):
        present = np.ones(len(everything), bool)
        gradient = built.objective.gradient(
            weights, everything, labels.astype(float), present, built.clip_norm(consortium)
        )
        weights = weights - np.linalg.solve(matrix, gradient.T).T
        way.append(weights)
    found = np.mean(way[2:], axis=0)
    found = found * factor_in_one_place(built, records, consortium, found, lambda number: NAMES)
    np.testing.assert_allclose(released, found, atol=2e-3)


def test_records_wider_than_four_hundred_features_are_learned() -> None:
    """One length for all steps took 511 features nowhere in twenty rounds, at any ε."""
    generator = np.random.default_rng(3)
    width, count = 450, 4000
    # A common part that all rows share, as categories and a constant give them, beside a weak direction that decides.
    rows = np.hstack([np.full((count, 1), 0.8), generator.normal(size=(count, width - 1)) * 0.6 / sqrt(width - 1)])
    rows[:, 1] += 0.15 * generator.choice([-1, 1], count)
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    labels = (rows[:, 1] > 0).astype(int)
    records = {n: Records(rows[at::5], labels[at::5]) for at, n in enumerate(NAMES)}
    outcome = simulate(
        Averaging.over_rows(features=width, sizes=count // 5),
        parties=records,
        epsilon=50.0,
        delta=1e-6,
        unit="record",
        seed=1,
        test=Records(rows, labels),
        options=RunOptions(baselines=False, hosts=False),
    )
    assert outcome.error is not None and outcome.error < 0.05


def test_a_plan_warns_where_its_steps_cant_converge() -> None:
    small, large = Averaging.over_rows(features=562, sizes=760), Averaging.over_rows(features=562, sizes=760_000)
    (sentence,) = small.warnings(make_consortium(Approx(1.0, 1e-6)))
    assert "can't converge" in sentence and "562" in sentence and "3,800 records" in sentence
    assert not large.warnings(make_consortium(Approx(1.0, 1e-6)))
    assert not small.warnings(make_consortium(Approx(50.0, 1e-6)))
    assert not any("can't converge" in one for one in small.warnings(make_consortium(Pure(1.0))))
    # Many blocks make steps short whatever the noise is.
    wide = Averaging.over_rows(features=200_000, sizes=10**9)
    assert wide.warnings(make_consortium(Approx(50.0, 1e-6)))

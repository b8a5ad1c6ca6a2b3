"""Rows whitened by what was opened: bounded whatever they are multiplied by, and longer where records differ."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

from comity.audit.bound import mu_lower_bound
from comity.data import Records
from comity.methods.averaging import Averaging, second_moments
from comity.methods.averaging.second_moments import (
    MAX_DIRECTIONS,
    WHITENINGS,
    Whitening,
    count_whitenings,
    fit_whitening,
    make_blocks,
    sum_moments,
)
from comity.privacy.loss import Approx
from comity.study.simulation.simulate import RunOptions, simulate
from tests.averaging.default_consortium import make_consortium, whitening_in_one_place
from tests.support.audits import COUNT, DELTA, SURE, claimed_mu, draw_views

NAMES = ("ash", "birch", "cedar", "doum", "elm")
# What a coordinator may ask for: as it should be, a thousand times too long, one direction blown up, all of it gone.
ASKED = [
    Whitening.identity(2),
    Whitening.identity(2).with_stage(0, 1e3, np.array([[0.6, 0.3]])),
    Whitening.identity(2).with_stage(0, 1e200, np.array([[1e150, 0.0], [0.0, -1e150]])),
    Whitening.identity(2).with_stage(0, -3.0, np.array([[5.0, -2.0]])),
    Whitening.identity(2).with_stage(0, 0.0, np.zeros((1, 2))),
]


def disc() -> np.ndarray:
    angles = np.linspace(0, 2 * np.pi, 33)
    return np.concatenate([r * np.stack([np.cos(angles), np.sin(angles)], axis=1) for r in (0.0, 1e-3, 0.5, 1.0)])


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_no_record_moves_a_sum_further_than_declared_however_it_is_whitened(asked: Whitening, neighbours: Any) -> None:
    built, consortium = Averaging.over_rows(features=2, sizes=100), make_consortium(neighbours=neighbours)
    declared, points = built.declare(consortium), asked.map_into_ball(disc())
    vectors = np.stack([sum_moments(point[None], built.blocks) for point in points])
    one = np.ones(1, bool)
    slopes = np.stack(
        [
            built.objective.gradient(
                np.full((1, 2), weight), row[None], np.array([label]), one, built.clip_norm(consortium), u[None]
            )
            for row, u in zip(disc(), points)
            for weight, label in ((0.0, 1.0), (900.0, 0.0), (-900.0, 1.0))
        ]
    ).reshape(-1, 2)
    for name, found in (("whitened_moment", vectors), ("gradient", slopes)):
        apart = np.linalg.norm(found[:, None] - found[None], axis=-1).max()
        moved = apart if neighbours == "replace" else np.linalg.norm(found, axis=-1).max()
        assert moved <= declared[name].sensitivity


@pytest.mark.parametrize("name", ["whitened_moment", "gradient"])
def test_whitened_rows_lose_no_more_than_is_debited_for_them(name: Any) -> None:
    """Two records that differ where the coordinator has rows stretched a thousand times."""
    built, consortium = Averaging.over_rows(features=2, sizes=100, rounds=1), make_consortium(Approx(20.0, DELTA))
    release, white = built.declare(consortium)[name], Whitening.identity(2).with_stage(0, 1e3, np.zeros((1, 2)))
    pair = np.array([[1e-2, 0.0], [0.0, 1e-2] if name == "whitened_moment" else [-1e-2, 0.0]])

    def measured(rows: Any) -> float:
        if name == "gradient":
            weights = np.array([[0.0, 0.0]])
            sums = [built.objective.gradient(weights, x, np.ones(1), np.ones(1, bool), 0.5, x) for x in rows[:, None]]
        else:
            sums = [sum_moments(x, built.blocks) for x in rows[:, None]]
        seen = [draw_views(release, consortium, value, side) for side, value in enumerate(sums)]
        return mu_lower_bound(*((one * (sums[0] - sums[1])).reshape(COUNT, -1).sum(1) for one in seen), confidence=SURE)

    assert 0.6 * claimed_mu(release) < measured(white.map_into_ball(pair)) <= claimed_mu(release)
    # Rows that are not brought into the ball after they were stretched; a fifth of them is enough.
    assert measured(white.map_rows(pair) / 5) > claimed_mu(release)


def test_weights_of_whitened_rows_are_weights_of_rows() -> None:
    generator = np.random.default_rng(0)
    rows, weights = generator.normal(size=(7, 5)), generator.normal(size=(3, 5))
    white = Whitening.identity(5).with_stage(0, 1.7, generator.normal(size=(4, 5)) / 3)
    np.testing.assert_allclose(white.map_rows(rows) @ weights.T, rows @ white.unwhiten(weights).T)
    np.testing.assert_array_equal(Whitening.identity(5).map_rows(rows), rows)


def shared(count: int = 4000, width: int = 30) -> np.ndarray:
    """Rows that have most of their length in common."""
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(count, width)) * 0.2 / sqrt(width)
    rows[:, 0] += 0.7
    rows[:, 1:4] *= 5
    return np.asarray(rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True)))


def test_no_direction_is_left_with_more_than_a_tenth_and_rows_have_a_mean_square_of_one() -> None:
    rows = shared()
    scale, directions = fit_whitening(
        [rows.T @ rows], float((rows**2).sum()), make_blocks(30), records=len(rows), spread=1e-6
    )
    white = Whitening.identity(30).with_stage(0, scale, directions).map_rows(rows)
    assert 1 <= len(directions) <= MAX_DIRECTIONS
    assert (white**2).sum(1).mean() == pytest.approx(1, rel=1e-6)
    strengths = np.linalg.eigvalsh(white.T @ white) / len(rows)
    assert strengths.max() == pytest.approx(0.1, rel=1e-3)
    assert np.linalg.eigvalsh(rows.T @ rows).max() / len(rows) > 0.45


def test_a_simulation_tells_what_share_of_the_whitened_rows_is_cut() -> None:
    rows, consortium, built = shared(), make_consortium(), Averaging.over_rows(features=30, sizes=800)
    train = [Records(rows[at::5], np.zeros(800, int)) for at in range(5)]
    found = {one.name: one.value for one in built.clipped_fractions({"model": np.zeros((1, 30))}, train, consortium)}
    longer = np.linalg.norm(rows @ whitening_in_one_place(built, consortium, rows, 4000, np.eye(30)).T, axis=1) > 1
    assert found["whitened rows clipped"] == pytest.approx(longer.mean(), abs=1e-3) and 0.1 < longer.mean() < 0.9
    wide = Averaging.over_rows(features=1501, sizes=5).clipped_fractions({"model": np.zeros((1, 1501))}, [], consortium)
    assert [one.name for one in wide] == ["rows clipped", "residuals clipped"]


def test_noise_is_not_taken_for_what_records_share_and_its_part_is_subtracted() -> None:
    generator, rows, spread = np.random.default_rng(3), shared(), 40.0
    noise = np.triu(generator.normal(size=(30, 30)) * spread / sqrt(2), 1)
    noise = noise + noise.T + np.diag(generator.normal(size=30) * spread)
    given: dict[str, Any] = {"records": len(rows), "spread": spread}
    scale, directions = fit_whitening([noise], 2 * spread, make_blocks(30), **given)
    assert len(directions) == 0 and scale == pytest.approx(sqrt(len(rows) / (2 * spread)))
    # Rows in the ball can't be longer than 1, whatever noise says of their squares.
    assert fit_whitening([noise], 1e6, make_blocks(30), **given)[0] == 1.0
    scale, directions = fit_whitening([rows.T @ rows + noise], float((rows**2).sum()), make_blocks(30), **given)
    white = Whitening.identity(30).with_stage(0, scale, directions).map_rows(rows)
    assert (white**2).sum(1).mean() == pytest.approx(1, rel=0.05)


def test_records_wider_than_second_moments_are_not_whitened() -> None:
    built = Averaging.over_rows(features=1501, sizes=1000)
    assert count_whitenings(1500) == WHITENINGS and built.whitenings == 0
    names = [release.name for release in built.declare(make_consortium()).releases]
    assert "whitened_moment" not in names and built.declare(make_consortium())["whitening"].shape[0] == 0


def test_what_records_share_does_not_hide_what_tells_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = shared(6000)
    labels = (rows[:, 6] + rows[:, 7] > 0).astype(int)
    records = {name: Records(rows[at::5], labels[at::5]) for at, name in enumerate(NAMES)}

    def error() -> float:
        terms: dict[str, Any] = {
            "epsilon": 2.0,
            "delta": 1e-6,
            "unit": "record",
            "options": RunOptions(baselines=False, hosts=False),
        }
        found = simulate(
            Averaging.over_rows(features=30, sizes=1200), parties=records, seed=1, test=Records(rows, labels), **terms
        ).error
        assert found is not None
        return found

    whitened = error()
    monkeypatch.setattr(second_moments, "WHITENINGS", 0)
    assert whitened < 0.75 * error()

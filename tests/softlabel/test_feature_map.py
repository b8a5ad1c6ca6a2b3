"""Public feature maps: what each promises on the rows it was fitted on, and that files keep them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.entropy import Stream
from comity.errors import DataError
from comity.learn.feature_map import (
    FeatureMap,
    fit_pca,
    fit_random_features,
    fit_scaling,
    fit_self_training_map,
    fit_whitened_pca,
)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    generator = np.random.default_rng(1)
    return generator.normal(size=(400, 8)) @ generator.normal(size=(8, 8)) + generator.normal(size=8)


def maps(rows: np.ndarray) -> list[FeatureMap]:
    return [
        fit_scaling(rows),
        fit_pca(rows, 3),
        fit_whitened_pca(rows, 5),
        fit_self_training_map(rows),
        fit_random_features(rows, 30, Stream.public("test")),
    ]


def test_whitened_rows_have_the_identity_as_second_moment_with_the_constant(rows: np.ndarray) -> None:
    z = fit_whitened_pca(rows)(rows)
    assert z.shape == (400, 9)
    np.testing.assert_allclose(z.T @ z / 400, np.eye(9), atol=1e-9)


def test_whitening_keeps_the_directions_of_largest_variance(rows: np.ndarray) -> None:
    """Three directions of the map span what the three largest axes of the covariance span."""
    axes = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:3]
    kept = np.linalg.qr(fit_whitened_pca(rows, 3).matrix)[0]
    np.testing.assert_allclose(np.abs(np.linalg.det(axes @ kept)), 1.0, atol=1e-9)


def test_directions_without_variance_are_dropped(rows: np.ndarray) -> None:
    twice = np.concatenate([rows, rows, np.full((400, 1), 3.0)], axis=1)
    assert fit_whitened_pca(twice).dimensions == 9
    assert np.isfinite(fit_whitened_pca(twice)(twice)).all()


def test_the_self_training_map_normalises_whitens_and_floors(rows: np.ndarray) -> None:
    found = fit_self_training_map(rows)
    z = found(rows)
    moments = z.T @ z / len(rows)
    assert found.normalise and z.shape == (400, 8)
    np.testing.assert_allclose(moments, np.diag(np.diag(moments)), atol=1e-8)
    assert (np.diag(moments) <= 1 + 1e-9).all() and np.diag(moments)[0] == pytest.approx(1)
    # The length of a row does not matter, only where it points.
    far = found.mean + 7 * (rows - found.mean)
    np.testing.assert_allclose(found(far), z, atol=1e-9)


def test_no_more_dimensions_than_a_tenth_of_the_rows() -> None:
    x = np.random.default_rng(2).normal(size=(50, 20))
    assert fit_self_training_map(x).dimensions == 5


def test_random_features_approximate_their_kernel(rows: np.ndarray) -> None:
    found = fit_random_features(rows, 20_000, Stream.public("test kernel"))
    width = 1 / found.matrix.std()
    z = found(rows[:20])
    distances = np.linalg.norm(rows[:20, None] - rows[None, :20], axis=-1)
    np.testing.assert_allclose(z @ z.T, np.exp(-(distances**2) / (2 * width**2)), atol=0.06)


def test_a_map_takes_stacks_and_survives_a_file(rows: np.ndarray, tmp_path: Path) -> None:
    for found in maps(rows):
        z = found(rows)
        assert z.shape == (400, found.dimensions)
        np.testing.assert_allclose(found(rows.reshape(20, 20, 8)), z.reshape(20, 20, -1))
        np.savez(tmp_path / "map.npz", **cast(dict[str, Any], found.arrays()))
        with np.load(tmp_path / "map.npz", allow_pickle=False) as stored:
            np.testing.assert_array_equal(FeatureMap.from_arrays(dict(stored))(rows), z)


def test_what_is_no_map_is_refused(rows: np.ndarray) -> None:
    with pytest.raises(DataError, match="8 features"):
        fit_pca(rows, 2)(rows[:, :5])
    with pytest.raises(DataError, match="made of"):
        FeatureMap.from_arrays({"mean": rows[0]})
    broken = {**fit_pca(rows, 2).arrays(), "matrix": np.full((8, 2), np.nan)}
    with pytest.raises(DataError, match="finite"):
        FeatureMap.from_arrays(broken)
    with pytest.raises(DataError, match="public auxiliary rows"):
        fit_whitened_pca(np.full((4, 2), np.inf))
    with pytest.raises(DataError, match="all the same"):
        fit_whitened_pca(np.ones((4, 2)))


@pytest.mark.parametrize("fit", [fit_whitened_pca, fit_self_training_map, lambda rows: fit_pca(rows, 2)])
def test_identical_rows_have_no_direction(fit: Any) -> None:
    row = np.array([0.3, -0.7, 0.11])
    with pytest.raises(DataError, match="all the same"):
        fit(np.tile(row, (30, 1)))

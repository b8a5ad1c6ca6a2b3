"""Hashes under a seed that the curator does not know: what they are good for, and what they are with the seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.errors import DataError
from comity.methods.summary.artefact import BoughtHashes
from comity.methods.summary.features import FourierFeatures
from comity.methods.summary.herding import kernel

from .consortia import CONSUMER, OWNERS, make_cloud, make_records
from .test_run import run


@pytest.fixture(scope="module")
def hashed() -> Any:
    return run(protocol={"deliver": "hashes"})


def recovered(hashes: np.ndarray, features: FourierFeatures) -> np.ndarray:
    """Records from their hashes and the seed: angles by atan2, whole turns by the slowest frequencies first."""
    half = features.dimensions // 2
    assert features.phases is not None
    angles = np.arctan2(hashes[:, half:], hashes[:, :half]) - features.phases
    order = np.argsort(np.linalg.norm(features.frequencies, axis=0))
    rows = np.full((len(hashes), features.columns), 0.5)
    for count in (*range(features.columns, half, 4), half):
        used = order[:count]
        expected = rows @ features.frequencies[:, used]
        turns = np.rint((expected - angles[:, used]) / (2 * np.pi))
        unwound = angles[:, used] + 2 * np.pi * turns
        rows = np.linalg.lstsq(features.frequencies[:, used].T, unwound.T, rcond=None)[0].T
    return rows


def test_anyone_with_the_seed_can_compute_the_records(hashed: Any) -> None:
    seed = hashed.received[CONSUMER].own["hash_seed"]
    found, records = hashed.presented, make_records(2)
    rows = recovered(found.rows, found.with_seed(seed))
    for row, seller in zip(rows, found.sellers):
        own = records[OWNERS[seller]].features
        assert np.abs(own - row).max(axis=1).min() < 1e-4
    # Control: with another seed they are not there.
    others = recovered(found.rows, found.with_seed(bytes(32)))
    every = np.concatenate([records[owner].features for owner in OWNERS])
    assert min(np.abs(every - row).max(axis=1).min() for row in others) > 1e-2


def test_the_curator_is_sent_neither_the_seed_nor_a_record(hashed: Any) -> None:
    assert isinstance(hashed.presented, BoughtHashes)
    seed = hashed.received[CONSUMER].own["hash_seed"]
    assert len(seed) == 32
    assert "seed" not in hashed.released and "hash_seed" not in hashed.released
    seen = {release.name for release in hashed.declaration.seen_by("coordinator", hashed.consortium)}
    assert "seed" not in seen
    for owner in OWNERS:
        assert "hash_seed" not in hashed.received[owner].own
    rows = np.concatenate([records.features for records in make_records(2).values()])
    assert hashed.presented.rows.shape[1] != rows.shape[1]


def test_inner_products_of_hashes_are_kernels_of_records(hashed: Any) -> None:
    """What the curator learns, and why a linear model of hashes is a kernel model of records."""
    found = hashed.presented
    rows = recovered(found.rows, found.with_seed(hashed.received[CONSUMER].own["hash_seed"]))
    assert np.abs(found.rows @ found.rows.T - kernel(rows, rows, found.gamma)).max() < 0.3


def test_a_model_that_is_trained_on_hashes_serves_anyone_with_the_seed() -> None:
    records = {**make_records(2), CONSUMER: make_cloud(240, 0.0, 5, 0)}
    # The consumer's kind is between the clouds, so both are bought; their sides are the classes.
    for name, one in records.items():
        records[name] = type(one)(one.features, (one.features[:, 0] > 0.5).astype(np.int64))
    found = run(records, protocol={"deliver": "hashes"}, epsilon=20.0)
    model = found.presented.linear_model()
    test = make_cloud(300, 0.25, 11, 0).features, make_cloud(300, -0.25, 12, 0).features
    rows = np.concatenate(test)
    hashes = found.presented.with_seed(found.received[CONSUMER].own["hash_seed"])(rows)
    assert (model.predict(hashes) == (rows[:, 0] > 0.5)).mean() > 0.8


def test_a_model_needs_two_classes(hashed: Any) -> None:
    one = BoughtHashes(hashed.presented.rows, None, hashed.presented.sellers, hashed.presented.bought, 1.0, 4)
    with pytest.raises(DataError):
        one.linear_model()

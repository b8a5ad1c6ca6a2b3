"""What public figures allow of opened second moments: those of records pass whatever the noise, others do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.errors import Implausible
from comity.federation.declare.plausibility import require_plausible, require_ranges
from comity.learn.record_sum import from_upper_triangle, upper_triangle
from comity.methods.averaging import second_moments
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from tests.averaging.default_consortium import make_consortium, make_records, protocol


def drawn(release: Any, consortium: Any, value: np.ndarray, parties: int, seed: int) -> np.ndarray:
    scale, source, found = release.scale(consortium), SeededNoise(seed), value
    for place in range(parties):
        found = found + scale.grid * release.noise.draw(
            source, scale, release.shape, permit=simulated_permit(release.name, place), part=True
        )
    return np.asarray(found, np.float64)


def check(release: Any, consortium: Any, found: np.ndarray, parties: int, ranges: Any) -> None:
    require_plausible(release, consortium, found, parties)
    require_ranges(release, consortium, parties, ranges(found, parties * release.bounded.limit))


def rows(records: Any) -> np.ndarray:
    return np.concatenate([own.features for own in records.values()])


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 50.0])
def test_no_honest_second_moments_are_refused(epsilon: float) -> None:
    records = make_records("logistic")
    built = protocol("logistic", records, solver="gradient")
    for dropouts, seed in ((0, 1), (2, 2), (0, 3)):
        consortium = make_consortium(Approx(epsilon, 1e-5), dropouts=dropouts)
        release = built.declare(consortium)["second_moment"]
        value = second_moments.sum_moments(rows(records), built.blocks) * (seed < 3)
        found = drawn(release, consortium, value, 5 - dropouts, seed)
        check(
            release,
            consortium,
            found,
            5 - dropouts,
            lambda v, most: second_moments.plausible_ranges(v, built.blocks, most),
        )


@pytest.mark.parametrize("loss", [Approx(0.01, 1e-5), Approx(50, 1e-5), Pure(0.1), Pure(20)])
def test_no_honest_moments_with_a_target_are_refused(loss: Loss) -> None:
    records = make_records("linear")
    built = protocol("linear", records, solver="moments")
    consortium = make_consortium(loss)
    release, layout = built.declare(consortium)["moments"], built.layout(consortium)
    x, y = rows(records), np.concatenate([built.sign_targets(np.asarray(own.labels)) for own in records.values()])
    value = layout.sum_records(x, y, np.ones(len(x), bool))
    for seed in range(5):
        check(release, consortium, drawn(release, consortium, value, 5, seed), 5, layout.plausible_ranges)


def test_moments_that_no_records_have_are_refused() -> None:
    records = make_records("logistic", (600, 400, 300, 500, 200))
    built = protocol("logistic", records, solver="gradient")
    consortium = make_consortium(Approx(50, 1e-5))
    release = built.declare(consortium)["second_moment"]
    value = second_moments.sum_moments(rows(records), built.blocks)
    matrix = second_moments.read_matrices(value, built.blocks)[0]
    width = len(matrix)

    def refused(changed: np.ndarray, said: str, square: float = float(value[-1])) -> None:
        found = drawn(release, consortium, np.append(upper_triangle_of(changed), square), 5, 4)
        with pytest.raises(Implausible, match=said):
            check(release, consortium, found, 5, lambda v, most: second_moments.plausible_ranges(v, built.blocks, most))

    one = np.zeros((width, width))
    one[0, 1] = one[1, 0] = 3 * matrix[0, 0]
    refused(matrix + one, "any two columns")
    along = np.ones((width, width)) - np.eye(width)
    # Each product by itself is possible, and all of them together are not.
    refused(np.diag(np.diag(matrix)) - 0.75 * along * np.diag(matrix).min(), "every eigenvalue")
    refused(-matrix, "every sum of squares", -float(value[-1]))
    refused(matrix, "the trace of the second moments", 0.5 * float(value[-1]))


def upper_triangle_of(matrix: np.ndarray) -> np.ndarray:
    """In the form of the release: √2 beside the diagonal."""
    row, column = np.triu_indices(len(matrix))
    found = np.where(row == column, 1.0, 2**0.5) * matrix[row, column]
    assert np.allclose(from_upper_triangle(found, len(matrix)), matrix)
    assert upper_triangle(np.eye(len(matrix))).shape == found.shape
    return np.asarray(found, np.float64)

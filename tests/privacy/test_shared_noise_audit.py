"""What a coalition sees of shared noise, held against the claim; broken twins are caught.

A coalition of t of K parties subtracts its own parts from the opened sum, so it sees the honest parts alone.
Bounds are taken at a confidence of 1 − 1e-7, and draws are seeded unless they are the released ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import nbinom
from tests.support.noise import make_permit

from comity.audit import epsilon_lower_bound, gdp_lower_bound
from comity.audit.bound import gaussian_epsilon
from comity.errors import StudyError
from comity.privacy.accounting import gdp_square
from comity.privacy.loss import Approx, Pure
from comity.privacy.mechanisms import Gaussian, Laplace, Spherical
from comity.privacy.randomness import ReleasedNoise, SeededNoise

SURE = 1 - 1e-7
DELTA = 1e-6


def seen(draw: Any, parties: int, coalition: int) -> np.ndarray:
    """The opened sum of every party's part, less the parts that the coalition drew itself."""
    parts = [draw() for _ in range(parties)]
    found: np.ndarray = sum(parts) - sum(parts[:coalition], np.zeros_like(parts[0]))
    return found


def laplace_scores(width: float, shape: float, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """ln P(z)/P(z − shift) for sums of parts with this total shape: what the best guess goes by."""
    reach = int(60 * width) + 20
    one = nbinom.pmf(np.arange(reach + 1), shape, -math.expm1(-1 / width))
    logs = np.log(np.maximum(np.convolve(one, one[::-1]), 1e-300))
    values = np.arange(-len(logs) // 2 + 1, len(logs) // 2 + 1)
    return values[shift:], logs[shift:] - logs[:-shift]


def laplace_measured(
    source: Any, width: float, parties: int, coalition: int, laid_out: int, shift: int, count: int
) -> float:
    def draw() -> np.ndarray:
        found: np.ndarray = source.laplace_part(width, laid_out, (count,), permit=make_permit())
        return found

    values, ratios = laplace_scores(width, (parties - coalition) / laid_out, shift)
    views = seen(draw, parties, coalition), seen(draw, parties, coalition) + shift
    return epsilon_lower_bound(*(np.interp(view, values, ratios) for view in views), confidence=SURE)


@pytest.mark.parametrize(
    ("source", "count", "near"),
    [(ReleasedNoise(), 30_000, 0.7), (SeededNoise(1), 200_000, 0.9)],
    ids=["released", "seeded"],
)
def test_laplace_parts_before_a_coalition(source: Any, count: int, near: float) -> None:
    parties, coalition = 6, 2
    scale = Laplace(Pure(1)).scale(sensitivity=1.0, shape=(1,), parts=parties - coalition, grid=0.25)
    shift = math.floor(1 / scale.grid + 1)

    def measured(**changed: Any) -> float:
        laid_out = {"parties": parties, "coalition": coalition, "laid_out": parties - coalition} | changed
        return laplace_measured(source, scale.total, shift=shift, count=count, **laid_out)

    assert near <= measured() <= 1
    assert measured(parties=parties + 3) <= 1
    # A third of the parts is missing; two parties, one of which reads the result and knows its own part.
    assert measured(parties=6, coalition=2, laid_out=6) > 1.1
    assert measured(parties=2, coalition=1, laid_out=2) > 1.5


def gaussian_like(draw: Any, parties: int, coalition: int, shift: int) -> float:
    views = seen(draw, parties, coalition), seen(draw, parties, coalition) + shift
    return gdp_lower_bound(*views, delta=DELTA, confidence=SURE)


@pytest.mark.parametrize("source", [ReleasedNoise(), SeededNoise(3)], ids=["released", "seeded"])
def test_gaussian_parts_before_a_coalition(source: Any) -> None:
    count, parties, coalition = 400_000, 5, 1
    scale = Gaussian(Approx(1, DELTA)).scale(sensitivity=1.0, shape=(1,), parts=parties - coalition)
    shift = math.floor(1 / scale.grid + 1)

    def measured(parties: int, coalition: int, laid_out: int) -> float:
        width = scale.total / math.sqrt(laid_out)
        return gaussian_like(
            lambda: source.rounded_gaussian(width, (count,), permit=make_permit()), parties, coalition, shift
        )

    assert 0.75 <= measured(5, 1, 4) <= 1
    assert measured(3, 1, 3) > 1
    assert measured(2, 1, 2) > 1.2


def test_what_missing_parts_cost_with_the_least_noise_for_a_claim() -> None:
    """Noise without any reserve: 1.24 for 1 when a third is missing, 1.45 when one of two parties reads."""
    sigma = 1 / math.sqrt(gdp_square(1, DELTA))
    third, half = gaussian_epsilon(math.sqrt(3 / 2) / sigma, DELTA), gaussian_epsilon(math.sqrt(2) / sigma, DELTA)
    assert third == pytest.approx(1.245, abs=0.002)
    assert half == pytest.approx(1.455, abs=0.002)
    source, count, shift = SeededNoise(4), 400_000, 300

    def measured(parties: int, coalition: int) -> float:
        width = shift * sigma / math.sqrt(parties)
        return gaussian_like(
            lambda: source.rounded_gaussian(width, (count,), permit=make_permit()), parties, coalition, shift
        )

    assert 1.05 < measured(3, 1) < third
    assert 1.2 < measured(2, 1) < half


def test_gaussian_parts_below_one_grid_unit() -> None:
    """σ = 4.53 over 2,000 integer parts: refused by the mechanism; drawn by hand, the sum is nearly always 0."""
    with pytest.raises(StudyError, match="finer"):
        Gaussian(Approx(1, DELTA)).scale(sensitivity=1.0, shape=(1,), parts=2000, grid=1.0)
    source, count, parties = SeededNoise(5), 3000, 2000
    narrow = 4.53 / math.sqrt(parties)
    first, second = (
        sum(source.rounded_gaussian(narrow, (count,), permit=make_permit()) for _ in range(parties)) for _ in range(2)
    )
    assert np.mean(first == 0) > 0.95
    assert epsilon_lower_bound(first, second + 1, delta=DELTA, confidence=SURE) > 4


def spherical_measured(rows: Any, arrived: int, shift: np.ndarray) -> float:
    first, second = (sum(rows() for _ in range(arrived)) for _ in range(2))
    scores = (np.linalg.norm(view, axis=1) for view in (first, second + shift))
    distances = (np.linalg.norm(v - shift, axis=1) - np.linalg.norm(v, axis=1) for v in (first, second + shift))
    return max(epsilon_lower_bound(*scores, confidence=SURE), epsilon_lower_bound(*distances, confidence=SURE))


@pytest.mark.parametrize("size", [1, 2])
def test_spherical_parts_before_a_coalition(size: int) -> None:
    """A coalition sees the honest parts, of which there are as many as were laid out for."""
    parts, count, source = 4, 100_000, SeededNoise(size)
    scale = Spherical(Pure(1)).scale(sensitivity=1.0, shape=(size,), parts=parts)
    shift = np.zeros(size)
    shift[0] = math.floor(1 / scale.grid + math.sqrt(size))

    def rows() -> np.ndarray:
        return source._part_rows(scale.total, parts, count, size)

    assert 0.6 <= spherical_measured(rows, parts, shift) <= 1
    assert spherical_measured(rows, 1, shift) > 1


def test_released_spherical_parts_before_a_coalition() -> None:
    parts, size, count, source = 2, 2, 300, ReleasedNoise()
    scale = Spherical(Pure(1)).scale(sensitivity=1.0, shape=(size,), parts=parts)
    shift = np.array([math.floor(1 / scale.grid + math.sqrt(size)), 0])

    def rows(beta: float) -> np.ndarray:
        return np.array([source.spherical_part(beta, parts, (size,), permit=make_permit()) for _ in range(count)])

    assert spherical_measured(lambda: rows(scale.total), parts, shift) <= 1
    assert spherical_measured(lambda: rows(scale.total / 6), parts, shift) > 1

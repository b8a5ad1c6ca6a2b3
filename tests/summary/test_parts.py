"""The steps between releases: spectrum, ratio, quotas, the choice at the site, and the rule for features."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

from comity.entropy import Stream
from comity.errors import StudyError
from comity.methods.summary import ratio
from comity.methods.summary.features import FourierFeatures
from comity.methods.summary.herding import NEIGHBOURS, choose_records, sharpen_weights, smooth_ratio
from comity.methods.summary.method import choose_dimensions
from comity.methods.summary.ratio import (
    NOISE_EDGE,
    Ratio,
    Spectrum,
    allot_quotas,
    denoise_spectrum,
    estimate_discrepancies,
    fit_ratio,
)
from comity.privacy.accounting import gdp_square

from .consortia import COLUMNS, make_records


def test_features_grow_with_budget_and_records_up_to_a_limit() -> None:
    assert choose_dimensions(13_500, gdp_square(1.0, 1e-5)) == 400
    assert 130 <= choose_dimensions(13_500, gdp_square(0.3, 1e-5)) <= 170
    assert choose_dimensions(100, gdp_square(0.3, 1e-5)) == 40
    assert all(choose_dimensions(n, 0.07) % 2 == 0 for n in range(500, 12_000, 37))


def test_eigenvalues_below_the_noise_are_dropped_and_those_above_are_shrunk_back() -> None:
    chance = np.random.default_rng(0)
    width, deviation = 200, 0.01
    exact = np.zeros(width)
    exact[:4] = (1.0, 0.6, 0.5, 0.4)
    noise = np.triu(chance.normal(size=(width, width)), 1) * deviation
    noisy = np.diag(exact) + noise + noise.T + np.diag(sqrt(2) * deviation * chance.normal(size=width))
    found = denoise_spectrum(noisy, np.zeros(width), deviation)
    assert found.rank == 4
    assert found.variances == pytest.approx(exact[:4], abs=0.02)
    seen = np.linalg.eigvalsh(noisy)[::-1][:4]
    assert np.abs(found.variances - exact[:4]).mean() < 0.6 * np.abs(seen - exact[:4]).mean()
    # Noise alone has no direction.
    assert denoise_spectrum(noisy - np.diag(exact), np.zeros(width), deviation).rank == 0
    assert NOISE_EDGE > 2


def test_the_ratio_has_the_moments_that_it_is_fitted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """By sampling: its mean is one and its first moment the consumer's, where the penalty is small."""
    monkeypatch.setattr(ratio, "_RIDGE", 0.01)
    mean = np.array([0.4, -0.2, 0.1])
    theta = fit_ratio(mean, np.zeros(3))
    g = np.random.default_rng(1).normal(size=(400_000, 3))
    r = np.clip(theta[0] + g @ theta[1:], 0, ratio.MAX_RATIO)
    assert r.mean() == pytest.approx(1.0, abs=0.03)
    assert (r[:, None] * g).mean(axis=0) == pytest.approx(mean, abs=0.03)


def test_closed_forms_of_the_risk_are_its_integrals() -> None:
    t = np.random.default_rng(2).normal(size=1_000_000)
    for level, spread in ((1.0, 0.5), (-2.0, 3.0), (4.0, 6.0)):
        x = level + spread * t
        h = np.where(x < 0, 0, np.where(x > ratio.MAX_RATIO, ratio.MAX_RATIO * x - ratio.MAX_RATIO**2 / 2, x**2 / 2))
        inside = ((x > 0) & (x < ratio.MAX_RATIO)).mean()
        found = ratio._clipped_normal_moments(level, spread)
        assert found == pytest.approx((h.mean(), np.clip(x, 0, ratio.MAX_RATIO).mean(), inside), rel=0.02)


def test_noisy_coordinates_count_for_less() -> None:
    quiet, noisy = (
        fit_ratio(np.array([0.5, 0.5]), np.array([0.0, 0.0])),
        fit_ratio(np.array([0.5, 0.5]), np.array([0.0, 2.0])),
    )
    assert abs(noisy[2]) < 0.5 * abs(quiet[2])


def test_the_discrepancy_falls_and_is_never_negative() -> None:
    seen = Spectrum(np.zeros(4), np.eye(4)[:, :2], np.array([0.4, 0.1]))
    mean, variance = np.array([0.8, 0.3]), np.array([0.01, 0.01])
    before, after = estimate_discrepancies(seen, fit_ratio(mean, variance), mean, variance)
    assert before == pytest.approx(0.4 * (0.64 - 0.01) + 0.1 * (0.09 - 0.01))
    assert 0 <= after < 0.2 * before
    assert estimate_discrepancies(seen, fit_ratio(0 * mean, variance), 0 * mean, variance) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("masses", "sizes", "count", "expected"),
    [
        ((3.0, 1.0), (100, 100), 8, [6, 2]),
        ((3.0, -5.0), (100, 100), 8, [8, 0]),
        ((-1.0, -2.0), (30, 10), 8, [6, 2]),
        ((3.0, 1.0), (4, 100), 8, [4, 4]),
        ((3.0, 0.0), (4, 100), 8, [4, 4]),
        ((1.0, 1.0), (50, 50), 7, [4, 3]),
        ((1.0, 2.0), (3, 2), 5, [3, 2]),
        ((1e-9, 1e-12), (5, 5), 1, [1, 0]),
        ((1.0, 1.0), (5, 5), 0, [0, 0]),
    ],
)
def test_quotas_follow_masses_within_public_sizes(masses: Any, sizes: Any, count: int, expected: Any) -> None:
    names = ("a", "b")
    assert list(allot_quotas(dict(zip(names, masses)), dict(zip(names, sizes)), count).values()) == expected


def test_quotas_are_whole_and_capped_for_any_masses() -> None:
    chance = np.random.default_rng(3)
    for _ in range(300):
        owners = [str(k) for k in range(chance.integers(1, 7))]
        sizes = {name: int(chance.integers(1, 20)) for name in owners}
        masses = {name: float(chance.normal() * 10.0 ** chance.integers(-3, 5)) for name in owners}
        count = int(chance.integers(0, sum(sizes.values()) + 1))
        dealt = allot_quotas(masses, sizes, count)
        assert sum(dealt.values()) == count and all(0 <= dealt[name] <= sizes[name] for name in owners)


def test_more_than_there_is_can_not_be_dealt() -> None:
    with pytest.raises(StudyError):
        allot_quotas({"a": 1.0}, {"a": 3}, 4)


def at_home(records: Any, weights: Any, count: Any) -> np.ndarray:
    features = FourierFeatures.draw(COLUMNS, 20, 3.0, Stream.public("home"))
    seen = Spectrum(np.zeros(20), np.eye(20)[:, :3], np.ones(3))
    stream = Stream.public("home chance")
    return choose_records(records.features, weights, count, features=features, spectrum=seen, gamma=3.0, stream=stream)


@pytest.mark.parametrize("positive", [0, 3, 10, 300])
@pytest.mark.parametrize("count", [0, 1, 10, 300])
def test_an_owner_gives_exactly_its_quota_of_different_records(positive: int, count: int) -> None:
    records = make_records()["ash"]
    weights = np.zeros(len(records))
    weights[:positive] = 1.0
    found = at_home(records, weights, count)
    assert len(set(found.tolist())) == count == len(found)
    # Those that count come before those that fill.
    assert (weights[found] > 0).sum() == min(count, positive)


def test_candidates_are_limited_and_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("comity.methods.summary.herding.MAX_CANDIDATES", 40)
    records = make_records()["ash"]
    seen: Any = []
    monkeypatch.setattr(
        "comity.methods.summary.herding.smooth_ratio", lambda rows, ratio: seen.append(len(rows)) or ratio.copy()
    )
    assert len(at_home(records, np.ones(len(records)), 5)) == 5
    assert seen == [40]


def test_smoothing_averages_over_the_nearest() -> None:
    rows, values = make_records()["ash"].features[:60], np.arange(60.0)
    apart = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    exact = [values[np.argsort(line)[:NEIGHBOURS]].mean() for line in apart]
    assert smooth_ratio(rows, values) == pytest.approx(exact)
    assert (smooth_ratio(rows[:5], values[:5]) == values[:5].mean()).all()


def test_sharpening_keeps_the_weighted_mean() -> None:
    chance = np.random.default_rng(5)
    turned = chance.normal(size=(500, 2))
    raw = np.clip(1 + 2 * turned[:, 0], 0, 5)
    smooth = np.sqrt(raw + 0.2)
    wanted = raw @ turned / raw.sum()
    kept, plain = sharpen_weights(smooth, raw, turned), smooth / smooth.sum()
    assert kept.sum() == pytest.approx(1)
    assert np.linalg.norm(kept @ turned - wanted) < 0.5 * np.linalg.norm(plain @ turned - wanted)


def test_a_ratio_of_no_direction_is_the_same_everywhere() -> None:
    nothing = Spectrum(np.zeros(4), np.zeros((4, 0)), np.zeros(0))
    found = Ratio(nothing, fit_ratio(np.zeros(0), np.zeros(0)))(np.ones((3, 4)))
    # Less what the penalty takes away, which is the same for all.
    assert found == pytest.approx(np.ones(3), abs=0.1) and len(set(found.tolist())) == 1

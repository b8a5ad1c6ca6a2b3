"""Figures from noisy sums: right without noise, inside their range, and covering as often as they say."""

from __future__ import annotations

import json
from math import inf

import numpy as np
import pytest
from scipy.special import expit

from comity.federation.evaluation.figures import (
    Figures,
    NoisySum,
    estimate_auc,
    estimate_figures,
    estimate_ratio,
    estimate_share,
)
from comity.federation.evaluation.score_card import PredictionTask, ScoreCard
from comity.privacy.unit import Neighbours, Unit
from tests.evaluation.test_score_card import Says

Z = 1.96


@pytest.mark.parametrize(("n", "theta"), [(20, 0.5), (50, 0.9), (400, 0.97), (2000, 0.2)])
@pytest.mark.parametrize("noise", [0.5, 12.0])
@pytest.mark.parametrize("of_count", [0.0, 12.0])
def test_a_share_covers(n: int, theta: float, noise: float, of_count: float) -> None:
    generator = np.random.default_rng(n)
    held = 0
    for _ in range(2000):
        total = generator.binomial(n, theta) + noise * generator.normal()
        found = estimate_share(NoisySum(total, noise), NoisySum(n + of_count * generator.normal(), of_count), Z)
        assert 0 <= found.low <= found.value <= found.high <= 1
        held += found.low <= theta <= found.high
    assert held / 2000 >= 0.935


def test_an_interval_that_forgot_the_noise_would_not_cover() -> None:
    """The control."""
    generator, held = np.random.default_rng(0), 0
    for _ in range(300):
        total = generator.binomial(400, 0.8) + 20 * generator.normal()
        found = estimate_share(NoisySum(total, 0.0), NoisySum(400, 0.0), Z)
        held += found.low <= 0.8 <= found.high
    assert held / 300 < 0.7


def test_where_next_to_nothing_was_counted_nothing_is_claimed() -> None:
    for count in (-5.0, 0.0, 3.0):
        found = estimate_share(NoisySum(40.0, 10.0), NoisySum(count, 10.0), Z)
        assert (found.low, found.high) == (0.0, 1.0)
    assert estimate_share(NoisySum(500.0, 1.0), NoisySum(100.0, 0.0), Z).value == 1.0


@pytest.mark.parametrize("of_count", [0.0, 4.0])
@pytest.mark.parametrize("beyond", [0.0, 1.0, 2.5, 5.0, 50.0])
def test_noise_beyond_what_records_add_up_to_does_not_make_an_interval_narrow(beyond: float, of_count: float) -> None:
    """Of 20 records with noise of 20 in their sum nothing is known, least of all that all of them were right."""
    for total in (20 + 20 * beyond, -20 * beyond):
        found = estimate_share(NoisySum(total, 20.0), NoisySum(20.0, of_count), Z)
        assert (found.low, found.high) == (0.0, 1.0)
    table = np.array([[100.0, -20.0 * beyond], [-20.0 * beyond, 100.0]])
    found, _ = estimate_auc(table, 20.0, Z)
    assert found.low < 0.95


def test_a_count_that_exceeds_all_records_is_read_as_all_of_them() -> None:
    """Nearer to the truth, whatever it is: so no interval that held it before leaves it out."""
    generator = np.random.default_rng(7)
    for total in generator.uniform(-60, 160, 200):
        found, inside = (
            estimate_share(NoisySum(x, 10.0), NoisySum(100.0, 0.0), Z) for x in (total, min(100.0, max(0.0, total)))
        )
        assert found == inside and found.high - found.low > 0.1


def tables(n: int, generator: np.random.Generator, bins: int) -> tuple[np.ndarray, float]:
    """Counts of negatives and positives in bins of a score, and the area of the scores themselves."""
    labels = generator.uniform(size=n) < 0.4
    score = generator.normal(size=n) + 1.2 * labels
    edges = np.linspace(-2, 3.2, bins + 1)[1:-1]
    place = np.searchsorted(edges, score)
    table = np.stack([np.bincount(place[labels == side], minlength=bins) for side in (False, True)], 1)
    return table.astype(np.float64), 0.8019  # Φ(1.2/√2)


@pytest.mark.parametrize(("n", "noise", "bins"), [(300, 3.0, 4), (2000, 12.0, 20), (200, 12.0, 2), (5000, 0.0, 20)])
def test_an_area_covers_that_of_the_scores_before_they_were_binned(n: int, noise: float, bins: int) -> None:
    generator, held = np.random.default_rng(n), 0
    for _ in range(100):
        table, truth = tables(n, generator, bins)
        found, open_ = estimate_auc(table + noise * generator.normal(size=table.shape), noise, Z)
        assert 0 <= found.low <= found.value <= found.high <= 1 and 0 <= open_ <= 0.5
        held += found.low <= truth <= found.high
    assert held / 100 >= 0.93


def test_an_area_of_exact_counts() -> None:
    found, open_ = estimate_auc(np.array([[30.0, 0.0], [10.0, 10.0], [0.0, 30.0]]), 0.0, Z)
    assert found.value == pytest.approx((30 * 40 + 10 * (30 + 5)) / 1600)
    assert open_ == pytest.approx(100 / 1600 / 2)


def test_a_ratio_has_no_end_where_the_lower_number_may_be_zero() -> None:
    assert estimate_ratio(NoisySum(3, 0.1), NoisySum(0.1, 1.0), Z).high == inf
    found = estimate_ratio(NoisySum(2.0, 0.1), NoisySum(1.0, 0.01), Z)
    assert found.low < 1.81 and found.high > 2.19 and found.value == 2.0


@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.PARTY])
def test_without_noise_figures_are_those_of_the_records(unit: Unit) -> None:
    generator = np.random.default_rng(5)
    shares = generator.uniform(0.05, 0.95, 4000)
    labels = (generator.uniform(size=4000) < shares).astype(np.int64)
    card = ScoreCard(PredictionTask(2), 20, unit, Neighbours.REPLACE)
    rows = np.column_stack([1 - shares, shares])
    found = estimate_figures(card, card.sums(Says(2), rows, labels), 0.0, z=Z, of="records")
    assert found["accuracy"].value == pytest.approx(((shares > 0.5) == labels).mean())
    own = np.where(labels == 1, shares, 1 - shares)
    assert found["log loss"].value == pytest.approx(-np.log(own).mean(), abs=1e-3)
    assert found["squared error"].value == pytest.approx(((shares - labels) ** 2).mean(), abs=1e-3)
    assert np.sum(found.confusion) == pytest.approx(1.0)
    assert found.confusion[1][1] == pytest.approx(((shares > 0.5) & (labels == 1)).mean())
    assert len(found.calibration) == 20
    for one in found.calibration:
        inside = (shares > one.low) & (shares <= one.high)
        if inside.sum() > 50:
            assert one.share.value == pytest.approx(labels[inside].mean(), abs=1e-9)
            assert one.low - 0.1 < one.share.value < one.high + 0.1


def test_figures_of_a_number_are_in_its_own_units() -> None:
    generator = np.random.default_rng(2)
    guess = generator.uniform(-2, 4, 3000)
    y = np.clip(0.8 * guess + 0.5 * generator.normal(size=3000), -3, 5)
    card = ScoreCard(PredictionTask(0, -3.0, 5.0), 2, Unit.RECORD, Neighbours.ADD_REMOVE)
    found = estimate_figures(card, card.sums(Says(0), guess[:, None], y), 0.0, z=Z, of="records")
    wrong = ((y - guess) ** 2).mean()
    assert found["mean squared error"].value == pytest.approx(wrong, rel=1e-3)
    assert found["R²"].value == pytest.approx(1 - wrong / y.var(), rel=1e-3)
    assert found["slope"].value == pytest.approx(np.cov(y, guess)[0, 1] / guess.var(), rel=1e-2)
    assert all(one.low < one.value < one.high for one in found.figures.values())


def test_figures_survive_json() -> None:
    card = ScoreCard(PredictionTask(0), 2, Unit.RECORD, Neighbours.REPLACE)
    found = estimate_figures(card, np.zeros(card.size), 3.0, z=Z, of="records")
    assert found["slope"].high == inf
    text = json.dumps(found.as_json(), allow_nan=False)
    again = Figures.from_json(json.loads(text))
    assert again == found and "slope" in again.figures


def test_probabilities_at_the_ends_count_as_the_cap() -> None:
    card = ScoreCard(PredictionTask(2), 4, Unit.RECORD, Neighbours.REPLACE)
    sums = card.sums(Says(2), np.array([[1.0, 0.0]]), np.array([1]))
    assert sums[card.cells + 1] == 1.0
    found = estimate_figures(card, sums, 0.0, z=Z, of="records")
    assert found["log loss"].value == pytest.approx(-np.log(expit(-4)))

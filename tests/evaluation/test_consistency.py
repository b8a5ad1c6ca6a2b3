"""Figures of one evaluation can all be true of the same records, whatever the noise made of the sums."""

from __future__ import annotations

import json
from math import log

import numpy as np
import pytest
from scipy.special import expit

from comity.federation.evaluation.consistency import _system, consistent_sums
from comity.federation.evaluation.figures import Estimate, Figures, estimate_figures
from comity.federation.evaluation.score_card import CAP, PredictionTask, ScoreCard
from comity.privacy.unit import Neighbours, Unit
from tests.evaluation.test_score_card import Says

Z = 1.96
SLACK = 1e-6
RELATIONS = [(Unit.RECORD, Neighbours.REPLACE), (Unit.RECORD, Neighbours.ADD_REMOVE), (Unit.PARTY, Neighbours.REPLACE)]


def contradictions(found: Figures, classes: int) -> list[str]:
    """The inequalities of proof.md, 5, that figures violate."""
    a, s, lost = (found[name].value for name in ("accuracy", "squared error", "log loss"))
    least, most = log(1 + np.exp(-4)), CAP
    out = []
    if classes == 2:
        # A right answer has at least half of the probability, a wrong one at most half.
        if not (1 - a) / 4 - SLACK <= s <= a / 4 + (1 - a) + SLACK:
            out.append(f"squared error {s} at accuracy {a}")
        if not a * least + (1 - a) * log(2) - SLACK <= lost <= a * log(2) + (1 - a) * most + SLACK:
            out.append(f"log loss {lost} at accuracy {a}")
        # (1 − p)² of p = e^−ℓ, a mean of which lies below the concave hull and above the convex one.
        if s < (1 - np.exp(-(lost - least) / 1.0)) ** 2 / 4 - 0.05 and lost > 2:
            out.append(f"squared error {s} at log loss {lost}")
    elif not (1 - a) / 4 - SLACK <= s:
        # Whoever is wrong gave another class at least as much: ½((1 − p)² + p²) >= ¼.
        out.append(f"squared error {s} at accuracy {a}")
    if bool(found.confusion) != found["accuracy"].is_informative:
        out.append("a confusion beside an accuracy that is not told")
    confusion = np.array(found.confusion or [[a, 1 - a]])
    if confusion.min() < -SLACK or not np.isclose(confusion.sum(), 1, atol=1e-4):
        out.append(f"confusion {confusion}")
    if found.confusion and not np.isclose(np.trace(confusion), a, atol=1e-4):
        out.append(f"accuracy {a} beside a confusion of {np.trace(confusion)}")
    for one in found.figures.values():
        if not one.low - SLACK <= one.value <= one.high + SLACK:
            out.append(f"{one} outside of its interval")
    return out


def truth(
    classes: int, relation: tuple[Unit, Neighbours], generator: np.random.Generator
) -> tuple[ScoreCard, np.ndarray]:
    card = ScoreCard(PredictionTask(classes), 4, *relation)
    sharp = generator.choice([0.3, 1.0, 4.0])
    rows = generator.uniform(size=(300, classes)) ** sharp
    labels = np.where(generator.uniform(size=300) < 0.7, rows.argmax(1), generator.integers(0, classes, 300))
    if card.unit is Unit.PARTY:
        return card, np.sum([card.sums(Says(classes), rows[i::10], labels[i::10]) for i in range(10)], 0)
    return card, card.sums(Says(classes), rows, labels)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_figures_do_not_contradict_each_other(classes: int, relation: tuple[Unit, Neighbours], noise: float) -> None:
    generator = np.random.default_rng(classes)
    for _ in range(15):
        card, exact = truth(classes, relation, generator)
        deviation = noise * (3.0 if card.unit is Unit.PARTY else 60.0)
        opened = exact + deviation * generator.normal(size=card.size)
        found = estimate_figures(card, opened, deviation, z=Z, of="records")
        assert not contradictions(found, classes)


def test_the_figures_that_were_printed_can_not_both_be_true() -> None:
    """Accuracy .976 beside a squared error of .578, from sums of which both could be read off."""
    card = ScoreCard(PredictionTask(2), 2, Unit.RECORD, Neighbours.REPLACE)
    opened = np.array([40.0, 3.0, 2.0, 55.0, 97.6, 35.0 / CAP, 28.9, 1600.0])
    found = estimate_figures(card, opened, 20.0, z=Z, of="records")
    assert not contradictions(found, 2)
    assert found["accuracy"].value < 0.976 and found["squared error"].value < 0.578
    assert found["accuracy"].low <= 0.769 <= found["accuracy"].high


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("classes", [2, 3, 0])
def test_what_records_add_up_to_is_left_as_it_is(classes: int, relation: tuple[Unit, Neighbours]) -> None:
    """Brute force: sums of real records lie within what is taken for possible, and are not moved."""
    generator = np.random.default_rng(7)
    for _ in range(6):
        if classes:
            card, exact = truth(classes, relation, generator)
        else:
            card = ScoreCard(PredictionTask(0, -3.0, 5.0), 2, *relation)
            guess = generator.uniform(-3, 5, 200)
            y = np.clip(guess + generator.normal(size=200), -3, 5)
            exact = card.sums(Says(0), guess[:, None], y)
        found = consistent_sums(card, exact)
        assert np.abs(found - exact).max() <= 2e-3 * max(1.0, float(exact.max()))


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_the_projection_comes_no_further_from_the_truth(classes: int) -> None:
    generator, relation = np.random.default_rng(11), RELATIONS[0]
    for _ in range(10):
        if classes:
            card, exact = truth(classes, relation, generator)
        else:
            card = ScoreCard(PredictionTask(0), 2, *relation)
            guess = generator.uniform(-1, 1, 200)
            exact = card.sums(Says(0), guess[:, None], np.clip(guess + 0.3, -1, 1))
        opened = exact + 50 * generator.normal(size=card.size)
        before = np.linalg.norm(opened - exact)
        after = np.linalg.norm(consistent_sums(card, opened) - exact)
        assert after <= before * (1 + 1e-6) + 0.5


def test_every_answer_is_near_an_atom() -> None:
    """The two-class atoms against the card's own arithmetic: one record with that probability and that label."""
    card = ScoreCard(PredictionTask(2), 4, Unit.RECORD, Neighbours.REPLACE)
    atoms = _system(card)[0].T
    for probability in (0.0, 0.3, 0.5, 0.7, 1.0):
        for label in (0, 1):
            rows = np.array([[1 - probability, probability]])
            one = card.sums(Says(2), rows, np.array([label]))
            assert np.abs(atoms - one).max(1).min() < 0.05


def test_numbers_have_moments_that_numbers_can_have() -> None:
    generator = np.random.default_rng(5)
    card = ScoreCard(PredictionTask(0), 2, Unit.RECORD, Neighbours.REPLACE)
    guess = generator.uniform(-1, 1, 300)
    exact = card.sums(Says(0), guess[:, None], np.clip(guess + 0.4 * generator.normal(size=300), -1, 1))
    for _ in range(20):
        found = consistent_sums(card, exact + 40 * generator.normal(size=card.size))
        wrong, y, yy, f, ff, yf = found[:-1] / card.weights / (found[-1] / card.count_weight)
        assert wrong == pytest.approx(yy - 2 * yf + ff, abs=1e-6)
        assert yy - y * y >= -1e-9 and ff - f * f >= -1e-9 and yy <= y + 1e-9
        assert (yf - y * f) ** 2 <= (yy - y * y) * (ff - f * f) + 1e-9


def test_targets_that_do_not_vary_have_no_r_squared_and_constant_predictions_no_slope() -> None:
    card = ScoreCard(PredictionTask(0), 2, Unit.RECORD, Neighbours.REPLACE)
    guess = np.linspace(-0.8, 0.8, 400)
    for sums, name in (
        (card.sums(Says(0), guess[:, None], np.full(400, 1.0)), "R²"),
        (card.sums(Says(0), np.full((400, 1), 1.0), guess), "slope"),
    ):
        # Moments that only a variance below zero would have, far beyond the noise.
        sums[card.entries.index("target²" if name == "R²" else "prediction²")] -= 40
        found = estimate_figures(card, sums, 1.0, z=Z, of="records")
        assert str(found[name]) == "too few records to tell", found.figures
        assert found["mean squared error"].is_informative


@pytest.mark.parametrize("relation", RELATIONS[:2])
def test_numbers_never_count_fewer_than_no_records(relation: tuple[Unit, Neighbours]) -> None:
    card = ScoreCard(PredictionTask(0), 2, *relation)
    found = estimate_figures(card, np.full(card.size, -30.0), 20.0, z=Z, of="records")
    assert found.records >= 0 and not any(one.is_informative for one in found.figures.values())


# What is said of them.


def test_an_interval_that_says_nothing_new_is_said_in_words() -> None:
    card = ScoreCard(PredictionTask(2), 2, Unit.RECORD, Neighbours.REPLACE)
    found = estimate_figures(card, np.zeros(card.size), 30.0, z=Z, of="records")
    for name in ("accuracy", "squared error", "log loss", "AUC"):
        assert str(found[name]) == "too few records to tell" and not found[name].is_informative
        assert found.as_json()["figures"][name]["value"] is None
    again = Figures.from_json(json.loads(json.dumps(found.as_json(), allow_nan=False)))
    assert again == found
    assert all(one.low <= one.value <= one.high for one in again.figures.values())


def test_r_squared_that_allows_a_constant_and_perfection_is_said_in_words() -> None:
    assert str(Estimate(-324.8, -324.8, 1.0, known=(-np.inf, 1.0))) == "too few records to tell"
    assert str(Estimate(0.3, -0.1, 0.99, known=(-np.inf, 1.0))) == "too few records to tell"
    assert Estimate(0.9, 0.2, 1.0, known=(-np.inf, 1.0)).is_informative
    assert Estimate(-3.0, -9.0, -1.0, known=(-np.inf, 1.0)).is_informative


def test_an_interval_comes_before_its_point() -> None:
    assert str(Estimate(0.8, 0.7, 0.9, known=(0.0, 1.0))) == "0.700 to 0.900 (best estimate 0.800)"
    assert str(Estimate(0.8, 0.7, 1.0, known=(0.0, 1.0))) == "0.700 to 1.000 (best estimate 0.800)"
    assert str(Estimate(1.663, -np.inf, np.inf)) == "too few records to tell"
    assert expit(-4) < 0.02

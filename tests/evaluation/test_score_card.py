"""The score card: how far one unit moves it, found by trying; what its bound lets through."""

from __future__ import annotations

from itertools import product
from math import sqrt

import numpy as np
import pytest

from comity.federation.evaluation.score_card import PredictionTask, ScoreCard, ScoreCardBound, choose_bins
from comity.privacy.unit import Neighbours, Unit

RELATIONS = [
    (Unit.RECORD, Neighbours.REPLACE),
    (Unit.RECORD, Neighbours.ADD_REMOVE),
    (Unit.PARTY, Neighbours.REPLACE),
]
KINDS = [PredictionTask(2), PredictionTask(4), PredictionTask(0, -3.0, 5.0)]


class Says:
    """A model whose answer is written in the record: whatever a model may say can be tried."""

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        shares = np.abs(rows[:, : self.classes]) + 1e-300
        found: np.ndarray = shares / shares.sum(1, keepdims=True)
        return found

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, 0]


def candidates(task: PredictionTask) -> tuple[np.ndarray, np.ndarray]:
    """Extreme records, some in between, and some that no schema allows."""
    width = max(task.classes, 1)
    if task.classes:
        rows = [*np.eye(width), np.ones(width), *(np.eye(width) + 0.2), np.full(width, np.nan)]
        labels: list[float] = [*range(task.classes), 99, -3]
    else:
        rows = [np.array([value]) for value in (-3.0, 5.0, 1.0, -99.0, 99.0, np.nan)]
        labels = [-3.0, 5.0, 1.0, 77.0, float("nan")]
    pairs = list(product(rows, labels))
    return np.array([row for row, _ in pairs]), np.array([label for _, label in pairs])


def moves(card: ScoreCard) -> tuple[float, float]:
    """The largest L2 and L1 distances between the sums of neighbours, over all candidates."""
    model, (rows, labels) = Says(card.task.classes), candidates(card.task)
    held = np.arange(3)
    sums = []
    for at in range(len(rows)):
        which = [at] if card.unit is Unit.PARTY else [*held, at]
        sums.append(card.sums(model, rows[which], labels[which]))
    table = np.array(sums)
    if card.unit is Unit.PARTY:
        table = np.vstack([table, card.sums(model, rows[:0], labels[:0])])
    if card.neighbours is Neighbours.ADD_REMOVE:
        steps = table - card.sums(model, rows[held], labels[held])
    else:
        steps = (table[:, None] - table[None]).reshape(-1, card.size)
    return float(np.sqrt((steps**2).sum(1)).max()), float(np.abs(steps).sum(1).max())


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("task", KINDS)
def test_no_unit_moves_the_sums_further_than_declared(task: PredictionTask, relation: tuple[Unit, Neighbours]) -> None:
    card = ScoreCard(task, 4, *relation)
    l2, l1 = moves(card)
    assert l2 <= card.l2 and l1 <= card.l1
    assert l2 >= 0.75 * card.l2


def test_two_classes_reach_the_declared_sensitivity() -> None:
    card = ScoreCard(PredictionTask(2), 4, Unit.RECORD, Neighbours.REPLACE)
    l2, _ = moves(card)
    assert card.l2 == sqrt(2 + 1 + 1 + 0.25)
    assert l2 > 0.99 * card.l2


def test_a_card_without_its_bounds_would_move_further() -> None:
    """The control: log loss without its cap."""

    class Uncapped(ScoreCard):
        def _entered(self, entries: np.ndarray) -> np.ndarray:
            return np.asarray((10 * entries).sum(0) * self.weights)

    assert moves(Uncapped(PredictionTask(2), 4, Unit.RECORD, Neighbours.REPLACE))[0] > 2


def test_the_cells_are_counts_and_add_up() -> None:
    generator = np.random.default_rng(1)
    rows, labels = generator.uniform(size=(500, 3)), generator.integers(0, 3, 500)
    card = ScoreCard(PredictionTask(3), 6, Unit.RECORD, Neighbours.REPLACE)
    sums = card.sums(Says(3), rows, labels)
    assert sums[:9].sum() == sums[9:21].sum() == 500 and sums[-1] == 16 * 500
    assert sums[21] == (rows.argmax(1) == labels).sum() == np.trace(sums[:9].reshape(3, 3))
    shares = rows / rows.sum(1, keepdims=True)
    assert sums[23] == pytest.approx(0.5 * ((shares - np.eye(3)[labels]) ** 2).sum() / 2, abs=0.01)


def test_an_edge_lies_where_the_prediction_changes() -> None:
    card = ScoreCard(PredictionTask(2), 4, Unit.RECORD, Neighbours.REPLACE)
    rows = np.array([[0.5, 0.5], [0.499, 0.501], [0.501, 0.499]])
    cells = np.array([card.sums(Says(2), rows[[at]], np.array([1]))[:8].reshape(4, 2)[:, 1] for at in range(3)])
    assert cells.argmax(1).tolist() == [1, 2, 1]


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_party_without_such_records_adds_nothing(relation: tuple[Unit, Neighbours]) -> None:
    card = ScoreCard(PredictionTask(2), 4, *relation)
    assert (card.sums(Says(2), np.zeros((0, 2)), np.zeros(0)) == 0).all()


def test_cutting_off_brings_nothing_further_apart() -> None:
    bound, generator = ScoreCardBound(2.0, 3.0, 10.0, neutral_within=False), np.random.default_rng(0)
    one, other = 30 * generator.normal(size=(2, 100, 7))
    inside = bound.enforce(one, (7,)), bound.enforce(other, (7,))
    assert (np.abs(inside[0] - inside[1]) <= np.abs(one - other)).all()
    assert bound.enforce(np.array([np.nan, np.inf, -5.0]), (3,)).tolist() == [0.0, 10.0, 0.0]


def test_bins_follow_from_public_figures() -> None:
    assert [choose_bins(n, 10.0) for n in (None, 0, 100, 250, 1e9)] == [10, 2, 2, 6, 20]

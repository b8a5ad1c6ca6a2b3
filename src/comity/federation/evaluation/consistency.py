"""Consistent sums: the sums nearest to an evaluation's noisy ones that some records could add up to.

Each record adds one of the vectors that a prediction and a label allow (`_system`). Sums over records are combinations
of such vectors with non-negative weights: a convex cone. Noisy sums may lie outside of it, with more right answers than
records, or a squared error that the accuracy rules out. Projecting them on the cone is post-processing, so it costs
nothing, and it never increases the distance to the true sums (proof.md, 5). All figures come from this one point, so
they do not contradict each other.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from comity.federation.evaluation.score_card import CAP, REACH, ScoreCard
from comity.special import expit

Floats = NDArray[np.float64]

_PER_BIN = 6
"""Predictions that represent a bin, its ends among them."""
_OTHER_SHARES = 4
_NUMBERS = 33
"""Targets, and as many predictions, that represent all numbers between the bounds."""
_EXACTLY = 1e4
"""Weight of an equation that holds without noise."""


def consistent_sums(card: ScoreCard, opened: Floats) -> Floats:
    """The sums nearest to `opened` that records can add up to, in the card's units."""
    atoms, ties = _system(card)
    return nearest(atoms, opened, ties)


def nearest(atoms: Floats, opened: Floats, ties: Floats | None = None, totals: Floats | None = None) -> Floats:
    """The point nearest to `opened` in the cone that the columns of `atoms` span, with weights w such that
    `ties @ w = totals`."""
    size = max(1.0, float(np.abs(opened).max(initial=0.0)))
    rows, wanted = [atoms], [np.asarray(opened, np.float64) / size]
    if ties is not None:
        rows.append(_EXACTLY * ties)
        wanted.append(_EXACTLY * (np.zeros(len(ties)) if totals is None else totals / size))
    # Imported late: a plan and a site's process never make figures.
    from scipy.optimize import nnls

    weights, _ = nnls(np.vstack(rows), np.concatenate(wanted), maxiter=100 * atoms.shape[1])
    return np.asarray(atoms @ weights * size, np.float64)


@lru_cache(maxsize=32)
def _system(card: ScoreCard) -> tuple[Floats, Floats | None]:
    """What one record may add to the sums, one column for each kind of record, and the equations between weights."""
    if not card.task.classes:
        return _of_numbers(card), None
    return (_of_two_classes(card), None) if card.binary else _of_classes(card)


def _column(card: ScoreCard, cells: list[int], entries: tuple[float, ...], count: float = 1.0) -> Floats:
    out = np.zeros(card.size)
    out[cells] = 1.0
    out[card.cells : -1] = np.asarray(entries) * card.weights
    out[-1] = count * card.count_weight
    return out


def _lost(own: float) -> float:
    """The capped log loss of a probability, on [0, 1]."""
    return float(-np.log(np.clip(own, expit(-REACH), expit(REACH))) / CAP)


def _of_two_classes(card: ScoreCard) -> Floats:
    """A prediction and a label decide everything: the cell, whether it is right, and both losses."""
    ends = np.concatenate([[0.0], expit(card.edges), [1.0]])
    columns = []
    for place, (low, high) in enumerate(pairwise(ends)):
        inside = [expit(-REACH)] if low == 0.0 else [expit(REACH)] if high == 1.0 else []
        for share, label in product([*np.linspace(low, high, _PER_BIN), *inside], (0, 1)):
            own = share if label else 1 - share
            right = float((place >= card.bins // 2) == bool(label))
            columns.append(_column(card, [2 * place + label], (right, _lost(own), (1 - own) ** 2)))
    return np.column_stack(columns)


def _squares(total: float, most: float, number: int) -> tuple[float, float]:
    """The smallest and the largest sum of squares of `number` shares that add up to `total`, each at most `most`."""
    if number == 0 or total <= 0:
        return 0.0, 0.0
    full = min(number, int(total / most + 1e-12))
    return total * total / number, full * most * most + max(0.0, total - full * most) ** 2


def _of_classes(card: ScoreCard) -> tuple[Floats, Floats]:
    """Cells of the confusion matrix and predictions are tied only by their numbers of right and of wrong answers."""
    classes, first = card.task.classes, card.task.classes**2
    ends = np.concatenate([[1 / classes], card.edges, [1.0]])
    right, wrong = [], []
    for place, (low, high) in enumerate(pairwise(ends)):
        for sure in np.linspace(low, high, _PER_BIN):
            cell = first + 2 * place
            for squares in _squares(1 - sure, sure, classes - 1):
                error = ((1 - sure) ** 2 + squares) / 2
                right.append(_column(card, [cell + 1], (1.0, _lost(sure), error)))
            least, most = max(0.0, 1 - (classes - 1) * sure), min(sure, 1 - sure)
            for own in np.linspace(least, max(least, most), _OTHER_SHARES):
                for squares in _squares(1 - sure - own, sure, classes - 2):
                    error = ((1 - own) ** 2 + sure**2 + squares) / 2
                    wrong.append(_column(card, [cell], (0.0, _lost(own), error)))
    confusion = [_column(card, [cell], (0.0, 0.0, 0.0), 0.0) for cell in range(first)]
    diagonal = np.array([float(cell % classes == cell // classes) for cell in range(first)])
    ties = np.zeros((2, first + len(right) + len(wrong)))
    ties[0, :first], ties[0, first : first + len(right)] = diagonal, -1.0
    ties[1, :first], ties[1, first + len(right) :] = 1 - diagonal, -1.0
    return np.column_stack([*confusion, *right, *wrong]), ties


def _of_numbers(card: ScoreCard) -> Floats:
    side = np.linspace(0.0, 1.0, _NUMBERS)
    pairs = product(side, side)
    return np.column_stack([_column(card, [], ((y - f) ** 2, y, y * y, f, f * f, y * f)) for y, f in pairs])

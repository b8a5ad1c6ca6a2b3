"""Neighbours told apart by their outputs alone: the attack where no likelihood is known.

A classifier learns from one half of the outputs which neighbour each came from. On the other half, which it never saw,
its scores are one number for each output: some choose an event, the rest bound its probabilities. Nothing is assumed
about the mechanism: a classifier that learned little shows little, and is never wrong more often than the confidence
allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from comity.audit.attack import Measured, attack_curve
from comity.audit.bound import choose_event, event_bounds
from comity.errors import DataError

Floats = NDArray[np.float64]
Score = Callable[[Floats], Floats]

_FEWEST = 40


def attack_outputs(
    first: Floats, second: Floats, *, claimed: float, delta: float, group: int = 1, confidence: float
) -> Measured:
    """What these outputs of two neighbours, (draws, numbers) each, prove about the loss of one record.

    `group` records differ. What a pair could show at most is not known here: `design` is the claim.
    """
    first, second = _check(first), _check(second)
    learned = _learn(first[::2], second[::2])
    # Of outputs that it learned from, the classifier is too sure: half of the others choose the event.
    fresh = [scores[1::2] for scores in (learned(first), learned(second))]
    event = choose_event(fresh[0][::2], fresh[1][::2], delta=delta, confidence=confidence)
    certain, possible = event_bounds(event, fresh[0][1::2], fresh[1][1::2], confidence=confidence)
    lost = group_epsilon(certain, possible, delta=delta, group=group)
    return Measured(lost, claimed, len(first), attack_curve(*fresh))


def group_epsilon(certain: float, possible: float, *, delta: float, group: int) -> float:
    """The least ε of one record with which an event of `group` records has probability at least `certain` under one
    neighbour and at most `possible` under the other.

    A group of k loses (k·ε, δ·(e^(kε) − 1)/(e^ε − 1)), so certain <= e^(kε)·possible + that; it grows with ε.
    """

    def allows(epsilon: float) -> bool:
        whole = group * epsilon
        if whole > 700:
            return True
        spread = float(group) if epsilon < 1e-12 else math.expm1(whole) / math.expm1(epsilon)
        return certain <= math.exp(whole) * possible + delta * spread

    if allows(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not allows(high):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if allows(middle) else (middle, high)
    return low


def _learn(first: Floats, second: Floats) -> Score:
    """A classifier of outputs: trees, which see any shape in few numbers, beside a line, which sees a shift in many.
    Their log odds are added."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    outputs, which = np.concatenate([first, second]), np.repeat([0, 1], [len(first), len(second)])
    trees = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, random_state=0).fit(outputs, which)
    line = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200)).fit(outputs, which)

    def score(seen: Floats) -> Floats:
        return np.asarray(trees.decision_function(seen) + line.decision_function(seen), np.float64)

    return score


def _check(outputs: Floats) -> Floats:
    listed = np.asarray(outputs, np.float64)
    listed = listed[:, None] if listed.ndim == 1 else listed
    if listed.ndim != 2 or len(listed) < _FEWEST or not np.isfinite(listed).all():
        raise DataError(f"an attack on outputs needs {_FEWEST} of each neighbour, as rows of finite numbers")
    return listed

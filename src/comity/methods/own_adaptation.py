"""Adapt a released linear model to an owner's records, for the owner alone (`comity.learn.adaptation`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import LocalRecords
from comity.data.tables.engine_records import EngineRecords
from comity.federation.evaluation.adaptation import Adaptation, OwnComparison
from comity.learn.adaptation import MIN_RECORDS, Rows, adapt_classes, adapt_numbers, spread_evenly
from comity.learn.classifiers import LinearClassifier
from comity.learn.regressor import LinearRegressor

Floats = NDArray[np.float64]

_ROUNDING = 1e-9
"""A constant column deviates from its mean by a rounding error at most so large, relative to its values."""
WRONG = "share of your records that it gets wrong"
SQUARED = "mean squared error on your records, the target's bounds being -1 and 1"


def adapt_linear(model: Any, records: LocalRecords) -> Adaptation | None:
    """None for a model that is not linear, where there are fewer than `MIN_RECORDS` labelled records, and where records
    stay on an engine."""
    if isinstance(records, EngineRecords) or len(records) < MIN_RECORDS:
        return None
    if not isinstance(model, LinearClassifier | LinearRegressor):
        return None
    features, labels = _read(records)
    if labels is None:
        return None
    if isinstance(model, LinearClassifier):
        return _adapt_classifier(model, features, labels.astype(np.int64))
    return _adapt_regressor(model, features, labels)


def _read(records: LocalRecords) -> tuple[Floats, Floats | None]:
    """Features and labels of the records that are used. Blocks are read one at a time."""
    used = spread_evenly(len(records))
    features, labels, start = [], [], 0
    for block in records.blocks():
        if block.labels is None:
            return np.zeros((0, 0)), None
        own = used[(used >= start) & (used < start + len(block))] - start
        # A copy: the next block may take the same memory.
        features.append(block.features[own].copy())
        labels.append(np.asarray(block.labels, np.float64)[own])
        start += len(block)
    return np.concatenate(features), np.concatenate(labels)


def _adapt_classifier(model: LinearClassifier, features: Floats, labels: NDArray[np.int64]) -> Adaptation:
    rows, entry = model.split_rows(features)
    scores, scale = model.decision_function(features), _scales(rows)
    fit = adapt_classes(Rows(rows / scale, entry), scores.reshape(len(rows), -1), labels)
    weights, intercept = fit.weights / scale, fit.intercept
    if len(model.weights) > len(weights):
        # Two classes with a row each: the second gains what the first loses.
        weights, intercept = (np.concatenate([-one / 2, one / 2]) for one in (weights, intercept))
    adapted = model.shift(fit.share, weights, intercept)
    alone, joint, own = ((_choose(one) != labels).astype(np.float64) for one in (fit.alone, fit.joint, fit.adapted))
    return Adaptation(adapted, OwnComparison.of(alone, joint, own, WRONG))


def _choose(scores: Floats) -> NDArray[np.int64]:
    return np.asarray(scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1), np.int64)


def _adapt_regressor(model: LinearRegressor, features: Floats, labels: Floats) -> Adaptation:
    rows, entry = model.split_rows(features)
    targets, scale = model.scale_targets(labels), _scales(rows)
    fit = adapt_numbers(Rows(rows / scale, entry), model.scores(features), targets)
    adapted = model.shift(fit.share, fit.weights[0] / scale, float(fit.intercept[0]))
    alone, joint, own = ((one[:, 0] - targets) ** 2 for one in (fit.alone, fit.joint, fit.adapted))
    return Adaptation(adapted, OwnComparison.of(alone, joint, own, SQUARED))


def _scales(rows: Floats) -> Floats:
    """What each column is divided by, because deviations of weights are for rows in the unit ball: what brings rows
    there on average, where a feature map has left it, and less for numbers that vary less than evenly spread ones
    would. Otherwise wide bounds of the schema would hide a column from its own owner."""
    length = max(1.0, float(np.sqrt(np.mean((rows**2).sum(axis=1)))))
    low, high, deviation = rows.min(axis=0), rows.max(axis=0), rows.std(axis=0)
    two_valued = ((rows == low) | (rows == high)).all(axis=0)
    constant = deviation <= _ROUNDING * np.maximum(np.abs(low), np.abs(high))
    evenly_spread = length * np.sqrt(1 / (3 * rows.shape[1]))
    narrower = np.where(two_valued | constant, 1.0, deviation / evenly_spread)
    return np.asarray(length * np.minimum(1.0, narrower), np.float64)

"""Simulation only: what share of exact records the bounds of a method cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.federation.assessment import Figure
from comity.federation.declare.consortium import Consortium
from comity.learn.record_sum import in_unit_ball
from comity.methods.averaging import descent
from comity.methods.averaging.moment_blocks import moments
from comity.methods.averaging.objectives import Objective
from comity.methods.averaging.whitening import Whitening

if TYPE_CHECKING:
    from comity.methods.averaging.protocol import Averaging

Floats = NDArray[np.float64]

# Rows that an encoding scales to norm 1 may be as much longer by rounding.
_LONGER = 1 + 1e-9


def of(method: Averaging, opened: Mapping[str, Any], train: Sequence[Records], who: Consortium) -> tuple[Figure, ...]:
    found = [rows_cut(train)]
    if method.model == "linear":
        found.append(targets_cut(train, method.low, method.high))
    if method.way(who) == "gradient":
        weights, targets = np.asarray(opened["model"], np.float64), [method.targets(_labels(one)) for one in train]
        if method.looks:
            found.append(whitened_rows_cut(method, train, who))
        found.append(residuals_cut(method.objective, weights, method.cut(who), train, targets))
    return tuple(found)


def rows_cut(train: Sequence[Records]) -> Figure:
    longer = [np.linalg.norm(np.nan_to_num(records.features), axis=-1) > _LONGER for records in train]
    return Figure("rows cut", _share(longer), "share of the records that are longer than 1 and shortened to it")


def targets_cut(train: Sequence[Records], low: float, high: float) -> Figure:
    labels = [np.asarray(records.labels, np.float64) for records in train if records.labels is not None]
    outside = [(values < low) | (values > high) for values in labels]
    return Figure("targets cut", _share(outside), "share of the records whose target lies outside its bounds")


def whitened_rows_cut(method: Averaging, train: Sequence[Records], who: Consortium) -> Figure:
    """Whitened as they would be had the second moments been opened without noise: what was opened is not kept."""
    rows = [in_unit_ball(records.features) for records in train]
    white, seen = Whitening.none(method.features), rows
    for look in range(method.looks):
        exact = np.sum([moments(one, method.blocks) for one in seen], axis=0)
        white = descent.whitened(method, white, look, exact, sum(map(len, rows)), who)
        seen = [white.inside(one) for one in rows]
    longer = [np.linalg.norm(white.of(one), axis=-1) > _LONGER for one in rows]
    return Figure("whitened rows cut", _share(longer), "share of the records that whitening makes longer than 1")


def residuals_cut(
    objective: Objective, weights: Floats, clip: float, train: Sequence[Records], targets: Sequence[Floats]
) -> Figure:
    """At `weights`, rows of the margins."""
    found = []
    for records, wanted in zip(train, targets):
        residual = objective.residual(in_unit_ball(records.features) @ weights.T, wanted)
        found.append(np.linalg.norm(residual, axis=-1) > clip * _LONGER)
    return Figure("residuals cut", _share(found), "share of the records whose part of a gradient is shortened")


def _share(cut: Sequence[NDArray[Any]]) -> float:
    counted = np.concatenate([np.ravel(one) for one in cut]) if cut else np.zeros(0)
    return float(counted.mean()) if counted.size else 0.0


def _labels(records: Records) -> NDArray[Any]:
    assert records.labels is not None
    return records.labels

"""Simulation only: what share of exact records the bounds of a method cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.federation.assessment import Figure
from comity.learn.fitting.record_sum import in_unit_ball
from comity.protocols.averaging.objectives import Objective

Floats = NDArray[np.float64]

# Rows that an encoding scales to norm 1 may be as much longer by rounding.
_LONGER = 1 + 1e-9


def rows_cut(train: Sequence[Records]) -> Figure:
    longer = [np.linalg.norm(np.nan_to_num(records.features), axis=-1) > _LONGER for records in train]
    return Figure("rows cut", _share(longer), "share of the records that are longer than 1 and shortened to it")


def targets_cut(train: Sequence[Records], low: float, high: float) -> Figure:
    labels = [np.asarray(records.labels, np.float64) for records in train if records.labels is not None]
    outside = [(values < low) | (values > high) for values in labels]
    return Figure("targets cut", _share(outside), "share of the records whose target lies outside its bounds")


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

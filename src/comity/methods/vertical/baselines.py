"""Simulation only: errors of a constant, of the label's holder alone, and of all columns pooled without noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.data.schemas.reading import canonical_id
from comity.federation.baseline import Baseline
from comity.learn.fits import logistic
from comity.methods.vertical.dissection import Dissection
from comity.methods.vertical.fit import fitted
from comity.methods.vertical.layout import LABEL, Layout, scaled_target

Floats = NDArray[np.float64]

_L2 = 1e-6
"""Enough for classes that can be separated. Not tuned on data."""


def error_of(columns: Layout, coef: Floats, test: Records) -> float:
    """Share of wrong classes, or the mean squared error of a target scaled to [−1, 1], over encoded whole rows."""
    scores = test.features @ coef
    assert test.labels is not None
    if columns.classes:
        return float(np.mean((scores > 0) != (test.labels > 0)))
    return float(np.mean((scores - scaled_target(columns.schema, test.labels)) ** 2))


def pooled(columns: Layout, parties: Sequence[Records]) -> Floats:
    """The columns of z in one place, over the rows that all parties have."""
    orders: list[NDArray[np.int64] | None] = [None] * len(parties)
    ids = [None if records.ids is None else [canonical_id(one) for one in records.ids] for records in parties]
    if all(found is not None for found in ids):
        common = set.intersection(*(set(found) for found in ids if found is not None))
        orders = []
        for found in ids:
            assert found is not None
            place = {one: at for at, one in enumerate(found)}
            orders.append(np.array([place[one] for one in sorted(common)], np.int64))
    parts = []
    for party, records, order in zip(columns.parties, parties, orders):
        matrix = columns.matrix(records, party)
        parts.append(matrix if order is None else matrix[order])
    return np.hstack(parts)


def _fit(columns: Layout, rows: Floats) -> Floats:
    """Coefficients of encoded rows without noise: least squares, or a logistic regression."""
    if not columns.classes:
        dissection = Dissection.of(columns)
        return fitted(dissection, dissection.exact(rows), len(rows), 0.0).coef
    features = rows[:, columns.features]
    if columns.intercept:
        features = np.column_stack([features, np.full(len(rows), columns.constant)])
    labels = (rows[:, columns.label.start] > 0).astype(np.float64)
    return np.asarray(columns.mapping @ logistic(features, labels, _L2, tol=1e-7).weights, np.float64)


def alone_and_together(columns: Layout, rows: Floats) -> tuple[Floats, Floats]:
    """Coefficients of encoded rows: what the label's holder reaches by itself, and all columns in one place."""
    # Columns of others held at zero carry nothing.
    own = rows.copy()
    for piece in columns.pieces:
        if piece.party != columns.label_at and piece.kind != LABEL:
            own[:, piece.start : piece.stop] = 0.0
    return _fit(columns, own), _fit(columns, rows)


def baselines(columns: Layout, train: Sequence[Records], test: Records) -> list[Baseline]:
    rows = pooled(columns, train)
    if not len(rows):
        return []
    alone, whole = alone_and_together(columns, rows)
    assert test.labels is not None
    if columns.classes:
        most = np.mean(rows[:, columns.label.start] > 0) > 0.5
        constant, said = float(np.mean((test.labels > 0) != most)), "always the most frequent class"
    else:
        middle = rows[:, columns.label.start].mean() / columns.label.table[0, 0]
        constant = float(np.mean((scaled_target(columns.schema, test.labels) - middle) ** 2))
        said = "always the mean"
    return [
        Baseline("constant", constant, note=said),
        Baseline("own data", error_of(columns, alone, test), note="the label's holder alone"),
        Baseline("pooled", error_of(columns, whole, test), note="all columns in one place, no privacy"),
    ]

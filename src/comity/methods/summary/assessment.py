"""How good a summary is, in a simulation: MMD² to the consumer's own records and a classifier on test records, beside
what else a consumer could have done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.section import Grid, Panel, Panels, Section
from comity.data import Encoding, Records
from comity.federation.assessment import Assessment, Figure
from comity.federation.baseline import Baseline
from comity.methods.summary.artefact import BoughtRecords, RatioWeights
from comity.methods.summary.baselines import Measured, compared, measured
from comity.methods.summary.mmd import mmd2

Floats = NDArray[np.float64]

MEASURE = "MMD² to the consumer's records"
# Columns, and cells of a number, that a reader takes in.
_COLUMNS, _CELLS = 9, 5


def assess(presented: Any, train: Sequence[Records] | None, test: Records) -> Assessment:
    """Of records; of weights, how far they bring the owners' records. Hashes can't be put beside records by whoever has
    no seed: the consumer measures them at home."""
    if isinstance(presented, BoughtRecords) and presented.setting is not None:
        return _of_records(presented, train, test)
    if isinstance(presented, RatioWeights) and presented.setting is not None and train is not None:
        return _of_weights(presented, train)
    return Assessment()


def _of_records(presented: BoughtRecords, train: Sequence[Records] | None, test: Records) -> Assessment:
    setting = presented.setting
    assert setting is not None
    consumer = test if train is None else train[setting.consumer]
    target, gamma = consumer.features, setting.gamma
    ours = measured("summary", presented.rows, presented.labels, target=target, test=test, gamma=gamma)
    others: list[Measured] = []
    figures = []
    if train is not None:
        owners = [train[place] for place in setting.owners]
        others = compared(owners, consumer, test, count=len(presented), gamma=gamma)
        before = mmd2(np.concatenate([records.features for records in owners]), target, gamma)
        figures.append(Figure("MMD² before", before, "between all records of the owners and the consumer's"))
    if ours.accuracy is not None:
        figures.append(
            Figure("accuracy", ours.accuracy, "of a linear classifier trained on the summary, on test records")
        )
    rows = tuple((one.name, one.mmd2, one.accuracy, one.note) for one in (ours, *others))
    grid = Grid(("choice", MEASURE, "accuracy", "how"), rows, f"{len(presented)} records each.")
    plots = () if presented.schema is None or presented.image else (_marginals(presented, target),)
    section = Section("Beside what else could be bought", (), plots, (grid,))
    baselines = tuple(Baseline(one.name, one.mmd2, note=one.note) for one in others)
    return Assessment(ours.mmd2, MEASURE, baselines, tuple(figures), (section,))


def _of_weights(presented: RatioWeights, train: Sequence[Records]) -> Assessment:
    setting = presented.setting
    assert setting is not None
    rows = np.concatenate([train[place].features for place in setting.owners])
    target = train[setting.consumer].features
    weights = presented.weights(rows)
    whole = weights.sum()
    share = weights / whole if whole else np.full(len(rows), 1 / len(rows))
    before, after = mmd2(rows, target, setting.gamma), mmd2(rows, target, setting.gamma, share)
    figures = (Figure("MMD² before", before, "between all records of the owners and the consumer's"),)
    return Assessment(after, f"{MEASURE}, of weighted ones", (Baseline("unweighted", before),), figures)


def _marginals(presented: BoughtRecords, target: Floats) -> Panels:
    """Shares of the cells of each column, of the bought records beside the consumer's."""
    assert presented.schema is not None
    encoding = Encoding(presented.schema, scaling="unit")
    panels = []
    for column, group in list(zip(presented.schema.columns, encoding.bounds.groups))[:_COLUMNS]:
        part = slice(group.start, group.stop)
        if group.one_hot:
            names = tuple(name.partition("=")[2] for name in encoding.names[part])
            shares = [tuple(map(float, rows[:, part].mean(axis=0))) for rows in (presented.rows, target)]
        else:
            edges = np.linspace(0, 1, _CELLS + 1)
            names = tuple(f"to {edge:.0%} of its range" for edge in edges[1:])
            shares = [_histogram(rows[:, group.start], edges) for rows in (presented.rows, target)]
        panels.append(Panel(column.name, names, shares[0], shares[1]))
    return Panels("Chosen records beside the consumer's", ("chosen", "consumer"), tuple(panels))


def _histogram(values: Floats, edges: Floats) -> tuple[float, ...]:
    counts, _ = np.histogram(np.clip(values, 0, 1), edges)
    return tuple(float(count) / max(1, len(values)) for count in counts)

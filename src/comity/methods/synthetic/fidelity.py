"""How true a dataset is to the records behind it: in a simulation, or for an owner's own eyes.

Every figure here reads private records, so that none of them is released with the dataset: what goes out with it is
what the noisy counts imply (`comity.methods.synthetic.expected`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.section import Grid, Matrices, Panel, Panels, Section, Square
from comity.data import Records
from comity.entropy import Stream
from comity.federation.assessment import Assessment, Figure
from comity.federation.baseline import Baseline
from comity.methods.synthetic.artefact import SyntheticDataset
from comity.methods.synthetic.counting import Counting
from comity.methods.synthetic.downstream import Examples, Task

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PARTITIONS, PARTS = 50, 32
# Rows whose nearest records are looked for, and records among which: a limit of size.
_LOOKED_AT, _AMONG = 400, 4000
# More than a reader takes in.
_PANELS, _LABELS = 12, 8
# Standard deviations beyond which rows lie too near to the records that were counted.
_SUSPICIOUS = 4.0


Compare = Callable[[Task, Examples], list[Baseline]]


def assess(
    presented: SyntheticDataset, counted: Records | None, test: Records, compare: Compare | None = None
) -> Assessment:
    """Total variation, Wasserstein distance and correlations against the records that were counted, or the test records
    where those are not given; the error of learners that saw the dataset alone; and how near rows lie to records.
    `compare` says what the parties reach without it."""
    counting = presented.counts.counting
    made = counting.encoding.encode(presented.frame, where="the dataset").records
    real = test if counted is None else counted
    ours, theirs = made.features.astype(np.int64), real.features.astype(np.int64)
    one, two = total_variation(counting, ours, theirs, 1), total_variation(counting, ours, theirs, 2)
    figures = [
        Figure("one-way total variation", one, "share of records in the wrong cell, mean over columns; 0 is exact"),
        Figure("two-way total variation", two, "the same for pairs of columns"),
        Figure(
            "Wasserstein distance",
            partitioned(counting, ours, theirs),
            f"mean over {PARTITIONS} random partitions of the records into {PARTS} parts; 0 is exact",
        ),
        Figure("size error", abs(len(ours) - len(theirs)), "rows more or less than there are records"),
    ]
    gap = np.abs(correlations(counting, ours) - correlations(counting, theirs))
    if gap.size > 1:
        figures.append(Figure("correlation error", float(gap.mean()), "mean difference over pairs of ordered columns"))
    error, measure, baselines = None, "", []
    if counting.schema.target is not None and made.labels is not None and test.labels is not None:
        task = Task(counting)
        learned, tested = task.examples(made), task.examples(test)
        error, measure = task.linear(learned, tested), task.measure
        figures += _of_trees(task, learned, tested, "")
        if compare is not None:
            baselines = compare(task, tested)
        if counted is not None:
            figures += _of_trees(task, task.examples(real), tested, " on the records themselves")
    sentences = ["Measured on the records of the simulation: outside of one, these figures stay with their owner."]
    if counted is not None:
        sentences.append(nearness(ours, theirs, test.features.astype(np.int64)))
    return Assessment(error, measure, tuple(baselines), tuple(figures), (_section(counting, ours, theirs, sentences),))


def total_variation(counting: Counting, ours: Integers, theirs: Integers, ways: int) -> float:
    """Mean over all columns, or all pairs of them, whether they were counted or not."""
    sizes = counting.layout.sizes
    found = []
    for key in combinations(range(len(sizes)), ways):
        first, second = (_shares(codes, key, sizes) for codes in (ours, theirs))
        found.append(np.abs(first - second).sum() / 2)
    return float(np.mean(found)) if found else 0.0


def _shares(codes: Integers, key: tuple[int, ...], sizes: Sequence[int]) -> Floats:
    place = np.zeros(len(codes), np.int64)
    for k in key:
        place = place * sizes[k] + codes[:, k]
    return np.bincount(place, minlength=int(np.prod([sizes[k] for k in key]))) / max(1, len(codes))


def partitioned(counting: Counting, ours: Integers, theirs: Integers) -> float:
    """Wasserstein distance of the histograms that random partitions of all possible records induce, as in the published
    evaluation. A partition cuts a random direction through the cells into parts of equal length; parts one step apart
    are at distance one over their number, so that 1 is the largest distance."""
    chance = Stream.public("partitions", len(counting.layout.sizes))
    sizes = np.array(counting.layout.sizes)
    found = []
    for _ in range(PARTITIONS):
        # A weight for every cell of every column: directions need no order of categories.
        cells = [chance.uniform(int(size)) for size in sizes]
        most, least = sum(w.max() for w in cells), sum(w.min() for w in cells)
        histograms = []
        for codes in (ours, theirs):
            at = sum(w[codes[:, k]] for k, w in enumerate(cells)) - least
            part = np.minimum((at / max(most - least, 1e-12) * PARTS).astype(np.int64), PARTS - 1)
            histograms.append(np.bincount(part, minlength=PARTS) / max(1, len(codes)))
        found.append(np.abs(np.cumsum(histograms[0] - histograms[1])).sum() / PARTS)
    return float(np.mean(found))


def correlations(counting: Counting, codes: Integers) -> Floats:
    """Between columns whose cells have an order, missing values left out, and a target of two classes."""
    places, values = _ordered(counting), []
    for k, cells in places.items():
        values.append(np.where(codes[:, k] < cells, codes[:, k], np.nan))
    found = np.eye(len(values))
    for i, j in combinations(range(len(values)), 2):
        here = ~(np.isnan(values[i]) | np.isnan(values[j]))
        a, b = values[i][here], values[j][here]
        if len(a) > 1 and a.std() > 0 and b.std() > 0:
            found[i, j] = found[j, i] = np.corrcoef(a, b)[0, 1]
        else:
            found[i, j] = found[j, i] = 0.0
    return found


def _ordered(counting: Counting) -> dict[int, int]:
    places, layout = dict(counting.cells.ordered), counting.layout
    places |= {k: 2 for k, size in enumerate(layout.sizes) if size == 2 and k not in places}
    return dict(sorted(places.items()))


def nearness(ours: Integers, train: Integers, test: Integers) -> str:
    """Whether rows lie nearer to records that were counted than to others of the same kind: copies would."""
    chance = Stream.public("nearness")
    size = min(_AMONG, len(train), len(test))
    if size < 50 or not len(ours):
        return "Too few records to say how near rows lie to those that were counted."
    rows = ours[chance.permutation(len(ours))[:_LOOKED_AT]]
    among = [codes[chance.permutation(len(codes))[:size]] for codes in (train, test)]
    nearest = [np.array([(one != records).sum(1).min() for one in rows]) for records in among]
    counted, other = int((nearest[0] < nearest[1]).sum()), int((nearest[1] < nearest[0]).sum())
    said = f"Of {len(rows)} rows, {counted} lie nearer to a record that was counted and {other} nearer to a test record"
    if counted - other > _SUSPICIOUS * sqrt(max(1, counted + other)):
        return f"WARNING: {said}: rows resemble records that were counted more than chance allows."
    return f"{said}, by the number of columns in which they differ."


def _of_trees(task: Task, learned: Examples, tested: Examples, what: str) -> list[Figure]:
    error, area = task.trees(learned, tested)
    found = [Figure(f"error of boosted trees{what}", error, "as the error, for a learner that finds interactions")]
    if area is not None:
        found.append(
            Figure(f"AUC of boosted trees{what}", area, "chance that the right one of two records scores higher")
        )
    return found


def _section(counting: Counting, ours: Integers, theirs: Integers, sentences: Sequence[str]) -> Section:
    cells, sizes = counting.cells, counting.layout.sizes
    gaps = [(np.abs(_shares(ours, (k,), sizes) - _shares(theirs, (k,), sizes)).sum() / 2, k) for k in range(len(sizes))]
    panels = tuple(
        Panel(
            cells.names[k],
            cells.labels(k)[:_LABELS],
            tuple(_shares(theirs, (k,), sizes)[:_LABELS].tolist()),
            tuple(_shares(ours, (k,), sizes)[:_LABELS].tolist()),
        )
        for k in range(len(sizes))
    )[:_PANELS]
    ordered = [cells.names[k] for k in _ordered(counting)]
    plots: list[Panels | Matrices] = [Panels("Shares of each column", ("records", "dataset"), panels)]
    if len(ordered) > 1:
        squares = tuple(
            Square(label, tuple(map(tuple, np.round(correlations(counting, codes), 4).tolist())))
            for label, codes in (("records", theirs), ("dataset", ours))
        )
        plots.append(Matrices("Correlations of ordered columns", tuple(ordered), squares))
    rows = tuple((cells.names[k], float(gap)) for gap, k in sorted(gaps, reverse=True))
    return Section(
        "Fidelity of the dataset",
        tuple(sentences),
        tuple(plots),
        (Grid(("column", "total variation"), rows, "Against the records of the simulation."),),
    )

"""How true a dataset is to the records behind it: in a simulation, or for an owner's eyes only.

Every figure here reads private records, so none is released with the dataset. Released with it is only what the noisy
counts imply (`counts.expected_errors`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity.artefacts.section import Grid, Matrices, Panel, Panels, Section, Square
from comity.data import Bounded, LocalRecords, Records
from comity.entropy import Stream
from comity.federation.evaluation.assessment import Assessment, Baseline, Figure, auc
from comity.federation.evaluation.own_score import OwnScore, score_classes
from comity.methods.synthetic.artefact import SyntheticDataset
from comity.methods.synthetic.counts import Counting
from comity.methods.synthetic.labels import one_hot

# What learners make of records: the error on test records after learning from real or from synthetic ones.
#
# Features are the cells of a record, one-hot for linear learners and as they are for trees, so all learners see what
# the counts can say.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# The most records that a learner sees, and the most parties that are tried alone: limits of size.
MAX_LEARNED, MAX_ALONE = 30_000, 5


@dataclass(frozen=True, eq=False)
class Examples:
    """Cells of records, without the target's, and the target: classes, or numbers on [−1, 1]."""

    cells: Integers
    targets: NDArray[Any]

    def __len__(self) -> int:
        return len(self.cells)


@dataclass(frozen=True)
class Task:
    """Predict the target from the other columns."""

    counting: Counting

    @property
    def classified(self) -> bool:
        return self.counting.classified

    @property
    def measure(self) -> str:
        if self.classified:
            return "share of test records that a logistic regression on the dataset gets wrong"
        return "mean squared error of a ridge regression on the dataset, with the target on [-1, 1]"

    def make_examples(self, records: Records, most: int = MAX_LEARNED) -> Examples:
        """At most `most` of the records, chosen by public randomness."""
        chosen = _sample_places(len(records), most)
        cells = records.features[chosen].astype(np.int64)
        assert records.labels is not None
        labels = np.asarray(records.labels)[chosen]
        return Examples(cells[:, :-1], labels if self.classified else self._scaled(labels))

    def _scaled(self, values: NDArray[Any]) -> Floats:
        target = self.counting.schema.target
        assert isinstance(target, Bounded)
        return np.asarray(2 * (values - target.low) / (target.high - target.low) - 1, np.float64)

    def linear_error(self, learned: Examples, test: Examples) -> float:
        """Error of a linear learner, or of a constant where there is nothing to learn."""
        return float(np.mean(self.linear_errors(learned, test)))

    def linear_errors(self, learned: Examples, test: Examples) -> Floats:
        """The error of each test record, for `linear_error`."""
        from sklearn.linear_model import LogisticRegression, Ridge

        if len(learned) < 2 or len(np.unique(learned.targets)) < 2:
            return self._errors(self._constant_answers(learned, test), test)
        rows, tested = self._one_hot(learned.cells), self._one_hot(test.cells)
        with threadpool_limits(1):
            learner = LogisticRegression(max_iter=200) if self.classified else Ridge(1.0)
            learner.fit(rows, learned.targets)
            return self._errors(learner.predict(tested), test)

    def tree_error(self, learned: Examples, test: Examples) -> tuple[float, float | None]:
        """Error of boosted trees and, for two classes, their AUC."""
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        if len(learned) < 2 or len(np.unique(learned.targets)) < 2:
            return self.constant_error(learned, test), None
        kind = HistGradientBoostingClassifier if self.classified else HistGradientBoostingRegressor
        with threadpool_limits(1):
            learner = kind(random_state=0, early_stopping=False).fit(learned.cells, learned.targets)
            error = self._error(learner.predict(test.cells), test)
            shares = learner.predict_proba(test.cells) if self.classified else None
        if shares is None or len(learner.classes_) != 2:
            return error, None
        return error, auc(shares[:, 1], test.targets == learner.classes_[1])

    def constant_error(self, learned: Examples, test: Examples) -> float:
        return self._error(self._constant_answers(learned, test), test)

    def _constant_answers(self, learned: Examples, test: Examples) -> NDArray[Any]:
        if not len(learned):
            learned = test
        values, counts = np.unique(learned.targets, return_counts=True)
        answer = values[counts.argmax()] if self.classified else learned.targets.mean()
        return np.full(len(test), answer)

    def compare(self, train: Sequence[Records], test: Examples) -> list[Baseline]:
        """Baselines: a constant, parties alone, all records pooled."""
        pooled = self.make_examples(pool_records(train))
        alone = [self.linear_error(self.make_examples(own), test) for own in train[:MAX_ALONE]]
        tried = f"the first {len(alone)} of {len(train)} parties" if len(train) > len(alone) else "each party"
        own = Baseline.of_parties(alone, f"{tried}, without privacy")
        return self._list_baselines(pooled, own, test)

    def compare_columns(self, whole: Records, own: Sequence[int], test: Examples) -> list[Baseline]:
        """Baselines: a constant, the target's holder with its columns `own` alone, all columns in one place."""
        pooled = self.make_examples(whole)
        alone = self.linear_error(_hide_other_columns(pooled, own), _hide_other_columns(test, own))
        return self._list_baselines(
            pooled, Baseline("own data", alone, note="the target's holder, without privacy"), test
        )

    def _list_baselines(self, pooled: Examples, own: Baseline, test: Examples) -> list[Baseline]:
        return [
            Baseline("constant", self.constant_error(pooled, test), note="the same answer for all"),
            own,
            Baseline("pooled", self.linear_error(pooled, test), note="all records in one place, without privacy"),
        ]

    def _error(self, predicted: NDArray[Any], test: Examples) -> float:
        return float(np.mean(self._errors(predicted, test)))

    def _errors(self, predicted: NDArray[Any], test: Examples) -> Floats:
        if self.classified:
            return np.asarray(predicted != test.targets, np.float64)
        return np.asarray((np.clip(predicted, -1, 1) - test.targets) ** 2, np.float64)

    def _one_hot(self, cells: Integers) -> NDArray[np.float32]:
        return one_hot(cells, range(cells.shape[1]), self.counting.layout.sizes)


def pool_records(records: Sequence[Records]) -> Records:
    labels: list[Any] = [one.labels for one in records if one.labels is not None]
    return Records(np.concatenate([one.features for one in records]), np.concatenate(labels) if labels else None)


def _hide_other_columns(examples: Examples, columns: Sequence[int]) -> Examples:
    """Make every other column the same for all records, so it tells nothing."""
    cells = np.zeros_like(examples.cells)
    cells[:, list(columns)] = examples.cells[:, list(columns)]
    return Examples(cells, examples.targets)


def _sample_places(count: int, most: int) -> Integers:
    return (
        np.arange(count) if count <= most else np.sort(Stream.public("some records", count).permutation(count)[:most])
    )


# The figures of a simulation.

PARTITIONS, PARTS = 50, 32
# The most rows whose nearest records are searched, and the most records searched: limits of size.
_NEAREST_ROWS, _NEAREST_RECORDS = 400, 4000
# Columns, and cells of a column, on a page.
_MAX_PANELS, _MAX_LABELS = 12, 8
# Standard deviations beyond which rows lie too near to the counted records.
_SUSPICIOUS = 4.0


Compare = Callable[[Task, Examples], list[Baseline]]


def assess(
    presented: SyntheticDataset, counted: Records | None, test: Records, compare: Compare | None = None
) -> Assessment:
    """Compare the dataset with the counted records, or with the test records where those are not given: total
    variation, Wasserstein distance, correlations, the error of learners that saw the dataset alone, and how near rows
    lie to records. `compare` gives what the parties reach without it."""
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
            partition_distance(counting, ours, theirs),
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
        learned, tested = task.make_examples(made), task.make_examples(test)
        error, measure = task.linear_error(learned, tested), task.measure
        figures += _tree_figures(task, learned, tested, "")
        if compare is not None:
            baselines = compare(task, tested)
        if counted is not None:
            figures += _tree_figures(task, task.make_examples(real), tested, " on the records themselves")
    sentences = ["Measured on the records of the simulation. Outside a simulation these figures stay with their owner."]
    if counted is not None:
        sentences.append(describe_nearness(ours, theirs, test.features.astype(np.int64)))
    return Assessment(
        error,
        measure,
        tuple(baselines),
        tuple(figures),
        (_draw_section(counting, ours, theirs, sentences),),
        tested=min(len(test), MAX_LEARNED),
    )


def record_errors(presented: SyntheticDataset, test: Records) -> Floats | None:
    """The error of each test record by a linear learner that saw the dataset alone; None without a target."""
    counting = presented.counts.counting
    if counting.schema.target is None or test.labels is None:
        return None
    task, made = Task(counting), counting.encoding.encode(presented.frame, where="the dataset").records
    return task.linear_errors(task.make_examples(made), task.make_examples(test, len(test)))


def total_variation(counting: Counting, ours: Integers, theirs: Integers, ways: int) -> float:
    """Mean over all columns, or all pairs of columns, counted or not."""
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


def partition_distance(counting: Counting, ours: Integers, theirs: Integers) -> float:
    """Wasserstein distance of the histograms that random partitions of all possible records induce, as in the published
    evaluation. A partition divides a random direction through the cells into parts of equal length. Adjacent parts are
    at distance one over their number, so the largest distance is 1."""
    stream = Stream.public("partitions", len(counting.layout.sizes))
    sizes = np.array(counting.layout.sizes)
    found = []
    for _ in range(PARTITIONS):
        # A weight for every cell of every column needs no order of categories.
        cells = [stream.uniform(int(size)) for size in sizes]
        most, least = sum(w.max() for w in cells), sum(w.min() for w in cells)
        histograms = []
        for codes in (ours, theirs):
            at = sum(w[codes[:, k]] for k, w in enumerate(cells)) - least
            part = np.minimum((at / max(most - least, 1e-12) * PARTS).astype(np.int64), PARTS - 1)
            histograms.append(np.bincount(part, minlength=PARTS) / max(1, len(codes)))
        found.append(np.abs(np.cumsum(histograms[0] - histograms[1])).sum() / PARTS)
    return float(np.mean(found))


def correlations(counting: Counting, codes: Integers) -> Floats:
    """Correlations of columns whose cells have an order or that have two cells, without missing values."""
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


def describe_nearness(ours: Integers, train: Integers, test: Integers) -> str:
    """Say whether rows lie nearer to counted records than to others of the same kind, as copies would."""
    stream = Stream.public("nearness")
    size = min(_NEAREST_RECORDS, len(train), len(test))
    if size < 50 or not len(ours):
        return "Too few records to say how near rows lie to the counted ones."
    rows = ours[stream.permutation(len(ours))[:_NEAREST_ROWS]]
    among = [codes[stream.permutation(len(codes))[:size]] for codes in (train, test)]
    nearest = [np.array([(one != records).sum(1).min() for one in rows]) for records in among]
    counted, other = int((nearest[0] < nearest[1]).sum()), int((nearest[1] < nearest[0]).sum())
    numbers = f"Of {len(rows)} rows, {counted} lie nearer to a counted record and {other} nearer to a test record"
    if counted - other > _SUSPICIOUS * sqrt(max(1, counted + other)):
        return f"WARNING: {numbers}: rows resemble counted records more than chance allows."
    return f"{numbers}, by the number of columns in which they differ."


def _tree_figures(task: Task, learned: Examples, tested: Examples, what: str) -> list[Figure]:
    error, area = task.tree_error(learned, tested)
    found = [Figure(f"error of boosted trees{what}", error, "as the error, for a learner that finds interactions")]
    if area is not None:
        found.append(
            Figure(f"AUC of boosted trees{what}", area, "probability that the right one of two records scores higher")
        )
    return found


def _draw_section(counting: Counting, ours: Integers, theirs: Integers, sentences: Sequence[str]) -> Section:
    cells, sizes = counting.cells, counting.layout.sizes
    gaps = [(np.abs(_shares(ours, (k,), sizes) - _shares(theirs, (k,), sizes)).sum() / 2, k) for k in range(len(sizes))]
    panels = tuple(
        Panel(
            cells.names[k],
            cells.labels(k)[:_MAX_LABELS],
            tuple(_shares(theirs, (k,), sizes)[:_MAX_LABELS].tolist()),
            tuple(_shares(ours, (k,), sizes)[:_MAX_LABELS].tolist()),
        )
        for k in range(len(sizes))
    )[:_MAX_PANELS]
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


# How good a dataset is on an owner's own records.
#
# With a target, naive Bayes learns from the dataset alone and predicts the target's cell of each own record. Without
# one, or for an owner of some columns, the shares of each column's cells are compared; the constant is a dataset in
# which all cells are equally likely.

InCells = Callable[[Floats], Floats]

SHARES_MEASURE = "share of your records that would have to change cells, mean over columns"


def encode_rows(presented: SyntheticDataset) -> Integers:
    """The dataset's rows as cells."""
    found = presented.counts.counting.encoding.encode(presented.frame, where="the dataset").records
    return np.asarray(found.features, np.int64)


def score_target(presented: SyntheticDataset, records: LocalRecords, in_cells: InCells = np.asarray) -> OwnScore | None:
    """Score predictions of the target. `in_cells` gives records as encoded in the dataset's cells."""
    sizes = presented.counts.counting.layout.sizes
    made = encode_rows(presented)
    # One more record of every kind: what the dataset lacks is not impossible.
    prior = np.log(np.bincount(made[:, -1], minlength=sizes[-1]) + 1.0)
    given = []
    for column, size in enumerate(sizes[:-1]):
        table = np.bincount(made[:, column] * sizes[-1] + made[:, -1], minlength=size * sizes[-1]) + 1.0
        table = table.reshape(size, sizes[-1])
        given.append(np.log(table / table.sum(axis=0)))
    counts, wrong = (np.zeros(sizes[-1], np.int64) for _ in range(2))
    for block in records.blocks():
        cells = np.asarray(in_cells(block.features), np.int64)
        score = np.tile(prior, (len(cells), 1))
        for column, table in enumerate(given):
            score += table[cells[:, column]]
        truth = cells[:, -1]
        counts += np.bincount(truth, minlength=sizes[-1])
        wrong += np.bincount(truth[score.argmax(axis=1) != truth], minlength=sizes[-1])
    return score_classes(counts, wrong)


def score_columns(
    presented: SyntheticDataset, records: LocalRecords, places: tuple[int, ...], in_cells: InCells = np.asarray
) -> OwnScore | None:
    """Compare the shares of cells. `places` are the indices of the owner's columns in the dataset; `in_cells` is that
    of `score_target`."""
    sizes, made = presented.counts.counting.layout.sizes, encode_rows(presented)
    own = [np.zeros(sizes[place], np.int64) for place in places]
    for block in records.blocks():
        cells = np.asarray(in_cells(block.features), np.int64)
        for at, place in enumerate(places):
            own[at] += np.bincount(cells[:, at], minlength=sizes[place])
    count = int(own[0].sum()) if own else 0
    if not count:
        return None
    distances: list[Any] = []
    for counts, place in zip(own, places):
        theirs = np.bincount(made[:, place], minlength=sizes[place]) / max(1, len(made))
        shares, alike = counts / count, np.full(sizes[place], 1 / sizes[place])
        # The sampling error of shares of this many records.
        sampling = sqrt(sizes[place] / (4 * count))
        distances.append([np.abs(shares - theirs).sum() / 2, np.abs(shares - alike).sum() / 2, sampling])
    error, constant, sampling = np.mean(distances, axis=0)
    return OwnScore(count, float(error), float(constant), 3.0 * float(sampling), SHARES_MEASURE)

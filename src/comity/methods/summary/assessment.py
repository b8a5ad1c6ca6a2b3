"""How good a summary is: in a simulation, compared with other choices; and on the consumer's own records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.section import Grid, Panel, Panels, Section
from comity.data import Encoding, LocalRecords, Records
from comity.entropy import Stream
from comity.federation.evaluation.assessment import Assessment, Baseline, Figure
from comity.federation.evaluation.own_score import OwnScore, score_classes
from comity.methods.summary.artefact import BoughtRecords, RatioWeights
from comity.methods.summary.features import FourierFeatures
from comity.methods.summary.herding import herd_features, herd_towards, mmd2

# Other choices of records. They exist in simulations only: some see every record, others choose at random.

Floats = NDArray[np.float64]

# Features of the greedy choice without the exact kernel: as many as in the published method.
_FEATURES = 140
# The most records that the pooled classifier learns from: a limit of time.
_MAX_FITTED = 20_000


@dataclass(frozen=True)
class Measured:
    """A choice of records: its MMD² to the consumer's records and, where there are labels, the accuracy of a linear
    classifier that learns from it."""

    name: str
    mmd2: float
    accuracy: float | None
    note: str = ""


def measure_choice(
    name: str, rows: Floats, labels: Any, *, target: Floats, test: Records, gamma: float, note: str = ""
) -> Measured:
    return Measured(name, mmd2(rows, target, gamma), measure_accuracy(rows, labels, test, gamma), note)


def measure_accuracy(rows: Floats, labels: NDArray[Any] | None, test: Records, gamma: float) -> float | None:
    """The accuracy of a linear support vector machine (C = 1) on rows scaled as for a kernel of γ = 0.1, as in the
    paper's experiments; None where there are no classes."""
    if labels is None or test.labels is None or not len(test) or np.asarray(labels).dtype.kind != "i":
        return None
    classes = np.unique(labels)
    if len(classes) < 2:
        return float((test.labels == classes[0]).mean()) if len(classes) else None
    from sklearn.svm import LinearSVC

    scale = np.sqrt(gamma / 0.1)
    model = LinearSVC(C=1.0, random_state=0, max_iter=5000).fit(rows * scale, labels)
    return float(model.score(test.features * scale, test.labels))


def compare_choices(
    owners: Sequence[Records], consumer: Records, test: Records, *, count: int, gamma: float, label: str = "baselines"
) -> list[Measured]:
    """`count` records chosen uniformly, from the largest owner alone, greedily, and by a pooled classifier."""
    rows = np.concatenate([records.features for records in owners])
    parts = [records.labels for records in owners]
    labels = np.concatenate([np.asarray(one) for one in parts]) if all(one is not None for one in parts) else None
    target, stream = consumer.features, Stream.public("summary", label)

    def measure(name: str, places: Any, note: str) -> Measured:
        chosen = None if labels is None else labels[places]
        return measure_choice(name, rows[places], chosen, target=target, test=test, gamma=gamma, note=note)

    starts = np.cumsum([0, *(len(records) for records in owners)])
    largest = int(np.argmax(np.diff(starts)))
    count = min(count, len(rows))
    choices = [
        measure("uniform", _choose_uniformly(starts, count, stream), "as many of each owner, at random"),
        measure(
            "largest owner",
            starts[largest] + stream.permutation(int(np.diff(starts)[largest]))[:count],
            "at random from the largest owner alone",
        ),
        measure("greedy", herd_towards(rows, target, count, gamma), "exact kernel, sees everything: not private"),
    ]
    features = FourierFeatures.draw(rows.shape[1], _FEATURES, gamma, stream)
    by_features = herd_features(features(rows), features(target).mean(axis=0), count)
    note = f"{_FEATURES} random features, sees everything: not private"
    choices.append(measure("greedy, features", by_features, note))
    weighed = _choose_by_classifier(rows, target, count, stream)
    choices.append(measure("classifier weights", weighed, "drawn by odds of a pooled logistic classifier: not private"))
    return choices


def _choose_uniformly(starts: NDArray[Any], count: int, stream: Stream) -> NDArray[np.int64]:
    sizes = np.diff(starts)
    each = [count // len(sizes) + (place < count % len(sizes)) for place in range(len(sizes))]
    taken = [starts[k] + stream.permutation(int(sizes[k]))[: each[k]] for k in range(len(sizes))]
    return np.concatenate(taken).astype(np.int64)


def _choose_by_classifier(rows: Floats, target: Floats, count: int, stream: Stream) -> NDArray[np.int64]:
    from sklearn.linear_model import LogisticRegression

    some = stream.permutation(len(rows))[:_MAX_FITTED]
    both = np.concatenate([rows[some], target])
    side = np.concatenate([np.zeros(len(some)), np.ones(len(target))])
    model = LogisticRegression(max_iter=200).fit(both, side)
    odds = np.exp(np.clip(model.decision_function(rows), -30, 30))
    # A draw without replacement in proportion to the odds (Efraimidis and Spirakis).
    keys = np.log(stream.uniform(len(rows))) / odds
    return np.argsort(-keys, kind="stable")[:count].astype(np.int64)


# The figures of a simulation: MMD² to the consumer's records, and a classifier on test records.

MEASURE = "MMD² to the consumer's records"
# The most columns on a page, and the cells of a number.
_MAX_COLUMNS, _NUMBER_CELLS = 9, 5


def assess(presented: Any, train: Sequence[Records] | None, test: Records) -> Assessment:
    """Measure records, or owners' records under their weights. Hashes are not measured: comparing them with records
    takes the seed, which only consumer and owners have."""
    if isinstance(presented, BoughtRecords) and presented.setting is not None:
        return _assess_records(presented, train, test)
    if isinstance(presented, RatioWeights) and presented.setting is not None and train is not None:
        return _assess_weights(presented, train)
    return Assessment()


def _assess_records(presented: BoughtRecords, train: Sequence[Records] | None, test: Records) -> Assessment:
    setting = presented.setting
    assert setting is not None
    consumer = test if train is None else train[setting.consumer]
    target, gamma = consumer.features, setting.gamma
    ours = measure_choice("summary", presented.rows, presented.labels, target=target, test=test, gamma=gamma)
    others: list[Measured] = []
    figures = []
    if train is not None:
        owners = [train[place] for place in setting.owners]
        others = compare_choices(owners, consumer, test, count=len(presented), gamma=gamma)
        before = mmd2(np.concatenate([records.features for records in owners]), target, gamma)
        figures.append(Figure("MMD² before", before, "between all records of the owners and the consumer's"))
    if ours.accuracy is not None:
        figures.append(
            Figure("accuracy", ours.accuracy, "of a linear classifier trained on the summary, on test records")
        )
    rows = tuple((one.name, one.mmd2, one.accuracy, one.note) for one in (ours, *others))
    grid = Grid(("choice", MEASURE, "accuracy", "how"), rows, f"{len(presented)} records each.")
    plots = () if presented.schema is None or presented.image else (_draw_marginals(presented, target),)
    section = Section("Compared with other choices", (), plots, (grid,))
    baselines = tuple(Baseline(one.name, one.mmd2, note=one.note) for one in others)
    return Assessment(ours.mmd2, MEASURE, baselines, tuple(figures), (section,))


def _assess_weights(presented: RatioWeights, train: Sequence[Records]) -> Assessment:
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


def _draw_marginals(presented: BoughtRecords, target: Floats) -> Panels:
    """The shares of each column's cells, among the bought records and among the consumer's."""
    assert presented.schema is not None
    encoding = Encoding(presented.schema, scaling="unit")
    panels = []
    for column, group in list(zip(presented.schema.columns, encoding.bounds.groups))[:_MAX_COLUMNS]:
        part = slice(group.start, group.stop)
        if group.one_hot:
            names = tuple(name.partition("=")[2] for name in encoding.names[part])
            shares = [tuple(map(float, rows[:, part].mean(axis=0))) for rows in (presented.rows, target)]
        else:
            edges = np.linspace(0, 1, _NUMBER_CELLS + 1)
            names = tuple(f"to {edge:.0%} of its range" for edge in edges[1:])
            shares = [_histogram(rows[:, group.start], edges) for rows in (presented.rows, target)]
        panels.append(Panel(column.name, names, shares[0], shares[1]))
    return Panels("Chosen records and the consumer's", ("chosen", "consumer"), tuple(panels))


def _histogram(values: Floats, edges: Floats) -> tuple[float, ...]:
    counts, _ = np.histogram(np.clip(values, 0, 1), edges)
    return tuple(float(count) / max(1, len(values)) for count in counts)


# How good bought records are for the consumer: a linear classifier learns from them and predicts the consumer's own
# records. The figure is for the consumer only.

# The ridge penalty per record: small, and enough for columns that repeat each other.
_RIDGE = 1e-3


def score_bought(presented: Any, records: LocalRecords) -> OwnScore | None:
    """None for hashes and weights, and where records have no classes."""
    if not isinstance(presented, BoughtRecords) or presented.labels is None or not len(presented):
        return None
    if presented.labels.dtype.kind not in "iu":
        return None
    bought = presented.labels.astype(np.int64)
    own = [np.asarray(block.labels, np.int64) for block in records.blocks() if block.labels is not None and len(block)]
    if not own:
        return None
    # Classes are the labels that occur: without a schema, an owner's label may be any number.
    labels = np.unique(np.concatenate([bought, *own]))
    rows, target = _append_constant(presented.rows), np.eye(len(labels))[np.searchsorted(labels, bought)]
    weights = np.linalg.solve(rows.T @ rows + _RIDGE * len(rows) * np.eye(rows.shape[1]), rows.T @ target)
    counts, wrong = (np.zeros(len(labels), np.int64) for _ in range(2))
    for block in records.blocks():
        truth = np.searchsorted(labels, np.asarray(block.labels, np.int64))
        predicted = (_append_constant(block.features) @ weights).argmax(axis=1)
        counts += np.bincount(truth, minlength=len(labels))
        wrong += np.bincount(truth[predicted != truth], minlength=len(labels))
    return score_classes(counts, wrong)


def _append_constant(rows: Floats) -> Floats:
    return np.column_stack([rows, np.ones(len(rows))])

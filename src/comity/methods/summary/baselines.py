"""What a consumer would have otherwise: choices that see everything, and choices that see nothing. Simulation only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.entropy import Stream
from comity.methods.summary.features import FourierFeatures
from comity.methods.summary.herding import herd_features, herd_towards
from comity.methods.summary.mmd import mmd2

Floats = NDArray[np.float64]

# Features of the greedy choice that has no exact kernel: as many as the published method.
_FEATURES = 140
# A pooled classifier learns from so many records at most: a limit of time.
_FITTED = 20_000


@dataclass(frozen=True)
class Measured:
    """MMD² to the consumer's records and, where there are labels, a linear classifier's share of right answers."""

    name: str
    mmd2: float
    accuracy: float | None
    note: str = ""


def measured(
    name: str, rows: Floats, labels: Any, *, target: Floats, test: Records, gamma: float, note: str = ""
) -> Measured:
    return Measured(name, mmd2(rows, target, gamma), accuracy(rows, labels, test, gamma), note)


def accuracy(rows: Floats, labels: NDArray[Any] | None, test: Records, gamma: float) -> float | None:
    """Of a linear support vector machine (C = 1) on rows scaled so that the kernel has γ = 0.1, as in the paper's
    experiments; None where there are no classes."""
    if labels is None or test.labels is None or not len(test) or np.asarray(labels).dtype.kind != "i":
        return None
    classes = np.unique(labels)
    if len(classes) < 2:
        return float((test.labels == classes[0]).mean()) if len(classes) else None
    from sklearn.svm import LinearSVC

    scale = np.sqrt(gamma / 0.1)
    model = LinearSVC(C=1.0, random_state=0, max_iter=5000).fit(rows * scale, labels)
    return float(model.score(test.features * scale, test.labels))


def compared(
    owners: Sequence[Records], consumer: Records, test: Records, *, count: int, gamma: float, label: str = "baselines"
) -> list[Measured]:
    """p records by uniform sampling, of the largest owner alone, by greedy choices and by a pooled classifier."""
    rows = np.concatenate([records.features for records in owners])
    known = [records.labels for records in owners]
    labels = np.concatenate([np.asarray(one) for one in known]) if all(one is not None for one in known) else None
    target, stream = consumer.features, Stream.public("summary", label)

    def of(name: str, places: Any, note: str) -> Measured:
        chosen = None if labels is None else labels[places]
        return measured(name, rows[places], chosen, target=target, test=test, gamma=gamma, note=note)

    starts = np.cumsum([0, *(len(records) for records in owners)])
    largest = int(np.argmax(np.diff(starts)))
    count = min(count, len(rows))
    found = [
        of("uniform", _uniform(starts, count, stream), "as many of each owner, at random"),
        of(
            "largest owner",
            starts[largest] + stream.permutation(int(np.diff(starts)[largest]))[:count],
            "at random from the largest one alone",
        ),
        of("greedy", herd_towards(rows, target, count, gamma), "exact kernel, sees everything: not private"),
    ]
    features = FourierFeatures.drawn(rows.shape[1], _FEATURES, gamma, stream)
    by_features = herd_features(features(rows), features(target).mean(axis=0), count)
    found.append(of("greedy, features", by_features, f"{_FEATURES} random features, sees everything: not private"))
    weighed = _by_classifier(rows, target, count, stream)
    found.append(of("classifier weights", weighed, "drawn by odds of a pooled logistic classifier: not private"))
    return found


def _uniform(starts: NDArray[Any], count: int, stream: Stream) -> NDArray[np.int64]:
    sizes = np.diff(starts)
    each = [count // len(sizes) + (place < count % len(sizes)) for place in range(len(sizes))]
    taken = [starts[k] + stream.permutation(int(sizes[k]))[: each[k]] for k in range(len(sizes))]
    return np.concatenate(taken).astype(np.int64)


def _by_classifier(rows: Floats, target: Floats, count: int, stream: Stream) -> NDArray[np.int64]:
    from sklearn.linear_model import LogisticRegression

    some = stream.permutation(len(rows))[:_FITTED]
    both = np.concatenate([rows[some], target])
    side = np.concatenate([np.zeros(len(some)), np.ones(len(target))])
    model = LogisticRegression(max_iter=200).fit(both, side)
    odds = np.exp(np.clip(model.decision_function(rows), -30, 30))
    # Without replacement, in proportion to the odds (Efraimidis and Spirakis).
    keys = np.log(stream.uniform(len(rows))) / odds
    return np.argsort(-keys, kind="stable")[:count].astype(np.int64)

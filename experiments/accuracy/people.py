"""Soft labels between 24 people of 60 records each, beside PATE: six activities from 561 features.

A whole person is protected. The other six people's records are the public rows, without labels, and the test rows.
`pate` says what PATE is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity import SoftLabel
from comity.data import Classes, Encoding, Numeric, Schema, dataset
from comity.entropy import Stream
from comity.privacy import SeededNoise
from experiments.accuracy.pate import best_students, constant, local_votes
from experiments.papers.softlabel.default import Layout, contributions, mean_votes
from experiments.papers.softlabel.release import DELTA, make_consortium, noisy_means, opened, total

PEOPLE, RECORDS, PUBLIC = 24, 60, 1000
EPSILONS = (1.0, 3.0, 10.0)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Size:
    splits: int
    draws: int


def run(*, quick: bool, out: Path | None = None) -> list[dict[str, Any]]:
    """A row for each epsilon. COMITY_DATA names the folder of the data."""
    size = Size(1, 5) if quick else Size(6, 10)
    with threadpool_limits(1, user_api="blas"):
        layouts = [deal(split) for split in range(size.splits)]
        votes = [local_votes(layout) for layout in layouts]
        return [_row(layouts, votes, epsilon, size.draws) for epsilon in EPSILONS]


def deal(split: int) -> Layout:
    """People drawn by public randomness: 24 to learn from, half of the others' records public, half to test on."""
    frame = dataset("har_smartphone_rederived")
    frame = frame.assign(activity=frame["activity"].astype(str))
    numbers = [str(name) for name in frame.columns if name not in ("activity", "split", "subject")]
    classes = tuple(sorted(set(frame["activity"])))
    schema = Schema(tuple(Numeric(name, -1, 1) for name in numbers), Classes("activity", classes))
    records = Encoding(schema, scaling="symmetric", rows="scaled", intercept=True).encode(frame, where="people").records
    rows, labels, owner = records.features, np.asarray(records.labels, np.int64), frame["subject"].to_numpy()
    stream = Stream.public("people", str(split))
    order = np.unique(owner)[stream.permutation(len(np.unique(owner)))]
    places = [np.flatnonzero(owner == one) for one in order[:PEOPLE]]
    own = np.stack([place[stream.permutation(len(place))][:RECORDS] for place in places])
    others = np.flatnonzero(np.isin(owner, order[PEOPLE:]))
    others = others[stream.permutation(len(others))]
    public, test = others[: len(others) // 2][:PUBLIC], others[len(others) // 2 :]
    return Layout(rows[own], labels[own], rows[public], rows[test], labels[test], classes)


def ours(layout: Layout, epsilon: float, draws: int, seed: int) -> tuple[list[float], str]:
    """Accuracies of the default with fresh noise, and the statistic that it takes."""
    protocol = SoftLabel.over_rows(auxiliary=layout.auxiliary, classes=layout.classes, sizes=RECORDS)
    consortium = make_consortium(layout.parties, epsilon, DELTA)
    statistic, release = opened(protocol, consortium)
    shares = mean_votes(layout) if statistic.needs == "votes" else None
    units = total(release, contributions(layout, statistic, shares), consortium)
    found, deviation = [], protocol.deviation(consortium)
    for mean in noisy_means(release, units, consortium, SeededNoise(seed), draws):
        found.append(layout.accuracy(statistic.map(layout.test), statistic.model(mean, deviation)))
    return found, statistic.name


def _row(layouts: list[Layout], votes: list[Floats], epsilon: float, draws: int) -> dict[str, Any]:
    runs = [ours(layout, epsilon, draws, split) for split, layout in enumerate(layouts)]
    accuracies = np.concatenate([found for found, _ in runs])
    queries, student = best_students(layouts, votes, epsilon, draws)
    return {
        "case": f"people K={PEOPLE} n={RECORDS} eps={epsilon:g}",
        "ours": float(accuracies.mean()),
        "spread": float(np.mean([np.std(found) for found, _ in runs])),
        "worst": float(accuracies.min()),
        "pate": student,
        "queries": queries,
        "constant": float(np.mean([constant(layout) for layout in layouts])),
        "statistic": runs[0][1],
        "repeats": len(accuracies),
        "note": "accuracy; spread: mean over splits of the deviation over draws of the noise",
    }

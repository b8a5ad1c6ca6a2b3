"""How near three columns of a synthetic dataset are to the records, and trees that learn from it.

Every run has another split, five owners with one colluder and unseeded noise, on four fifths of the records. Distances
are means over 200 triples of columns, in the cells of the schema; records drawn again with replacement are as far as
chance alone. Run it by `python -m experiments.accuracy.three_way EPSILON RUNS [NAME ...]`. Needs COMITY_DATA.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Records, split_evenly
from comity.entropy import Stream
from comity.methods.synthetic import Synthetic, SyntheticProtocol, Task
from comity.protocol import RunOptions, Terms, simulate
from experiments.papers.synthetic.datasets import SOURCES

OWNERS, DELTA, TRIPLES = 5, 1e-6, 200
NAMES = ("Census", "Credit", "Bike")
Integers = NDArray[np.int64]


def measure(name: str, epsilon: float, run: int) -> dict[str, float]:
    source = next(one for one in SOURCES if one.name == name)
    frame = source.read()
    order = Stream.public("three-way", name, run).permutation(len(frame))
    test, train = (frame.iloc[part].reset_index(drop=True) for part in np.split(order, [len(order) // 5]))
    method = Synthetic(source.schema, rows=round(len(train), -3), edges="equal").protocol()
    assert isinstance(method, SyntheticProtocol)
    records, tested = (method.encoding.encode(one).records for one in (train, test))
    dealt = split_evenly(len(records), OWNERS, Stream.public("three-way owners", run))
    held = {f"owner-{place}": _take(records, rows) for place, rows in enumerate(dealt)}
    found = simulate(
        method,
        parties=held,
        epsilon=epsilon,
        delta=DELTA,
        unit="record",
        terms=Terms(schema=method.schema, neighbours="add-remove", colluders=1),
        options=RunOptions(baselines=False),
    )
    made = method.encoding.encode(found.presented.frame, where="the dataset").records
    again = _take(records, (Stream.public("drawn again", run).uniform(len(records)) * len(records)).astype(int))
    task, sizes = Task(method.cells), method.cells.layout.sizes
    true = records.features.astype(np.int64)
    return {
        "three-way": three_way(made.features.astype(np.int64), true, sizes),
        "drawn again": three_way(again.features.astype(np.int64), true, sizes),
        "trees": _trees(task, made, tested),
        "trees on records": _trees(task, records, tested),
        "linear": _linear(task, made, tested),
    }


def three_way(one: Integers, other: Integers, sizes: Sequence[int]) -> float:
    keys = list(combinations(range(len(sizes)), 3))
    chosen = Stream.public("choose synthetic", "triples").permutation(len(keys))[:TRIPLES]
    return float(np.mean([_distance(one, other, keys[place], sizes) for place in chosen]))


def _distance(one: Integers, other: Integers, key: tuple[int, ...], sizes: Sequence[int]) -> float:
    shape = tuple(sizes[k] for k in key)

    def shares(codes: Integers) -> NDArray[np.float64]:
        place = np.ravel_multi_index(tuple(codes[:, k] for k in key), shape)
        return np.bincount(place, minlength=int(np.prod(shape))) / len(codes)

    return float(np.abs(shares(one) - shares(other)).sum() / 2)


def _take(records: Records, rows: Any) -> Records:
    assert records.labels is not None
    return Records(records.features[rows], np.asarray(records.labels)[rows])


def _score(task: Task, error: float, tested: Records) -> float:
    if task.classified:
        return 1 - error
    return 1 - error / float(np.var(task.make_examples(tested, most=len(tested)).targets))


def _trees(task: Task, learned: Records, tested: Records) -> float:
    both = (task.make_examples(one, most=len(one)) for one in (learned, tested))
    return _score(task, task.tree_error(*both)[0], tested)


def _linear(task: Task, learned: Records, tested: Records) -> float:
    both = (task.make_examples(one, most=len(one)) for one in (learned, tested))
    return _score(task, task.linear_error(*both), tested)


def main(epsilon: float, runs: int, names: Sequence[str]) -> None:
    for name in names:
        found = [measure(name, epsilon, run) for run in range(runs)]
        means = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
        ratio = means["three-way"] / means["drawn again"]
        print(name, f"epsilon {epsilon:g}", {key: round(one, 4) for key, one in means.items()}, f"{ratio:.2f} x")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or NAMES)

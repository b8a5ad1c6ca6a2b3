"""Synthetic data of many owners beside MST and AIM, which a curator with all records would run, on Adult, equal (ε, δ).

Ours is a whole run in the local runtime: 100 owners, hosts, ledgers, masks, noise by the exact sampler, a record that
comes or goes, one colluder. The anchors get the same cells of the same training records in one place. What each made is
judged alike on the tenth of the records that nobody trained on: the error of logistic regression and of boosted trees
that saw synthetic records alone, and how far pairs of columns are from those of the training records. Seconds are of
CPU. One split: the anchors take minutes for each release. Needs COMITY_DATA.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Records, dataset, split_evenly
from comity.entropy import Stream
from comity.methods.synthetic import Examples, Synthetic, SyntheticProtocol, Task, total_variation
from comity.protocol import RunOptions, Terms, simulate
from experiments.bench.methods.synthetic_anchors import ABSENT, Anchor, anchors
from experiments.data.adult import census_schema

Integers = NDArray[np.int64]

EPSILONS, DELTA, OWNERS = (1.0, 0.5, 0.1), 1e-6, 100
MEASURES = {"logistic error": "test error", "tree error": "test error", "two-way TV": "share", "time": "CPU s"}


@dataclass(frozen=True, eq=False)
class Split:
    """Cells of training and test records, the target's last, and the method that reads them."""

    method: SyntheticProtocol
    train: Records
    test: Records

    @classmethod
    def of(cls, method: SyntheticProtocol, records: Records) -> Split:
        order = Stream.public("bench synthetic", 0).permutation(len(records))
        test, train = np.split(order, [len(order) // 10])
        return cls(method, _rows(records, train), _rows(records, test))

    @property
    def task(self) -> Task:
        return Task(self.method.cells)

    def judged(self, codes: Integers, seconds: float) -> dict[str, float]:
        """By the name of each measure."""
        learned, test = self._examples(Records(codes.astype(np.float64), codes[:, -1])), self._examples(self.test)
        return {
            "logistic error": self.task.linear_error(learned, test),
            "tree error": self.task.tree_error(learned, test)[0],
            "two-way TV": total_variation(self.task.counting, codes, self.train.features.astype(np.int64), 2),
            "time": seconds,
        }

    def _examples(self, records: Records) -> Examples:
        return self.task.make_examples(records, most=len(records))


def measure() -> list[dict[str, Any]]:
    """A row for each ε, measure and anchor; without the anchors, ours alone."""
    frame = dataset("adult")
    method = Synthetic(census_schema(), rows=49_000).protocol()
    assert isinstance(method, SyntheticProtocol)
    split = Split.of(method, method.encoding.encode(frame).records)
    return [row for epsilon in EPSILONS for row in compared(split, epsilon, OWNERS, anchors())]


def compared(split: Split, epsilon: float, owners: int, others: Mapping[str, Anchor]) -> list[dict[str, Any]]:
    codes, seconds = ours(split, epsilon, owners)
    reached = split.judged(codes, seconds)
    if not others:
        return [_row(epsilon, measure, reached[measure], None, None, ABSENT) for measure in MEASURES]
    rows = []
    for name, anchor in others.items():
        started = process_time()
        made = anchor(split.train.features.astype(np.int64), split.task.counting.layout.sizes, epsilon, DELTA)
        theirs = split.judged(made, process_time() - started)
        note = f"{owners} owners, t=1; {name} of OpenDP by one curator, under zCDP"
        rows += [_row(epsilon, measure, reached[measure], name, theirs[measure], note) for measure in MEASURES]
    return rows


def ours(split: Split, epsilon: float, owners: int) -> tuple[Integers, float]:
    """Cells of a released dataset, and the CPU of the whole run, of all owners together."""
    dealt = split_evenly(len(split.train), owners, Stream.public("bench", "synthetic", "owners"))
    held = {f"owner-{place:03d}": _rows(split.train, rows) for place, rows in enumerate(dealt)}
    started = process_time()
    found = simulate(
        split.method,
        parties=held,
        epsilon=epsilon,
        delta=DELTA,
        unit="record",
        terms=Terms(schema=split.method.schema, neighbours="add-remove"),
        options=RunOptions(baselines=False),
    )
    frame = found.presented.frame
    seconds = process_time() - started
    made = split.method.encoding.encode(frame, where="the dataset").records
    return made.features.astype(np.int64), seconds


def _rows(records: Records, rows: Any) -> Records:
    assert records.labels is not None
    return Records(records.features[rows], records.labels[rows])


def _row(
    epsilon: float, measure: str, reached: float, name: str | None, anchor: float | None, note: str
) -> dict[str, Any]:
    return {
        "case": f"eps={epsilon:g}, {measure}",
        "ours": reached,
        "anchor": anchor,
        "anchor_name": name,
        "ratio": reached / anchor if anchor else None,
        "unit": MEASURES[measure],
        "repeats": 1,
        "spread": 0.0,
        "better": "lower",
        "note": note,
    }

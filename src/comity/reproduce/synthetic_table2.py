"""Table 2 of Fioretto and Van Hentenryck (2019): the error of what is learned from released data, at ε = 1, 0.5, 0.1.

A tenth of the records is for testing. Rows: a constant, all records without privacy, and the default by rows: one
release of all owners' counts, unseeded noise, add/remove, δ = 1e-6, one colluder. Learners see cells, one-hot: logistic
regression (share of errors) or ridge (mean squared error with the target on [−1, 1]). The paper's figures stand beside;
many of them are worse than a constant. Splits and draws of the noise both vary.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from comity.data import Records, even
from comity.entropy import Stream, fresh_seed
from comity.federation.consortium import Consortium
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.randomness import ReleasedNoise
from comity.privacy.unit import Neighbours, Unit
from comity.protocols.synthetic import SyntheticData
from comity.protocols.synthetic.artefact import SyntheticDataset
from comity.protocols.synthetic.downstream import Task
from comity.protocols.synthetic.fidelity import total_variation
from comity.reproduce.synthetic_datasets import SOURCES, Source
from comity.runtime.local.cohort import Cohort
from comity.runtime.simulate import stacks

EPSILONS = (1.0, 0.5, 0.1)
DELTA = 1e-6
# Splits, draws of the noise for each, and whether trees are tried: five datasets in full take about ten minutes.
FULL, QUICK = (5, 2), (1, 1)


@dataclass(frozen=True, eq=False)
class Split:
    train: Records
    test: Records


def run(*, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    return [row for source in SOURCES for row in rows_of(source, *(QUICK if quick else FULL))]


def rows_of(source: Source, splits: int, draws: int) -> Iterator[dict[str, Any]]:
    frame = source.read()
    method = SyntheticData(schema=source.schema, rows=_round(len(frame)))
    task = Task(method.cells)
    records = method.encoding.encode(frame, where=source.name).records
    parts = [_split(records, source.name, number) for number in range(splits)]
    for name, measure in (("constant", task.constant), ("non-private", task.linear)):
        errors = [measure(_all(task, one.train), _all(task, one.test)) for one in parts]
        yield _row(source, name, None, errors)
    for place, epsilon in enumerate(EPSILONS):
        found: list[dict[str, float]] = []
        for one in parts:
            found += [measured(method, task, one, epsilon, source.owners) for _ in range(draws)]
        row = _row(source, "default", epsilon, [each["error"] for each in found])
        for figure in ("trees", "two-way TV", "CPU seconds"):
            row[figure] = fmean(each[figure] for each in found)
        yield {**row, "paper": source.paper[place]}


def measured(method: SyntheticData, task: Task, split: Split, epsilon: float, owners: int) -> dict[str, float]:
    started = time.process_time()
    frame = released(method, split.train, epsilon, owners).frame
    seconds = time.process_time() - started
    made = method.encoding.encode(frame, where="the dataset").records
    learned, tested = _all(task, made), _all(task, split.test)
    codes = [one.features.astype(np.int64) for one in (made, split.train)]
    return {
        "error": task.linear(learned, tested),
        "trees": task.trees(learned, tested)[0],
        "two-way TV": total_variation(task.counting, codes[0], codes[1], 2),
        "CPU seconds": seconds,
    }


def released(method: SyntheticData, train: Records, epsilon: float, owners: int) -> SyntheticDataset:
    """Of owners with an even share of the records: contributions and noise as released, masks left out because they
    cancel."""
    who = Consortium(
        parties=tuple(f"owner-{number:03d}" for number in range(owners)),
        loss=Approx(epsilon, DELTA),
        unit=Unit.RECORD,
        neighbours=Neighbours.ADD_REMOVE,
        colluders=1,
    )
    dealt = even(len(train), owners, Stream(fresh_seed()))
    held = [_rows(train, rows) for rows in dealt]
    cohort = Cohort(
        method,
        who,
        blocks=lambda most: stacks(held, most),
        noise=ReleasedNoise(),
        ledger=Ledger.in_memory(unit=who.unit, neighbours=who.neighbours),
        study="table 2",
        run="run",
    )
    return method.present(cohort.released(), who)


def _split(records: Records, name: str, number: int) -> Split:
    order = Stream.public("table 2", name, number).permutation(len(records))
    tested = len(records) // 10
    return Split(_rows(records, order[tested:]), _rows(records, order[:tested]))


def _rows(records: Records, rows: Any) -> Records:
    assert records.labels is not None
    return Records(records.features[rows], records.labels[rows])


def _all(task: Task, records: Records) -> Any:
    return task.examples(records, most=len(records))


def _round(count: int) -> int:
    """Two digits: what a study would declare."""
    unit = int(10 ** (len(str(count)) - 2))
    return round(count / unit) * unit


def _row(source: Source, method: str, epsilon: float | None, errors: list[float]) -> dict[str, Any]:
    return {
        "dataset": source.name,
        "method": method,
        "epsilon": epsilon,
        "error": fmean(errors),
        "spread": pstdev(errors),
        "runs": len(errors),
    }

"""Averaging by gradients over records in memory, against scikit-learn's fit on all of them in one place.

Ours counts the processor time of all parties and the coordinator in one process: bounds, 24 sums over every record,
masks, noise, signatures, journal and ledgers. The anchors are LogisticRegression with its defaults on the pooled
records, which are neither private nor apart: on the rows that ours takes, which are in the unit ball and end in a
constant, and on the numbers as they were before, of which it needs fewer rounds. BLAS has one thread, and the process
one processor. Compiled functions are loaded before. `growth` rows give the exponent of ours between two numbers of
records, of features and of parties; each says what it holds still.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from comity import Averaging
from comity.data import LocalRecords, Records
from comity.entropy import Stream
from comity.protocol import RunOptions, simulate
from experiments.bench import processors
from experiments.bench.growth import growth_row

PARTIES, COLUMNS = 5, 20

Parties = dict[str, LocalRecords]


def measure(*, rows: int = 200_000, repeats: int = 3) -> list[dict[str, Any]]:
    """Rows: processor seconds of a run of five parties with so many records each, and how they grow."""
    few = max(1000, rows // 10)
    with threadpool_limits(1, user_api="blas"), processors.limited(1):
        _ours(_records(100))
        many = _records(rows)
        runs = [(_ours(many), _anchor(many, 1.0), _anchor(many, np.sqrt(COLUMNS + 1))) for _ in range(repeats)]
        ours = median(cpu for (cpu, _), _, _ in runs)
        by_records = [_cost(_records(few), repeats), ours]
        by_features = [by_records[0], _cost(_records(few, columns=4 * COLUMNS), repeats)]
        by_parties = [by_records[0], _cost(_records(few, parties=4 * PARTIES), repeats)]
    case, wall = f"default logistic {PARTIES}x{rows}x{COLUMNS}", median(wall for (_, wall), _, _ in runs)
    counted = "all parties and the coordinator"
    note = f"{counted}, {wall:.2f} s on the clock; anchor: scikit-learn's fit on the pooled records"
    return [
        _row(case, [(cpu, pooled) for (cpu, _), pooled, _ in runs], note),
        _row(
            f"{case}, against raw numbers",
            [(cpu, raw) for (cpu, _), _, raw in runs],
            f"{note}, whose numbers are as they were before they were encoded and have no constant",
        ),
        growth_row(
            f"records {PARTIES}x{few} to {rows}",
            [few, rows],
            by_records,
            f"{counted}; a run without records takes most of the first",
        ),
        growth_row(
            f"features {PARTIES}x{few}x{COLUMNS} to {4 * COLUMNS}", [COLUMNS, 4 * COLUMNS], by_features, counted
        ),
        growth_row(
            f"parties {PARTIES}x{few} to {4 * PARTIES}x{few}",
            [PARTIES, 4 * PARTIES],
            by_parties,
            f"{counted}, as many records each; every party takes part in every sum",
        ),
    ]


def _row(case: str, pairs: list[tuple[float, float]], note: str) -> dict[str, Any]:
    ratios = [ours / anchor for ours, anchor in pairs]
    return {
        "case": case,
        "ours": median(ours for ours, _ in pairs),
        "anchor": median(anchor for _, anchor in pairs),
        "ratio": median(ratios),
        "spread": max(ratios) - min(ratios),
        "unit": "s of processor time",
        "note": note,
        "repeats": len(pairs),
    }


def _records(rows: int, *, columns: int = COLUMNS, parties: int = PARTIES) -> Parties:
    streams = {f"p{place}": Stream.public("bench", "averaging pooled", place) for place in range(parties)}
    return {name: _drawn(stream, rows, columns) for name, stream in streams.items()}


def _drawn(stream: Stream, rows: int, columns: int) -> Records:
    numbers: NDArray[np.float64] = 2 * stream.uniform((rows, columns)) - 1
    labels = (numbers[:, :3].sum(axis=1) + 2 * stream.uniform(rows) > 1).astype(np.int64)
    return Records(np.column_stack([numbers, np.ones(rows)]) / np.sqrt(columns + 1), labels)


def _ours(parties: Parties) -> tuple[float, float]:
    """Seconds of the processor, and on the clock."""
    width = next(iter(parties.values())).features.shape[1]
    built = Averaging.over_rows(
        features=width, sizes={name: len(one) for name, one in parties.items()}, solver="gradient"
    )
    started, clock = process_time(), perf_counter()
    simulate(built, parties=parties, epsilon=1.0, delta=1e-6, unit="record", options=RunOptions(baselines=False))
    return process_time() - started, perf_counter() - clock


def _cost(parties: Parties, repeats: int) -> float:
    return median(_ours(parties)[0] for _ in range(repeats))


def _anchor(parties: Parties, length: float) -> float:
    """`length` is what rows are multiplied by; above 1 their constant is left out."""
    stop = None if length == 1.0 else -1
    features = np.concatenate([length * one.features[:, :stop] for one in parties.values()])
    labels = np.concatenate([np.asarray(one.labels) for one in parties.values()])
    started = process_time()
    LogisticRegression().fit(features, labels)
    return process_time() - started

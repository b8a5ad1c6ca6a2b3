"""Averaging by gradients over records in memory, against scikit-learn's fit on all of them in one place.

Ours counts the processor time of all parties and the coordinator in one process: bounds, 24 sums over every record,
masks, noise, signatures, journal and ledgers. The anchor is LogisticRegression with its defaults on the pooled records,
which are neither private nor apart. BLAS has one thread. Compiled functions are loaded before. The `growth` row gives
the exponent of ours between two numbers of records.
"""

from __future__ import annotations

from math import log
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from comity import Averaging
from comity.data import LocalRecords, Records
from comity.entropy import Stream
from comity.protocol import RunOptions, simulate

PARTIES, COLUMNS = 5, 20


def measure(*, rows: int = 200_000, repeats: int = 3) -> list[dict[str, Any]]:
    """Rows: processor seconds of a run of five parties with so many records each, and how they grow with records."""
    with threadpool_limits(1, user_api="blas"):
        few, many = _records(max(1000, rows // 10)), _records(rows)
        small = [_ours(few) for _ in range(repeats + 1)][1:]
        pairs = [(_ours(many), _anchor(many)) for _ in range(repeats)]
    ratios = [ours / anchor for ours, anchor in pairs]
    least, most = median(small), median(ours for ours, _ in pairs)
    factor = len(many["p0"]) / len(few["p0"])
    return [
        {
            "case": f"default logistic {PARTIES}x{rows}x{COLUMNS}",
            "ours": most,
            "anchor": median(anchor for _, anchor in pairs),
            "ratio": median(ratios),
            "spread": max(ratios) - min(ratios),
            "unit": "s of processor time",
            "note": "all parties and the coordinator; anchor: scikit-learn's fit on the pooled records",
            "repeats": repeats,
        },
        {
            "case": f"growth with records {PARTIES}x{len(few['p0'])} to {rows}",
            "ours": log(most / least) / log(factor),
            "anchor": 1.0,
            "ratio": log(most / least) / log(factor),
            "unit": "exponent",
            "note": f"{least:.2f} s and {most:.2f} s; a run without records takes most of the first",
            "repeats": repeats,
        },
    ]


def _records(rows: int) -> dict[str, LocalRecords]:
    return {f"p{place}": _drawn(Stream.public("bench", "averaging pooled", place), rows) for place in range(PARTIES)}


def _drawn(stream: Stream, rows: int) -> Records:
    numbers: NDArray[np.float64] = 2 * stream.uniform((rows, COLUMNS)) - 1
    labels = (numbers[:, :3].sum(axis=1) + 2 * stream.uniform(rows) > 1).astype(np.int64)
    return Records(np.column_stack([numbers, np.ones(rows)]) / np.sqrt(COLUMNS + 1), labels)


def _ours(parties: dict[str, LocalRecords]) -> float:
    built = Averaging.over_rows(
        features=COLUMNS + 1, sizes={name: len(one) for name, one in parties.items()}, solver="gradient"
    )
    started = process_time()
    simulate(built, parties=parties, epsilon=1.0, delta=1e-6, unit="record", options=RunOptions(baselines=False))
    return process_time() - started


def _anchor(parties: dict[str, LocalRecords]) -> float:
    features = np.concatenate([one.features for one in parties.values()])
    labels = np.concatenate([np.asarray(one.labels) for one in parties.values()])
    started = process_time()
    LogisticRegression().fit(features, labels)
    return process_time() - started

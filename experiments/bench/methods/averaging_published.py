"""The published average, all three stages for real, beside the same model computed in one place."""

from __future__ import annotations

from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from comity.data import Records
from comity.entropy import Stream
from comity.learn import fit_logistic
from comity.methods.averaging import Averaging
from comity.protocol import RunOptions, Terms, simulate

_L2 = 0.1


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """Seconds of a whole run over hosts, keys and noise as released; the anchor fits and adds up the models alone."""
    sizes = [(3, 12, 2048)] if quick else [(5, 124, 2048), (50, 20, 2048)]
    return [_row(parties, width, bits, repeats=1 if quick else 3) for parties, width, bits in sizes]


def _row(parties: int, width: int, bits: int, repeats: int) -> dict[str, Any]:
    records = {f"party-{place}": _records(200 + 10 * place, width, place) for place in range(parties)}
    method = Averaging.published_over_rows(width=width, l2=_L2, key_bits=bits)
    seconds, anchors, processor = [], [], []
    for _ in range(repeats):
        started, began = perf_counter(), process_time()
        simulate(
            method,
            parties=records,
            epsilon=1.0,
            unit="record",
            terms=Terms(colluders=0, name="bench averaging"),
            options=RunOptions(baselines=False),
        )
        seconds.append(perf_counter() - started)
        processor.append(process_time() - began)
        started = perf_counter()
        np.mean(
            [fit_logistic(one.features, np.asarray(one.labels, np.float64), _L2).weights for one in records.values()]
        )
        anchors.append(perf_counter() - started)
    ours, anchor = median(seconds), median(anchors)
    return {
        "case": f"{parties} parties, {width} weights, {bits} bits",
        "ours": ours,
        "anchor": anchor,
        "ratio": ours / anchor,
        "unit": "s",
        "cpu": median(processor),
        "repeats": repeats,
        "spread": max(seconds) - min(seconds),
        "better": "lower",
        "note": "wall seconds of the whole run; anchor: local fits and their mean in one place, without any protection",
    }


def _records(count: int, width: int, place: int) -> Records:
    stream = Stream.public("bench averaging published", place)
    rows = stream.normal((count, width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * (1 + 1e-12)
    labels = (rows[:, 0] + 0.3 * stream.normal((count,)) / np.sqrt(width) > 0).astype(np.int64)
    return Records(rows, labels)

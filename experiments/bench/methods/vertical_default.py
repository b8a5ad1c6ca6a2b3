"""The default vertical classifier, private rounds included, against scikit-learn's fit on the columns in one place.

Ours counts the processor time of all parties and the coordinator in one process: alignment by order, products, six
rounds, masks, noise, signatures, journal and ledgers. The anchor is LogisticRegression with its defaults, which is
neither private nor apart. BLAS has one thread, and compiled functions are loaded before. `megabytes` are those of the
transcript, which counts a letter to the coordinator and from there. Each row is measured in a process that does nothing
else, so `peak_gb` is its memory, records included. The `growth` row gives the exponent of ours between two numbers of
records.
"""

from __future__ import annotations

import resource
from concurrent.futures import ProcessPoolExecutor
from math import log
from multiprocessing import get_context
from statistics import median
from time import process_time
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from comity.data import Classes, Numeric, Records, Schema
from comity.entropy import Stream
from comity.methods.vertical import ProductMethod, Vertical, VerticalRegression
from comity.protocol import RunOptions, Terms, simulate

PARTIES, FEATURES = 2, 14
_WARM_ROWS = 300


def measure(*, rows: int = 100_000, repeats: int = 3) -> list[dict[str, Any]]:
    """Rows, for each way of computing products: a run over so many records, and how it grows with them."""
    found = []
    for products in get_args(ProductMethod):
        few, many = (_apart(products, count, repeats) for count in (max(2000, rows // 4), rows))
        least, most = median(few["ours"]), median(many["ours"])
        ratios = [ours / anchor for ours, anchor in zip(many["ours"], many["anchor"])]
        exponent = log(most / least) / log(many["rows"] / few["rows"])
        found += [
            {
                "case": f"default logistic {rows}x{FEATURES} {products}",
                "ours": most,
                "anchor": median(many["anchor"]),
                "ratio": median(ratios),
                "spread": max(ratios) - min(ratios),
                "unit": "s of processor time",
                "note": "all parties and the coordinator; anchor: scikit-learn's fit on the pooled columns",
                "repeats": repeats,
                "better": "lower",
                "megabytes": many["megabytes"],
                "peak_gb": many["peak_gb"],
            },
            {
                "case": f"growth with records {few['rows']} to {rows} {products}",
                "ours": exponent,
                "anchor": 1.0,
                "ratio": exponent,
                "unit": "exponent",
                "note": f"{least:.2f} s and {most:.2f} s",
                "repeats": repeats,
                "better": "lower",
            },
        ]
    return found


def _apart(products: ProductMethod, rows: int, repeats: int) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run, products, rows, repeats).result()


def run(products: ProductMethod, rows: int, repeats: int) -> dict[str, Any]:
    """Seconds of ours and of the anchor, megabytes sent and the peak of memory, in this process."""
    protocol, ours, anchors = _protocol(products), [], []
    with threadpool_limits(1, user_api="blas"):
        _simulate(protocol, *_drawn(_WARM_ROWS))
        columns, labels = _drawn(rows)
        for _ in range(repeats):
            started = process_time()
            sent = _simulate(protocol, columns, labels)
            ours.append(process_time() - started)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        for _ in range(repeats):
            started = process_time()
            LogisticRegression().fit(columns, labels)
            anchors.append(process_time() - started)
    return {"rows": rows, "ours": ours, "anchor": anchors, "megabytes": sent / 1e6, "peak_gb": peak}


def _protocol(products: ProductMethod) -> VerticalRegression:
    names = [f"x{place}" for place in range(FEATURES)]
    held = {f"p{party}": (*names[party::PARTIES], *(("y",) * (party == 0))) for party in range(PARTIES)}
    schema = Schema(tuple(Numeric(name, -1, 1) for name in names), Classes("y", ("no", "yes")))
    return Vertical.over_columns(schema=schema, columns=held, products=products)


def _drawn(rows: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    stream = Stream.public("bench", "vertical default", rows)
    columns = 2 * stream.uniform((rows, FEATURES)) - 1
    scores = columns @ (1.6 * Stream.public("bench", "vertical default", "weights").normal(FEATURES))
    return columns, (stream.uniform(rows) < 1 / (1 + np.exp(-scores))).astype(np.int64)


def _simulate(protocol: VerticalRegression, columns: NDArray[np.float64], labels: NDArray[np.int64]) -> int:
    parties = {
        f"p{party}": Records(np.ascontiguousarray(columns[:, party::PARTIES]), None if party else labels)
        for party in range(PARTIES)
    }
    found = simulate(
        protocol,
        parties=parties,
        epsilon=1.0,
        delta=1e-6,
        unit="record",
        terms=Terms(schema=protocol.schema),
        options=RunOptions(baselines=False),
    )
    return found.transcript.bytes

"""The default vertical classifier, private rounds included, against scikit-learn's fit on the columns in one place.

Ours counts the processor time of all parties and the coordinator in one process: alignment by order, products, six
rounds, masks, noise, signatures, journal and ledgers. The anchor is LogisticRegression with its defaults, which is
neither private nor apart. BLAS has one thread, and compiled functions are loaded before. `megabytes` are those of the
transcript, which counts a letter to the coordinator and from there. Each row is measured in a process that does nothing
else, so `peak_gb` is its memory, records included. `growth` rows give the exponent of ours between two
numbers of records, of features and of parties.
"""

from __future__ import annotations

import resource
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median
from time import perf_counter, process_time
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from comity.data import Classes, Numeric, Records, Schema
from comity.entropy import Stream
from comity.methods.vertical import ProductMethod, Vertical, VerticalRegression
from comity.protocol import RunOptions, Terms, simulate
from experiments.bench.growth import growth_row

PARTIES, FEATURES = 2, 14
_WARM_ROWS = 300


@dataclass(frozen=True)
class Size:
    products: ProductMethod
    rows: int
    features: int = FEATURES
    parties: int = PARTIES


def measure(*, rows: int = 100_000, repeats: int = 3) -> list[dict[str, Any]]:
    """Rows, for each way of computing products: a run over so many records, and how it grows."""
    found = []
    for products in get_args(ProductMethod):
        few = max(2000, rows // 4)
        many, less, wide, shared = (
            _apart(size, repeats)
            for size in (
                Size(products, rows),
                Size(products, few),
                Size(products, few, features=2 * FEATURES),
                Size(products, few, parties=2 * PARTIES),
            )
        )
        most, least = median(many["ours"]), median(less["ours"])
        ratios = [ours / anchor for ours, anchor in zip(many["ours"], many["anchor"])]
        counted = "all parties and the coordinator"
        found += [
            {
                "case": f"default logistic {rows}x{FEATURES} {products}",
                "ours": most,
                "anchor": median(many["anchor"]),
                "ratio": median(ratios),
                "spread": max(ratios) - min(ratios),
                "unit": "s of processor time",
                "note": f"{counted}; anchor: scikit-learn's fit on the pooled columns",
                "repeats": repeats,
                "better": "lower",
                "wall": median(many["wall"]),
                "megabytes": many["megabytes"],
                "peak_gb": many["peak_gb"],
            },
            growth_row(f"records {few} to {rows} {products}", [few, rows], [least, most], counted),
            growth_row(
                f"features {few}x{FEATURES} to {2 * FEATURES} {products}",
                [FEATURES, 2 * FEATURES],
                [least, median(wide["ours"])],
                counted,
            ),
            growth_row(
                f"parties {few}x{FEATURES} {products}",
                [PARTIES, 2 * PARTIES],
                [least, median(shared["ours"])],
                f"{counted}, the same columns dealt to more of them",
            ),
        ]
    return found


def _apart(size: Size, repeats: int) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run, size, repeats).result()


def run(size: Size, repeats: int) -> dict[str, Any]:
    """Seconds of ours and of the anchor, megabytes sent and the peak of memory, in this process."""
    protocol, ours, walls, anchors = _protocol(size), list[float](), list[float](), list[float]()
    with threadpool_limits(1, user_api="blas"):
        _simulate(protocol, *_drawn(_WARM_ROWS, size.features), size.parties)
        columns, labels = _drawn(size.rows, size.features)
        for _ in range(repeats):
            started, clock = process_time(), perf_counter()
            sent = _simulate(protocol, columns, labels, size.parties)
            ours.append(process_time() - started)
            walls.append(perf_counter() - clock)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        for _ in range(repeats):
            started = process_time()
            LogisticRegression().fit(columns, labels)
            anchors.append(process_time() - started)
    return {"ours": ours, "wall": walls, "anchor": anchors, "megabytes": sent / 1e6, "peak_gb": peak}


def _protocol(size: Size) -> VerticalRegression:
    names = [f"x{place}" for place in range(size.features)]
    held = {f"p{party}": (*names[party :: size.parties], *(("y",) * (party == 0))) for party in range(size.parties)}
    schema = Schema(tuple(Numeric(name, -1, 1) for name in names), Classes("y", ("no", "yes")))
    return Vertical.over_columns(schema=schema, columns=held, products=size.products)


def _drawn(rows: int, features: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    stream = Stream.public("bench", "vertical default", rows)
    columns = 2 * stream.uniform((rows, features)) - 1
    scores = columns @ (1.6 * Stream.public("bench", "vertical default", "weights").normal(features))
    return columns, (stream.uniform(rows) < 1 / (1 + np.exp(-scores))).astype(np.int64)


def _simulate(protocol: VerticalRegression, columns: NDArray[np.float64], labels: NDArray[np.int64], count: int) -> int:
    parties = {
        f"p{party}": Records(np.ascontiguousarray(columns[:, party::count]), None if party else labels)
        for party in range(count)
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

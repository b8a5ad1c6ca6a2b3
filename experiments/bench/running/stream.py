"""Averaging where one of three owners has more records than memory: they are read from Parquet and encoded once, and
each sum reads them from the cache on disk.

The anchor reads the same file as often, in batches of the same size by the same reader, and multiplies what it reads
with numpy: X w and Xᵀr for each gradient, XᵀX for each second moment, X w for each calibration. It checks, scales and
bounds nothing. Ours is the whole run in one process: encoding, bounds, hosts, masks and noise, the two small owners
included. Checking every record before the run, which a study does once, is a row of its own.

Each runs in a process of its own, which tells its processor time and its peak of memory. BLAS has one thread.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity import Averaging
from comity.data import Classes, Encoding, LocalRecords, Numeric, Parquet, Records, Schema, StreamedRecords
from comity.data.tables.encoded_cache import CachePlace
from comity.entropy import Stream
from comity.methods.averaging.calibration import CALIBRATIONS
from comity.methods.averaging.descent import ROUNDS
from comity.methods.averaging.second_moments import WHITENINGS
from comity.protocol import RunOptions, simulate
from experiments.bench.kernels.product_stream import peak_mb

COLUMNS, SMALL = 20, 10_000
# Second moments of rows as they are, and of whitened ones.
MOMENTS = 1 + WHITENINGS
PASSES = MOMENTS + ROUNDS + CALIBRATIONS
_WRITTEN = 1 << 18


def measure(*, rows: int = 2_000_000, repeats: int = 3, folder: Path | None = None) -> list[dict[str, Any]]:
    """Rows: processor seconds and peak memory of ours and of the anchor. The file is made in `folder`, or where
    temporary files go, and deleted; it takes 168 bytes a record."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "owner.parquet"
        _write(path, rows)
        found = [
            (_apart(_ours, path, rows), _apart(_anchor, path, rows)) for _ in range(1 if rows > 10**7 else repeats)
        ]
    ratios = [ours["seconds"] / anchor["seconds"] for ours, anchor in found]
    ours, anchor = sorted(found, key=lambda pair: pair[0]["seconds"] / pair[1]["seconds"])[len(found) // 2]
    passes = PASSES
    common = {"passes": passes, "repeats": len(found)}
    return [
        {
            "case": f"averaging {rows}x{COLUMNS}",
            "ours": ours["seconds"],
            "anchor": anchor["seconds"],
            "ratio": ours["seconds"] / anchor["seconds"],
            "spread": max(ratios) - min(ratios),
            "unit": "s of processor time",
            "note": "anchor: the same passes over the same batches, multiplied with numpy; the median of the ratios",
        }
        | common,
        {
            "case": f"checking {rows}x{COLUMNS}",
            "ours": ours["checking"],
            "anchor": anchor["seconds"] / passes,
            "ratio": ours["checking"] * passes / anchor["seconds"],
            "unit": "s of processor time",
            "note": "every record read, encoded, counted and digested before the run; anchor: one of its passes",
        }
        | common,
        {
            "case": f"memory {rows}x{COLUMNS}",
            "ours": ours["peak_mb"],
            "anchor": anchor["peak_mb"],
            "ratio": ours["peak_mb"] / anchor["peak_mb"],
            "unit": "MB",
            "note": "peak of the process",
        }
        | common,
    ]


def _apart(work: Callable[[Path, int], dict[str, float]], path: Path, rows: int) -> dict[str, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, (path, rows))


def _schema() -> Schema:
    return Schema(tuple(Numeric(f"x{at}", -1.0, 1.0) for at in range(COLUMNS)), Classes("y", ("0", "1")))


def _ours(path: Path, rows: int) -> dict[str, float]:
    encoding = Encoding(_schema(), rows="scaled", intercept=True)
    with threadpool_limits(1, user_api="blas"):
        started = process_time()
        place = CachePlace(path.parent)
        streamed = StreamedRecords.scan(Parquet(path), encoding, where="owner", limit=1, cache=place)
        checked = process_time()
        parties: dict[str, LocalRecords] = {"a": streamed, "b": _small(encoding, "b"), "c": _small(encoding, "c")}
        protocol = Averaging.over_rows(
            features=encoding.width, sizes={"a": rows, "b": SMALL, "c": SMALL}, solver="gradient", encoding=encoding
        )
        simulate(protocol, parties=parties, epsilon=1.0, delta=1e-6, unit="record", options=RunOptions(baselines=False))
        return {"seconds": process_time() - checked, "checking": checked - started, "peak_mb": peak_mb()}


def _anchor(path: Path, rows: int) -> dict[str, float]:
    with threadpool_limits(1, user_api="blas"):
        started = process_time()
        weights, gradient = np.zeros((1, COLUMNS)), np.zeros((1, COLUMNS))
        for number in range(PASSES):
            for piece in Parquet(path).pieces():
                *columns, target = (column.to_numpy() for column in piece.batch.columns)
                x: NDArray[np.float64] = np.stack(columns).T
                if number >= MOMENTS + ROUNDS:
                    scores = x @ weights.T
                    _ = ((scores - target[:, None]) * scores).sum()
                elif number >= MOMENTS:
                    gradient += (x @ weights.T - target[:, None]).T @ x
                else:
                    _ = x.T @ x
            weights = weights - gradient / rows
        return {"seconds": process_time() - started, "peak_mb": peak_mb()}


def _small(encoding: Encoding, name: str) -> Records:
    numbers, labels = _drawn(Stream.public("bench", "stream", name), SMALL)
    rows = np.column_stack([*numbers, np.ones(SMALL)]) / np.sqrt(COLUMNS + 2)
    return Records(rows, labels)


def _drawn(stream: Stream, rows: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    numbers = 2 * stream.uniform((COLUMNS, rows)) - 1
    return numbers, (numbers[:3].sum(axis=0) + stream.uniform(rows) > 0.5).astype(np.int64)


def _write(path: Path, rows: int) -> None:
    stream = Stream.public("bench", "stream", "owner")
    names = [*(f"x{at}" for at in range(COLUMNS)), "y"]
    schema = pa.schema([(name, pa.float64() if name != "y" else pa.int64()) for name in names])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, rows, _WRITTEN):
            numbers, labels = _drawn(stream, min(_WRITTEN, rows - start))
            writer.write_batch(pa.record_batch([*numbers, labels], schema=schema))
    # What is still to be written to disk would compete with the first pass.
    with path.open("rb") as file:
        os.fsync(file.fileno())

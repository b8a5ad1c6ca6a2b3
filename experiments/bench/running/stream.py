"""Averaging where one of three owners has more records than memory: they are read from Parquet and encoded once, and
each sum reads them from the cache on disk.

Ours is the whole run in one process: encoding, bounds, hosts, masks and noise, the two small owners included. Checking
every record before the run, which a study does once, is a row of its own. Two anchors make as many passes as ours has
sums and multiply with numpy, X w and Xᵀr for each gradient, XᵀX for each second moment, X w for each calibration; they
check, scale and bound nothing. `averaging` reads the same Parquet file in each pass, in batches of the same size by the
same reader. `averaging, from doubles` maps a file of the records as doubles into memory, which is the least that any
pass over them can read.

Each runs in a process of its own, which tells its processor time and its peak of memory. BLAS has one thread. The
process may use one processor, but in the row of `two cores`, which compares the time on the clock.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
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
from experiments.bench import processors
from experiments.bench.growth import growth_row
from experiments.bench.kernels.product_stream import peak_mb

COLUMNS, SMALL = 20, 10_000
# Second moments of rows as they are, and of whitened ones.
MOMENTS = 1 + WHITENINGS
PASSES = MOMENTS + ROUNDS + CALIBRATIONS
_WRITTEN, _MAPPED = 1 << 18, 1 << 13
_WARM = "first.parquet"

Work = Callable[[Path, int], dict[str, float]]


def measure(*, rows: int = 2_000_000, repeats: int = 3, folder: Path | None = None) -> list[dict[str, Any]]:
    """Rows: processor seconds and peak memory of ours and of the anchors, ours on two processors, and how ours grows
    with the number of records. The file is made in `folder`, or where temporary files go, and deleted; it and the
    file of doubles take 336 bytes a record."""
    few, times = max(10_000, rows // 8), 1 if rows > 10**7 else repeats
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path, small = Path(place) / "owner.parquet", Path(place) / "few.parquet"
        _write(path, rows)
        _write(small, few)
        _write(Path(place) / _WARM, SMALL)
        found = [
            (_apart(_ours, path, rows), _apart(_anchor, path, rows), _apart(_doubles, path, rows)) for _ in range(times)
        ]
        fewer = [_apart(_ours, small, few) for _ in range(times)]
        two = [_apart(_ours, path, rows, 2) for _ in range(times)] if processors.count() > 1 else []
    ours, anchor = _middle([(one, other) for one, other, _ in found])
    fast, doubles = _middle([(one, other) for one, _, other in found])
    ratios = [one["seconds"] / other["seconds"] for one, other, _ in found]
    common = {"passes": PASSES, "repeats": times}
    name = f"{rows}x{COLUMNS}"
    return [
        {
            "case": f"averaging {name}",
            "ours": ours["seconds"],
            "anchor": anchor["seconds"],
            "ratio": ours["seconds"] / anchor["seconds"],
            "spread": max(ratios) - min(ratios),
            "unit": "s of processor time",
            "note": f"all parties, {ours['wall']:.2f} s on the clock; anchor: the same passes over the same batches of "
            f"Parquet, multiplied with numpy, {anchor['wall']:.2f} s on the clock; the median of the ratios",
        }
        | common,
        {
            "case": f"averaging, from doubles {name}",
            "ours": fast["seconds"],
            "anchor": doubles["seconds"],
            "ratio": fast["seconds"] / doubles["seconds"],
            "unit": "s of processor time",
            "note": "anchor: the same passes over a mapped file of doubles, made before, multiplied with numpy",
        }
        | common,
        {
            "case": f"checking {name}",
            "ours": ours["checking"],
            "anchor": anchor["seconds"] / PASSES,
            "ratio": ours["checking"] * PASSES / anchor["seconds"],
            "unit": "s of processor time",
            "note": "every record read, encoded, counted, digested and written to the cache before the run; anchor: "
            "one of its passes",
        }
        | common,
        {
            "case": f"memory {name}",
            "ours": ours["peak_mb"],
            "anchor": anchor["peak_mb"],
            "ratio": ours["peak_mb"] / anchor["peak_mb"],
            "unit": "MB",
            "note": f"peak of the process; ours with {few:,} records: {fewer[0]['peak_mb']:.0f} MB",
        }
        | common,
        *_on_two_rows(name, [one for one, _, _ in found], two, common),
        growth_row(
            f"records {few} to {rows}",
            [few, rows],
            [median(one["seconds"] for one in fewer), median(one["seconds"] for one, _, _ in found)],
            "the whole run; without records it takes the most of the first",
        )
        | {"repeats": times},
    ]


def _middle(pairs: list[tuple[dict[str, float], dict[str, float]]]) -> tuple[dict[str, float], dict[str, float]]:
    return sorted(pairs, key=lambda pair: pair[0]["seconds"] / pair[1]["seconds"])[len(pairs) // 2]


def _on_two_rows(
    name: str, one: list[dict[str, float]], two: list[dict[str, float]], common: dict[str, Any]
) -> list[dict[str, Any]]:
    if not two:
        return []
    alone, both = median(run["wall"] for run in one), median(run["wall"] for run in two)
    seconds = median(run["seconds"] for run in two)
    return [
        {
            "case": f"two cores {name}",
            "ours": both,
            "anchor": alone,
            "ratio": both / alone,
            "unit": "s on the clock",
            "note": f"{alone / both:.2f} times as fast as on one processor, which is the anchor; {seconds:.2f} s of "
            "processor time in all",
        }
        | common
    ]


def _apart(work: Work, path: Path, rows: int, cores: int = 1) -> dict[str, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_limited, (work, path, rows, cores))


def _limited(work: Work, path: Path, rows: int, cores: int) -> dict[str, float]:
    with processors.limited(cores), threadpool_limits(1, user_api="blas"):
        return work(path, rows)


def _schema() -> Schema:
    return Schema(tuple(Numeric(f"x{at}", -1.0, 1.0) for at in range(COLUMNS)), Classes("y", ("0", "1")))


def _ours(path: Path, rows: int) -> dict[str, float]:
    encoding = Encoding(_schema(), rows="scaled", intercept=True)
    # The first loads libraries and compiled functions.
    _run(_small(encoding, "a"), encoding, SMALL)
    StreamedRecords.scan(Parquet(path.with_name(_WARM)), encoding, where="owner", limit=1)
    started = process_time()
    place = CachePlace(path.parent)
    streamed = StreamedRecords.scan(Parquet(path), encoding, where="owner", limit=1, cache=place, singles=True)
    checked, clock = process_time(), perf_counter()
    _run(streamed, encoding, rows)
    return {
        "seconds": process_time() - checked,
        "wall": perf_counter() - clock,
        "checking": checked - started,
        "peak_mb": peak_mb(),
    }


def _run(records: LocalRecords, encoding: Encoding, rows: int) -> None:
    parties: dict[str, LocalRecords] = {"a": records, "b": _small(encoding, "b"), "c": _small(encoding, "c")}
    protocol = Averaging.over_rows(
        features=encoding.width, sizes={"a": rows, "b": SMALL, "c": SMALL}, solver="gradient", encoding=encoding
    )
    simulate(protocol, parties=parties, epsilon=1.0, delta=1e-6, unit="record", options=RunOptions(baselines=False))


def _anchor(path: Path, rows: int) -> dict[str, float]:
    def blocks() -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        for piece in Parquet(path).pieces():
            *columns, target = (column.to_numpy() for column in piece.batch.columns)
            yield np.stack(columns).T, target

    return _multiply(blocks, rows)


def _doubles(path: Path, rows: int) -> dict[str, float]:
    """The same over a file of doubles, which is written before the time is taken."""
    with tempfile.TemporaryFile(dir=path.parent) as file:
        for piece in Parquet(path).pieces():
            *columns, target = (column.to_numpy() for column in piece.batch.columns)
            np.column_stack([*columns, target]).tofile(file)
        file.flush()
        table = np.memmap(file, np.float64, "r", shape=(rows, COLUMNS + 1))

        def blocks() -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
            for start in range(0, rows, _MAPPED):
                block = np.asarray(table[start : start + _MAPPED])
                yield block[:, :COLUMNS], block[:, COLUMNS]

        return _multiply(blocks, rows)


def _multiply(blocks: Callable[[], Iterator[tuple[Any, Any]]], rows: int) -> dict[str, float]:
    started, clock = process_time(), perf_counter()
    weights, gradient = np.zeros((1, COLUMNS)), np.zeros((1, COLUMNS))
    for number in range(PASSES):
        for x, target in blocks():
            if number >= MOMENTS + ROUNDS:
                scores = x @ weights.T
                _ = ((scores - target[:, None]) * scores).sum()
            elif number >= MOMENTS:
                gradient += (x @ weights.T - target[:, None]).T @ x
            else:
                _ = x.T @ x
        weights = weights - gradient / rows
    return {"seconds": process_time() - started, "wall": perf_counter() - clock, "peak_mb": peak_mb()}


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

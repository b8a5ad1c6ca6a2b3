"""The default vertical classifier over records beyond memory: two parties' Parquet files, read in blocks.

Ours is a whole study in one process, as `comity run` simulates it: both files are checked and encoded, rows are aligned
by keyed pseudonyms (each party has another order, and people whom the other lacks), then products and six private
rounds, with the hosts, ledgers and the journal of both parties and the coordinator on disk. Its memory is the kernel's
figure for the process at its peak: files that it maps count, the system's cache of files does not. The anchor is
scikit-learn's LogisticRegression on the joined columns in another process: its fit, once they are in memory.

Files are made by a process of their own. BLAS has one thread.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from comity.data import Classes, Numeric, Schema
from comity.entropy import Stream
from comity.errors import ComityError
from comity.methods.vertical import ProductMethod
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from experiments.bench.growth import growth_row
from experiments.bench.kernels.product_stream import peak_mb

FEATURES, PARTIES = 20, ("north", "south")
MEMORY = 1 / 16
"""Gigabytes that a party's encoded records may take in memory: 700,000 records are read in blocks."""
_LACKING = 50
"""One in so many people is unknown to a party."""
_GROUP = 1 << 17

_STUDY = """
[study]
name = "blocks"
protocol = "vertical"
schema = "schema.toml"
[privacy]
unit = "record"
epsilon = 1.0
delta = 1e-9
colluders = 1
[vertical]
products = "{products}"
max_rows = {rows}
[parties.north]
columns = ["n*", "y"]
[parties.south]
columns = ["s*"]
[simulation]
memory = {memory}
grant = 4.0
[simulation.data]
north = "north.parquet"
south = "south.parquet"
"""


def measure(
    *, rows: int = 1_000_000, products: ProductMethod = "dealer", folder: Path | None = None
) -> list[dict[str, Any]]:
    """Rows: processor seconds, peak memory and megabytes sent of one run, and how the seconds grow with records. Files
    are made in `folder`, or where temporary files go, and deleted; with the run's own they take about 1.5 KB a
    record."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        home, few = Path(place), max(1000, rows // 8)
        _apart(_write, home, few, products)
        fewer = _apart(_ours, home, few, products)
        shutil.rmtree(home)
        home.mkdir()
        _apart(_write, home, rows, products)
        ours, anchor = _apart(_ours, home, rows, products), _apart(_anchor, home, rows, products)
    case, columns = f"blocks {rows}x{FEATURES} {products}", rows * (FEATURES + 1) * 8 / 1e6
    common = {"repeats": 1, "better": "lower", "megabytes": ours["megabytes"]}
    note = "all parties and the coordinator, checking and alignment included; anchor: scikit-learn's fit"
    return [
        {
            "case": case,
            "ours": ours["seconds"],
            "anchor": anchor["seconds"],
            "ratio": ours["seconds"] / anchor["seconds"],
            "unit": "s of processor time",
            "note": note,
            "checking": ours["checking"],
        }
        | common,
        {
            "case": f"memory of {case}",
            "ours": ours["peak_mb"],
            "anchor": columns,
            "ratio": ours["peak_mb"] / columns,
            "unit": "MB",
            "note": f"peak of the process, {ours['idle_mb']:.0f} MB before data, and with {few:,} records "
            f"{fewer['peak_mb']:.0f} MB; anchor: the encoded columns alone",
        }
        | common,
        growth_row(
            f"records {few} to {rows} {products}", [few, rows], [fewer["seconds"], ours["seconds"]], "the whole run"
        ),
    ]


def _apart(work: Callable[[Path, int, str], dict[str, float]], *given: Any) -> dict[str, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)


def _names(party: str) -> list[str]:
    return [f"{party[0]}{place:02}" for place in range(FEATURES // len(PARTIES))]


def _write(home: Path, rows: int, products: str) -> dict[str, float]:
    stream = Stream.public("bench", "vertical blocks", rows)
    weights = 1.6 * stream.normal(FEATURES)
    scores = np.zeros(rows)
    columns: dict[str, dict[str, Any]] = {party: {} for party in PARTIES}
    for place, name in enumerate(name for party in PARTIES for name in _names(party)):
        held = columns["north" if name.startswith("n") else "south"]
        held[name] = 2 * stream.uniform(rows) - 1
        scores += weights[place] * held[name]
    columns["north"]["y"] = np.array(["no", "yes"])[(stream.uniform(rows) < 1 / (1 + np.exp(-scores))).astype(int)]
    for place, party in enumerate(PARTIES):
        order = stream.permutation(rows)
        order = order[order % _LACKING != place]
        people = pa.array(np.char.mod("person-%09d", order))
        table = pa.table({"person": people, **{name: values[order] for name, values in columns[party].items()}})
        pq.write_table(table, home / f"{party}.parquet", row_group_size=_GROUP)
    schema = Schema(
        tuple(Numeric(name, -1, 1) for party in PARTIES for name in _names(party)),
        Classes("y", ("no", "yes")),
        "person",
    )
    (home / "schema.toml").write_text(schema.to_toml())
    (home / "study.toml").write_text(_STUDY.format(products=products, rows=max(rows, 1000), memory=MEMORY))
    return {}


def _ours(home: Path, rows: int, products: str) -> dict[str, float]:
    idle = peak_mb()
    (home / "run").mkdir()
    checked = 0.0

    def progress(step: str) -> None:
        nonlocal checked
        checked = checked or (process_time() if step.startswith("run.") else 0.0)

    with threadpool_limits(1, user_api="blas"):
        started = process_time()
        found = run_study(Study.load(home / "study.toml"), folder=home / "run", run_id="bench", progress=progress)
        seconds = process_time() - started
    if not np.isfinite(found.released["model"]).all():
        raise ComityError("the run released no model")
    return {
        "seconds": seconds,
        "checking": checked - started,
        "peak_mb": peak_mb(),
        "idle_mb": idle,
        "megabytes": found.transcript.bytes / 1e6,
    }


def _anchor(home: Path, rows: int, products: str) -> dict[str, float]:
    tables = [pq.read_table(home / f"{party}.parquet").to_pandas().set_index("person") for party in PARTIES]
    joined = tables[0].join(tables[1], how="inner")
    labels, columns = joined.pop("y").to_numpy() == "yes", np.ascontiguousarray(joined.to_numpy(np.float64))
    with threadpool_limits(1, user_api="blas"):
        started = process_time()
        LogisticRegression().fit(columns, labels)
        return {"seconds": process_time() - started}

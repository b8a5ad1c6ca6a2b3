"""An owner's wide table in a database, of which a study uses few columns: one pass over it, and further passes.

Each row counts the processor time of reading and encoding every record once, in this process, on one thread. The anchor
of `projected` rows is the same source with a query that an expert wrote for the columns that are used. The anchor of
`cached` rows is such a pass over the source; ours is a pass over the cache of encoded records that the first one left.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import duckdb

from comity.data import Classes, Encoding, Numeric, Schema, Sql, StreamedRecords
from comity.data.tables.encoded_cache import CachePlace

COLUMNS, USED = 100, 5


def measure(*, rows: int = 200_000, repeats: int = 5) -> list[dict[str, Any]]:
    """Rows: processor seconds of a pass, for DuckDB and SQLite."""
    names = [f"x{at}" for at in range(USED - 1)]
    encoding = Encoding(Schema(tuple(Numeric(one, 0, 1) for one in names), Classes("y", ("0", "1"))), rows="scaled")
    by_hand = f"SELECT {', '.join([*names, 'y'])} FROM wide"
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, path in _write(Path(folder), rows).items():
            whole, narrow = Sql(table="wide", path=path), Sql(by_hand, path=path)
            # Loads libraries and compiled functions.
            _scan(narrow, encoding)
            pairs = [(_scan(whole, encoding), _scan(narrow, encoding)) for _ in range(repeats)]
            found.append(_row(f"{kind} projected {rows}x{COLUMNS}, {USED} used", pairs, "the columns named by hand"))
            cached = StreamedRecords.scan(whole, encoding, cache=CachePlace(Path(folder)))
            assert cached.cache is not None
            passes = [(_pass(cached), seconds) for _, seconds in pairs]
            found.append(_row(f"{kind} cached {rows}x{COLUMNS}, {USED} used", passes, "a pass over the database"))
    return found


def _row(case: str, pairs: list[tuple[float, float]], anchor: str) -> dict[str, Any]:
    ratios = [ours / other for ours, other in pairs]
    return {
        "case": case,
        "ours": median(ours for ours, _ in pairs),
        "anchor": median(other for _, other in pairs),
        "ratio": median(ratios),
        "spread": max(ratios) - min(ratios),
        "unit": "s of processor time",
        "note": f"every record read and encoded once; anchor: {anchor}",
        "repeats": len(pairs),
    }


def _scan(source: Sql, encoding: Encoding) -> float:
    """Without a cache: only reading, encoding and the digest."""
    started = process_time()
    StreamedRecords.scan(source, encoding)
    return process_time() - started


def _pass(records: StreamedRecords) -> float:
    started = process_time()
    for _ in records.blocks():
        pass
    return process_time() - started


def _write(folder: Path, rows: int) -> dict[str, Path]:
    numbers = ", ".join(f"((i * {2 * at + 7}) % 1009) / 1009.0 AS x{at}" for at in range(COLUMNS - 1))
    made = f"SELECT {numbers}, CAST(i % 2 AS INTEGER) AS y FROM range({rows}) AS given(i)"
    with duckdb.connect(folder / "wide.duckdb") as database:
        database.execute(f"CREATE TABLE wide AS {made}")
        values = database.execute("SELECT * FROM wide").fetchnumpy()
    with sqlite3.connect(folder / "wide.sqlite") as connection:
        connection.execute(f"CREATE TABLE wide ({', '.join(values)})")
        marks = ", ".join("?" * COLUMNS)
        connection.executemany(f"INSERT INTO wide VALUES ({marks})", zip(*(one.tolist() for one in values.values())))
    connection.close()
    return {"DuckDB": folder / "wide.duckdb", "SQLite": folder / "wide.sqlite"}

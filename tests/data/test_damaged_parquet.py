"""Parquet files whose notes of pandas, or whose bytes, are damaged: one sentence about the file, or records."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comity.data import open_source
from comity.errors import DataError

FRAME = pd.DataFrame({"age": [1, 2, 3], "ward": pd.Categorical(["x", "y", "x"])})
NOTES: dict[str, Any] = json.loads(pa.Table.from_pandas(FRAME).schema.metadata[b"pandas"])


def noted() -> Iterator[bytes]:
    yield from (b"{", b"[]", b"null", b"3", b"\xff\xfe", b"[" * 100_000)
    for key in NOTES:
        wrong: tuple[Any, ...] = (None, [], {}, "x", [3], [{}], [{"kind": "range", "start": "x", "stop": 1, "step": 0}])
        for value in wrong:
            yield json.dumps({**NOTES, key: value}).encode()
        yield json.dumps({other: value for other, value in NOTES.items() if other != key}).encode()
    for place, column in enumerate(NOTES["columns"]):
        for key in column:
            columns = [dict(one) for one in NOTES["columns"]]
            columns[place][key] = "x"
            yield json.dumps({**NOTES, "columns": columns}).encode()


def used(path: Path) -> bool:
    """Whether everything that reads the file reads it; the only other end is a `DataError` that names it."""
    source = open_source(path)
    done = 0
    for use in (
        source.read,
        lambda: list(source.batches()),
        lambda: list(source.pieces()),
        lambda: source.rows_at_most(2),
    ):
        try:
            use()
            done += 1
        except DataError as error:
            assert str(path) in str(error)
    return done == 4


def test_damaged_notes_of_pandas_are_bad_data(tmp_path: Path) -> None:
    path, table = tmp_path / "x.parquet", pa.Table.from_pandas(FRAME)
    read = []
    for notes in noted():
        pq.write_table(table.replace_schema_metadata({b"pandas": notes}), path)
        read.append(used(path))
    # Both ends happen, so that neither is by accident.
    assert 10 < sum(read) < len(read) - 10


@pytest.mark.parametrize("seed", range(2))
def test_damaged_bytes_are_bad_data(tmp_path: Path, seed: int) -> None:
    path, rng = tmp_path / "x.parquet", random.Random(seed)
    FRAME.to_parquet(path)
    raw = path.read_bytes()
    for _ in range(120):
        damaged = bytearray(raw)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(raw))] = rng.randrange(256)
        path.write_bytes(damaged)
        used(path)

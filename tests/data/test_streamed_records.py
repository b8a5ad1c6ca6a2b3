"""Records that are read in blocks are those that are read at once, whatever the source and wherever blocks begin."""

from __future__ import annotations

import os
import sqlite3
from datetime import date
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import pandas as pd
import pytest

from comity.data import (
    Categorical,
    Classes,
    Date,
    Encoding,
    Numeric,
    Ordinal,
    Parquet,
    Records,
    Schema,
    StreamedRecords,
    fits_in_memory,
    open_source,
)
from comity.errors import DataError, StudyError

ROWS = 211
SCHEMA = Schema(
    (
        Numeric("age", 0, 100, missing="fill", fill=40),
        Numeric("visits", 0, 9, integer=True),
        Categorical("ward", ("a", "b", "7"), other=True, missing="other"),
        Ordinal("grade", ("low", "mid", "high")),
        Date("seen", date(2020, 1, 1), date(2021, 1, 1)),
    ),
    Classes("ill", ("0", "1")),
    "person",
)


@pytest.fixture
def table() -> pd.DataFrame:
    generator = np.random.default_rng(5)
    age = generator.uniform(-10, 110, ROWS)
    age[::17] = np.nan
    wards = np.array(["a", "b", "7", "?", None], object)[generator.integers(0, 5, ROWS)]
    return pd.DataFrame(
        {
            "other": range(ROWS),
            "seen": pd.to_datetime("2020-01-01") + pd.to_timedelta(generator.integers(0, 366, ROWS), "D"),
            "age": age,
            "visits": generator.integers(0, 10, ROWS),
            "ward": wards,
            "grade": np.array(["low", "mid", "high"], object)[generator.integers(0, 3, ROWS)],
            "ill": generator.integers(0, 2, ROWS),
            "person": [f"p{i}" for i in range(ROWS)],
        }
    )


@pytest.fixture
def sources(table: pd.DataFrame, tmp_path: Path) -> dict[str, object]:
    table.to_parquet(tmp_path / "t.parquet", row_group_size=50)
    (tmp_path / "parts" / "deeper").mkdir(parents=True)
    table.iloc[:100].to_parquet(tmp_path / "parts" / "0.parquet")
    table.iloc[100:].to_parquet(tmp_path / "parts" / "deeper" / "1.parquet")
    (tmp_path / "parts" / "_metadata.parquet").write_bytes(b"left out")
    table.to_csv(tmp_path / "t.csv", index=False)
    with duckdb.connect(tmp_path / "t.duckdb") as database:
        database.execute(f"CREATE TABLE visits AS SELECT * FROM '{tmp_path / 't.parquet'}'")
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        table.to_sql("visits", connection, index=False)
    connection.close()
    return {
        "frame": table,
        "parquet": tmp_path / "t.parquet",
        "folder": tmp_path / "parts",
        "csv": tmp_path / "t.csv",
        "duckdb": {"source": "sql", "path": str(tmp_path / "t.duckdb"), "table": "visits"},
        "sqlite": {"source": "sql", "path": str(tmp_path / "t.sqlite"), "table": "visits"},
    }


def joined(records: StreamedRecords) -> Records:
    parts = [Records(one.features.copy(), one.labels, one.ids) for one in records.blocks()]
    return Records(*(np.concatenate([getattr(one, key) for one in parts]) for key in ("features", "labels", "ids")))


@pytest.mark.parametrize("kind", ["frame", "parquet", "folder", "csv", "duckdb", "sqlite"])
@pytest.mark.parametrize("rows", ["none", "scaled", "normalised"])
def test_blocks_hold_the_same_bits_as_the_whole(
    sources: dict[str, object], table: pd.DataFrame, kind: str, rows: Any
) -> None:
    encoding = Encoding(SCHEMA, rows=rows, intercept=True)
    source, whole = open_source(sources[kind]), encoding.encode(table)
    found = {}
    for piece in (7, 64, 1 << 16):
        streamed = StreamedRecords.scan(source, encoding, where="t", piece=piece, limit=1 << 20)
        together = joined(streamed)
        for key in ("features", "labels", "ids"):
            assert (getattr(together, key) == getattr(whole.records, key)).all()
            assert (getattr(streamed, key) == getattr(whole.records, key)).all()
        assert together.features.tobytes() == whole.records.features.tobytes()
        assert streamed.tally == whole.tally and len(streamed) == ROWS
        found[piece] = streamed.digest
    assert len(set(found.values())) == 1


def test_a_digest_is_of_every_value_and_of_their_order(table: pd.DataFrame) -> None:
    def digest(frame: pd.DataFrame) -> str:
        return StreamedRecords.scan(open_source(frame), Encoding(SCHEMA), piece=10).digest

    known = {digest(table), digest(table[::-1]), digest(table.iloc[:-1])}
    for column in ("age", "ward", "ill", "person"):
        changed: Any = table.copy()
        changed.loc[3, column] = changed.loc[4 if column != "age" else 5, column]
        changed.loc[3, column] = {"person": "somebody", "ill": 1 - cast(Any, table.loc[3, "ill"])}.get(
            column, changed[column][3]
        )
        if column == "ward":
            changed.loc[3, column] = "a" if table.loc[3, "ward"] != "a" else "b"
        known.add(digest(changed))
    assert len(known) == 7


def test_what_the_schema_refuses_is_refused_by_its_place_in_the_source(table: pd.DataFrame, tmp_path: Path) -> None:
    table.loc[150, "grade"] = "higher"
    table.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"'grade' expects .* found a text .* in record 151 \(the first is 1\)"):
        StreamedRecords.scan(Parquet(tmp_path / "t.parquet"), Encoding(SCHEMA), piece=40)


def test_records_stay_in_memory_where_they_fit(sources: dict[str, object]) -> None:
    encoding = Encoding(SCHEMA)
    bytes_each = 8 * (encoding.width + 2)
    for kind in ("parquet", "folder", "csv", "duckdb", "sqlite", "frame"):
        source = open_source(sources[kind])
        assert fits_in_memory(source, encoding, ROWS * bytes_each) and not fits_in_memory(
            source, encoding, ROWS * bytes_each - 1
        )
        outside = StreamedRecords.scan(source, encoding, limit=1000)
        assert encoding.encode(source.read(encoding.reads)).tally == outside.tally
        for key in ("features", "labels", "ids"):
            with pytest.raises(DataError, match=r"needs all records .* raise memory") as caught:
                getattr(outside, key)
            assert caught.value.key == "memory"


@pytest.mark.parametrize("change", ["longer", "touched"])
def test_a_source_that_changes_between_two_passes_is_refused(table: pd.DataFrame, tmp_path: Path, change: str) -> None:
    path = tmp_path / "t.parquet"
    table.to_parquet(path)
    streamed = StreamedRecords.scan(Parquet(path), Encoding(SCHEMA), piece=50)
    assert sum(map(len, streamed.blocks())) == ROWS
    before = path.stat()
    (table if change == "touched" else pd.concat([table, table])).to_parquet(path)
    if change == "longer":
        object.__setattr__(streamed, "_stamp", [(str(path), path.stat().st_size, path.stat().st_mtime_ns)])
    else:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(DataError, match="changed after they were checked"):
        list(streamed.blocks())


def test_a_source_without_records_is_one_empty_block(table: pd.DataFrame, tmp_path: Path) -> None:
    table.iloc[:0].to_parquet(tmp_path / "t.parquet")
    streamed = StreamedRecords.scan(Parquet(tmp_path / "t.parquet"), Encoding(SCHEMA))
    (block,) = streamed.blocks()
    assert block.features.shape == (0, Encoding(SCHEMA).width) and len(streamed) == 0


def test_folders_that_are_none_of_a_studys_own(table: pd.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "study" / "empty").mkdir(parents=True)
    with pytest.raises(DataError, match=r"folder without a \.parquet file"):
        open_source({"source": "parquet", "path": "empty"}, base=tmp_path / "study")
    table.to_parquet(tmp_path / "secret.parquet")
    (tmp_path / "study" / "empty" / "link.parquet").symlink_to(tmp_path / "secret.parquet")
    assert open_source("empty", base=tmp_path / "study") == Parquet(tmp_path / "study" / "empty")
    with pytest.raises(StudyError, match="leads out of it"):
        open_source("empty", base=tmp_path / "study", confined=True)

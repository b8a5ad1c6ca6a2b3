"""Records by position, in files without a name: the same bits in any order, bounded, and only blocks in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import Bounded, Classes, Encoding, Frame, Numeric, Parquet, Schema, StreamedRecords
from comity.data.tables import row_file
from comity.data.tables.encoded_cache import CachePlace
from comity.data.tables.row_file import Scatter, UnnamedFile
from comity.errors import DataError

ROWS = 1000
COLUMNS = (Numeric("age", 0, 100), Numeric("size", -1, 1))
FRAME = pd.DataFrame(
    {
        "id": [f"person {i}" for i in range(ROWS)],
        "age": np.linspace(0, 100, ROWS),
        "size": np.linspace(-1, 1, ROWS),
        "ill": np.arange(ROWS) % 2,
        "cost": np.linspace(0, 9, ROWS),
    }
)
TARGETS: dict[str, Any] = {"none": None, "classes": Classes("ill", ("0", "1")), "number": Bounded("cost", 0, 9)}


def scan(target: str, place: CachePlace, frame: pd.DataFrame = FRAME, named: bool = True) -> StreamedRecords:
    schema = Schema(COLUMNS, TARGETS[target], "id" if named else None)
    return StreamedRecords.scan(Frame(frame), Encoding(schema), piece=300, positions=place)


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many spans and buckets over few records."""
    monkeypatch.setattr(row_file, "_BUCKET_BYTES", 1 << 11)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_have_the_bits_of_records_in_memory(target: str, tmp_path: Path) -> None:
    records = scan(target, CachePlace(tmp_path))
    whole = records.encoding.encode(FRAME).records
    for part in (slice(0, ROWS), slice(17, 18), slice(500, 2000), slice(ROWS, ROWS)):
        found = records.rows(part)
        assert found.features.tobytes() == np.ascontiguousarray(whole.features[part]).tobytes()
        if whole.labels is None:
            assert found.labels is None
        else:
            assert found.labels is not None and found.labels.dtype == whole.labels.dtype
            assert found.labels.tobytes() == whole.labels[part].tobytes()
        assert found.ids is None


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [0, 1, 999, 1000])
def test_reordered_records_are_those_at_the_positions(target: str, count: int, tmp_path: Path) -> None:
    records = scan(target, CachePlace(tmp_path))
    order = np.random.default_rng(count).permutation(ROWS)[:count].astype(np.int64)
    found = records.reordered(iter([order[: count // 3], order[count // 3 : count // 2], order[count // 2 :]]))
    whole = records.encoding.encode(FRAME).records
    assert len(found) == count
    together = found.read(slice(0, count))
    assert together.features.tobytes() == whole.features[order].tobytes()
    if whole.labels is not None:
        np.testing.assert_array_equal(together.labels, whole.labels[order])
    halves = [found.read(slice(start, start + 7)).features for start in range(0, count, 7)]
    assert not count or np.concatenate(halves).tobytes() == together.features.tobytes()


def test_identifiers_come_from_the_source_and_are_in_no_file(tmp_path: Path) -> None:
    records = scan("classes", CachePlace(tmp_path))
    ids = np.concatenate(list(records.id_blocks()))
    assert ids.tolist() == FRAME["id"].tolist()
    file = records._rows_on_disk.file.file._file
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    assert b"person" not in os.read(file.fileno(), 1 << 20)
    with pytest.raises(DataError, match="no identifier"):
        list(scan("classes", CachePlace(tmp_path), named=False).id_blocks())


def test_files_have_no_name_and_no_other_reader(tmp_path: Path) -> None:
    records = scan("classes", CachePlace(tmp_path))
    order = records.reordered([np.arange(ROWS)[::-1].copy()])
    assert list(tmp_path.iterdir()) == []
    for file in (records._rows_on_disk.file.file, order.file, records.open_file()):
        about = os.fstat(file._file.fileno())
        assert about.st_mode & 0o777 == 0o600 and about.st_nlink == 0


def test_a_source_that_changed_is_found_whichever_way_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "own.parquet"
    FRAME.to_parquet(path)
    schema = Schema(COLUMNS, TARGETS["classes"], "id")
    records = StreamedRecords.scan(Parquet(path), Encoding(schema), positions=CachePlace(tmp_path))
    FRAME.iloc[::-1].to_parquet(path)
    for read in (
        lambda: records.rows(slice(0, 1)),
        lambda: records.reordered([np.arange(3)]),
        lambda: list(records.id_blocks()),
    ):
        with pytest.raises(DataError, match="changed after they were checked"):
            read()


def test_identifiers_in_another_order_are_found(tmp_path: Path) -> None:
    """A server's table has no time of change: rows and identifiers would no longer belong together."""

    class Turning(Frame):
        turns = 0

        def pieces(self, *arguments: Any, **named: Any) -> Any:
            Turning.turns += 1
            turned = self.frame if Turning.turns == 1 else self.frame.iloc[::-1]
            return Frame(turned).pieces(*arguments, **named)

    schema = Schema(COLUMNS, TARGETS["classes"], "id")
    records = StreamedRecords.scan(Turning(FRAME), Encoding(schema), positions=CachePlace(tmp_path))
    with pytest.raises(DataError, match="changed after they were checked"):
        list(records.id_blocks())


def test_without_room_on_the_disk_records_are_refused_with_what_to_do(tmp_path: Path) -> None:
    for place in (CachePlace(tmp_path, 1000), CachePlace(tmp_path, 0), CachePlace(tmp_path / "none")):
        with pytest.raises(DataError, match="free some space, raise cache, or raise memory"):
            scan("classes", place)
    records = scan("classes", CachePlace(tmp_path, ROWS * 4 * 8))
    with pytest.raises(DataError, match="raise cache"):
        records.reordered([np.arange(ROWS)] * 2)


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_scatter_keeps_the_rows_of_a_bucket_in_their_order(on_disk: bool, tmp_path: Path) -> None:
    scatter = Scatter(5, 2, UnnamedFile.open(CachePlace(tmp_path)) if on_disk else None)
    rows = np.stack([np.arange(300), np.arange(300) ** 2], axis=1).astype(np.uint64)
    bucket = np.random.default_rng(0).integers(0, 4, 300)
    for start in range(0, 300, 70):
        scatter.add(bucket[start : start + 70], rows[start : start + 70])
    for number in range(5):
        np.testing.assert_array_equal(scatter.rows(number), rows[bucket == number])

"""A cache of encoded records: the same bits, no name, no other reader, bounded, and gone with its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import Classes, Encoding, Frame, Numeric, Parquet, Records, Schema, Source, StreamedRecords
from comity.data.singles import truncate_to_singles
from comity.data.tables.encoded_cache import CachePlace, CacheWriter, single_rows
from comity.errors import DataError

ROWS = 1000
SCHEMA = Schema((Numeric("age", 0, 100), Numeric("size", -1, 1)), Classes("ill", ("0", "1")))
FRAME = pd.DataFrame({"age": np.linspace(0, 100, ROWS), "size": np.linspace(-1, 1, ROWS), "ill": np.arange(ROWS) % 2})


class Counted(Frame):
    """A frame that counts how often it is read."""

    reads = 0

    def pieces(self, *arguments: Any, **named: Any) -> Iterator[Any]:
        type(self).reads += 1
        return super().pieces(*arguments, **named)


def scan(source: Source, place: CachePlace | None, schema: Schema = SCHEMA, piece: int = 300) -> StreamedRecords:
    return StreamedRecords.scan(source, Encoding(schema, rows="scaled", intercept=True), piece=piece, cache=place)


def test_a_pass_over_the_cache_has_the_bits_and_the_layout_of_a_pass_over_the_source(tmp_path: Path) -> None:
    plain, cached = scan(Frame(FRAME), None), scan(Frame(FRAME), CachePlace(tmp_path))
    assert plain.cache is None and cached.cache is not None and plain.digest == cached.digest
    for _ in range(2):
        pairs = list(
            zip((copied(one) for one in plain.blocks()), (copied(one) for one in cached.blocks()), strict=True)
        )
        assert len(pairs) == 4
        for one, other in pairs:
            assert one == other
    assert cached.features.tobytes() == plain.features.tobytes()


def copied(block: Records) -> tuple[Any, ...]:
    assert block.labels is not None
    return block.features.tobytes(), block.features.strides, block.labels.tobytes(), block.labels.dtype


def test_a_cache_of_single_floats_has_half_of_the_rows_and_the_labels_as_they_were(tmp_path: Path) -> None:
    plain = scan(Frame(FRAME), None)
    halved = StreamedRecords.scan(
        Frame(FRAME), plain.encoding, piece=300, cache=CachePlace(tmp_path, ROWS * (3 * 4 + 1)), singles=True
    )
    assert halved.cache is not None and halved.digest == plain.digest
    assert os.fstat(halved.cache._file.fileno()).st_size == ROWS * (3 * 4 + 1)
    assert all(block.features.dtype == np.float64 for block in halved.blocks())
    # Blocks are larger than those of the source.
    loaders = halved.loaders()
    assert loaders is not None and len(loaders) == 1
    found = loaders[0]()
    assert found.features.dtype == np.float32 and found.features.strides[0] == 4
    np.testing.assert_array_equal(found.features, truncate_to_singles(plain.features))
    assert found.labels is not None and found.labels.dtype == np.int64
    np.testing.assert_array_equal(found.labels, plain.labels)
    assert halved.features.dtype == np.float64


@pytest.mark.parametrize("counts", [[], [0], [5, 0, 60], [64], [64, 1], [200, 3], [10] * 20])
def test_blocks_of_single_floats_have_as_many_rows_as_one_takes(tmp_path: Path, counts: list[int]) -> None:
    width = 1 << 14
    assert single_rows(width) == 64
    generator = np.random.default_rng(0)
    rows = [np.asfortranarray(generator.random((count, width))) for count in counts]
    labels = [generator.integers(0, 300, count) for count in counts]
    writer = CacheWriter.open(CachePlace(tmp_path), singles=True)
    for some, given in zip(rows, labels, strict=True):
        writer.add(Records(some, given))
    cache = writer.finish()
    assert cache is not None
    blocks = [copied_block(load()) for load in cache.loaders()]
    total = sum(counts)
    assert [len(one) for one, _ in blocks] == (
        [64] * (total // 64) + [total % 64] * (total % 64 > 0) or [0] * bool(counts)
    )
    if total:
        np.testing.assert_array_equal(
            np.concatenate([one for one, _ in blocks]), truncate_to_singles(np.concatenate(rows))
        )
        np.testing.assert_array_equal(np.concatenate([one for _, one in blocks]), np.concatenate(labels))


def copied_block(block: Records) -> tuple[Any, Any]:
    assert block.labels is not None and block.labels.dtype == np.int64
    return block.features.copy(), block.labels


@pytest.mark.parametrize("labels", [[0, 255], [0, 256], [0, 70_000], [-1, 3], [0.5, 2.0], []])
def test_labels_come_back_as_they_were(tmp_path: Path, labels: list[Any]) -> None:
    given: Any = np.array(labels, np.int64 if not labels or isinstance(labels[0], int) else np.float64)
    writer = CacheWriter.open(CachePlace(tmp_path))
    writer.add(Records(np.zeros((len(given), 2)), given))
    cache = writer.finish()
    assert cache is not None
    found = cache.loaders()[0]().labels
    assert found is not None and found.dtype == given.dtype and found.tolist() == given.tolist()


def test_the_source_is_read_once(tmp_path: Path) -> None:
    for place, reads in ((None, 4), (CachePlace(tmp_path), 1)):
        Counted.reads = 0
        records = scan(Counted(FRAME), place)
        for _ in range(3):
            assert sum(map(len, records.blocks())) == ROWS
        assert Counted.reads == reads


def test_two_passes_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    records = scan(Frame(FRAME), CachePlace(tmp_path))
    one, other = records.blocks(), records.blocks()
    next(one)
    first = next(other).features.copy()
    next(one)
    assert (first == next(records.blocks()).features).all()


def test_a_cache_has_no_name_and_no_other_reader(tmp_path: Path) -> None:
    records = scan(Frame(FRAME), CachePlace(tmp_path))
    assert list(tmp_path.iterdir()) == [] and records.cache is not None
    about = os.fstat(records.cache._file.fileno())
    assert about.st_mode & 0o777 == 0o600 and about.st_nlink == 0 and about.st_size == ROWS * (3 * 8 + 1)


@pytest.mark.parametrize("limit", [0, 1, ROWS * (3 * 8 + 1) - 1])
def test_a_cache_takes_no_more_than_it_may(tmp_path: Path, limit: int) -> None:
    records = scan(Frame(FRAME), CachePlace(tmp_path, limit))
    assert records.cache is None and sum(map(len, records.blocks())) == ROWS


def test_without_a_folder_the_source_is_read_again(tmp_path: Path) -> None:
    assert scan(Frame(FRAME), CachePlace(tmp_path / "absent")).cache is None


def test_identifiers_are_not_written(tmp_path: Path) -> None:
    named = Schema(SCHEMA.columns, SCHEMA.target, "person")
    frame = FRAME.assign(person=[f"p{at}" for at in range(ROWS)])
    records, plain = scan(Frame(frame), CachePlace(tmp_path), named), scan(Frame(FRAME), CachePlace(tmp_path))
    assert records.cache is not None and plain.cache is not None
    assert os.fstat(records.cache._file.fileno()).st_size == os.fstat(plain.cache._file.fileno()).st_size
    assert all(load().ids is None for load in records.loaders() or ())
    # Whoever needs them reads them from the source.
    ids = np.concatenate([one.ids for one in records.blocks() if one.ids is not None])
    assert ids.tolist() == frame.person.tolist()


def test_a_disk_that_is_full_costs_time_and_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: CacheWriter, __: memoryview) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(CacheWriter, "_write", fail)
    records = scan(Frame(FRAME), CachePlace(tmp_path))
    assert records.cache is None and sum(map(len, records.blocks())) == ROWS


def test_no_records_are_one_empty_block(tmp_path: Path) -> None:
    records = scan(Frame(FRAME.iloc[:0]), CachePlace(tmp_path))
    (block,) = records.blocks()
    assert records.cache is not None and block.features.shape == (0, 3) and block.labels is not None


def test_a_source_that_changes_after_it_was_read_still_stops_the_run(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "t.parquet")
    records = scan(Parquet(tmp_path / "t.parquet"), CachePlace(tmp_path))
    assert records.cache is not None
    FRAME.iloc[:-1].to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="changed after they were checked"):
        next(records.blocks())


KILLED = """
import sys, time
from pathlib import Path
import numpy as np
from comity.data import Records
from comity.data.singles import truncate_to_singles
from comity.data.tables.encoded_cache import CachePlace, CacheWriter
writer = CacheWriter.open(CachePlace(Path(sys.argv[1])))
writer.add(Records(np.full((1000, 4), 0.5)))
cache = writer.finish()
print("written" if cache is not None else "nothing", flush=True)
time.sleep(60)
"""


def test_nothing_is_left_after_a_kill(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "written\n"
    held = [str(one.readlink()) for one in Path(f"/proc/{process.pid}/fd").iterdir()]
    # It is there as long as the process is, and has no name even then.
    assert any(str(tmp_path) in one for one in held) and list(tmp_path.iterdir()) == []
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert list(tmp_path.iterdir()) == []

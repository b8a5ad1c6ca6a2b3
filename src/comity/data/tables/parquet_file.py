"""A Parquet file, or a folder of them as one table, whole or in Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from comity.data.schemas.conforming import missing_column

# A column of a row group is read in pieces of this size: a file may be a single row group, larger than memory.
_PIECE = 1 << 16


def files_of(path: Path) -> list[Path]:
    """The file itself, or all .parquet files below a folder in the order of their paths, hidden ones left out."""
    if not path.is_dir():
        return [path]
    found = (file for file in path.rglob("*.parquet") if file.is_file())
    return sorted(
        file for file in found if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    )


def parquet_table(path: Path, columns: Sequence[str] | None) -> pd.DataFrame:
    """All records; files of a folder follow each other."""
    frames: list[pd.DataFrame] = []
    for file in files_of(path):
        with _opened(file) as opened:
            frames.append(opened.read(columns=_chosen(file, columns)).to_pandas())
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def parquet_batches(path: Path, columns: Sequence[str] | None, rows: int) -> Iterator[Any]:
    """Arrow batches of at most `rows` records; at least one, also without records."""
    empty: Any = None
    some = False
    for file in files_of(path):
        chosen = _chosen(file, columns)
        with _opened(file) as opened:
            for batch in opened.iter_batches(batch_size=rows, columns=chosen):
                some = some or batch.num_rows > 0
                if batch.num_rows:
                    # The order of the columns that were asked for, not that of the file.
                    yield batch if chosen is None else batch.select(chosen)
            empty = opened.schema_arrow if chosen is None else pa.schema(map(opened.schema_arrow.field, chosen))
    if not some:
        yield pa.RecordBatch.from_pylist([], schema=empty)


def parquet_rows(path: Path) -> int:
    """How many records there are, from the files' footers."""
    return sum(pq.read_metadata(file).num_rows for file in files_of(path))


def _opened(file: Path) -> Any:
    # Read ahead, the whole file would end up in memory.
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=_PIECE)


def _chosen(file: Path, columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    present = pq.read_schema(file).names
    for name in columns:
        if name not in present:
            raise missing_column(str(file), name, present)
    return list(columns)

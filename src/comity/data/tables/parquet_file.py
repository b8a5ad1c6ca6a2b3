"""A Parquet file, or a folder of them as one table, whole or in Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comity.data.tables.source import (
    PIECE_ROWS,
    Columns,
    Kind,
    Place,
    Source,
    require_columns,
    require_rows,
    split_frames,
    translate_errors,
)
from comity.data.tables.table import Batch
from comity.errors import DataError, StudyError
from comity.untrusted.file_names import is_inside

if TYPE_CHECKING:
    import pandas as pd

# Bytes of a column that are read at a time: a file may be a single row group, larger than memory.
_BUFFER_BYTES = 1 << 16


@dataclass(frozen=True)
class Parquet(Source):
    """A Parquet file, or a folder of them: one table, in the order of the files' paths.

    Every error while it is read is one of the file: pyarrow reads the notes that pandas leaves in a file without
    checks, and damage to them can raise anything.
    """

    path: Path

    def read(self, columns: Columns = None) -> pd.DataFrame:
        import pandas as pd

        with translate_errors(self.path, all_errors=True):
            frames: list[pd.DataFrame] = []
            for file in self.files():
                with _open_file(file) as opened:
                    frames.append(opened.read(columns=_check_columns(file, columns)).to_pandas())
            return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        rows = require_rows(rows)
        frames = (piece.batch.to_pandas() for piece in self.pieces(columns, rows))
        with translate_errors(self.path, all_errors=True):
            yield from split_frames(frames, rows)

    def pieces(self, columns: Columns = None, rows: int = PIECE_ROWS) -> Iterator[Batch]:
        import pyarrow as pa

        size, schema, is_empty = require_rows(rows), None, True
        with translate_errors(self.path, all_errors=True):
            for file in self.files():
                chosen = _check_columns(file, columns)
                with _open_file(file) as opened:
                    for batch in opened.iter_batches(batch_size=size, columns=chosen):
                        if batch.num_rows:
                            is_empty = False
                            # The file's columns may have another order than those that were asked for.
                            yield Batch(batch if chosen is None else batch.select(chosen))
                    known = opened.schema_arrow
                    schema = known if chosen is None else pa.schema(map(known.field, chosen))
            if is_empty:
                yield Batch(pa.RecordBatch.from_pylist([], schema=schema))

    def names(self) -> list[str] | None:
        import pyarrow.parquet as pq

        with translate_errors(self.path, all_errors=True):
            first, *others = [pq.read_schema(file).names for file in self.files()]
            return list(first) if all(names == first for names in others) else None

    def row_count(self) -> int:
        """The number of records, from the files' footers."""
        import pyarrow.parquet as pq

        with translate_errors(self.path, all_errors=True):
            return sum(pq.read_metadata(file).num_rows for file in self.files())

    def files(self) -> list[Path]:
        """The file, or all .parquet files below a folder in the order of their paths, hidden ones left out."""
        if not self.path.is_dir():
            return [self.path]
        found = (file for file in self.path.rglob("*.parquet") if file.is_file())
        return sorted(
            file for file in found if not any(part.startswith((".", "_")) for part in file.relative_to(self.path).parts)
        )


def _open_file(file: Path) -> Any:
    import pyarrow.parquet as pq

    # pre_buffer would read the whole file into memory.
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES)


def _check_columns(file: Path, columns: Columns) -> list[str] | None:
    import pyarrow.parquet as pq

    if columns is None:
        return None
    require_columns(columns, pq.read_schema(file).names, str(file))
    return list(columns)


def _open(table: Mapping[str, Any], place: Place) -> Parquet:
    path = Path(table["path"])
    folder = place.resolve(path, "path")
    if not folder.is_dir():
        return Parquet(place.find_file(path, "path"))
    source = Parquet(folder)
    files = source.files()
    if not files:
        raise DataError(
            f"{place.where}: {folder} is a folder without a .parquet file; name the files' folder.", key="path"
        )
    inside = folder if place.base is None else place.base
    if place.confined and not all(is_inside(inside, file) for file in files):
        raise StudyError(
            f"{place.where}: path: expected files inside {place.base}, found a link in {folder} that leads out of it; "
            "put the files there.",
            key="path",
        )
    return source


PARQUET = Kind(keys=("source", "path"), open=_open)

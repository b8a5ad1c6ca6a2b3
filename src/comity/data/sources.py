"""Where an owner's records are: a table in memory, a CSV or Parquet file, or an SQL query.

A source only reads. Its errors are for the owner's own terminal and never show a password.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from comity.data.csv_file import csv_batches, csv_table
from comity.data.nearest import did_you_mean, nearest
from comity.data.sql import Sql
from comity.errors import DataError, StudyError

Columns = Sequence[str] | None


@dataclass(frozen=True, eq=False)
class Frame:
    """A pandas DataFrame in memory."""

    frame: pd.DataFrame
    where: str = "the data"

    def read(self, columns: Columns = None) -> pd.DataFrame:
        return _select(self.frame, columns, self.where)

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        yield from _pieces([self.read(columns)], rows)


@dataclass(frozen=True)
class Csv:
    """A CSV file in UTF-8 with a header line. Numbers are recognised only where nothing is lost by it: 007
    stays text.
    """

    path: Path

    def read(self, columns: Columns = None) -> pd.DataFrame:
        with _opening(self.path):
            table = csv_table(self.path)
        return _select(table, columns, str(self.path))

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        with _opening(self.path):
            for piece in _pieces(csv_batches(self.path), rows):
                yield _select(piece, columns, str(self.path))


@dataclass(frozen=True)
class Parquet:
    """A Parquet file."""

    path: Path

    def read(self, columns: Columns = None) -> pd.DataFrame:
        with _opening(self.path):
            frame: pd.DataFrame = pq.ParquetFile(self.path).read(columns=self._checked(columns)).to_pandas()
        return frame

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        with _opening(self.path):
            file = pq.ParquetFile(self.path)
            chosen = self._checked(columns)
            empty = [file.schema_arrow.empty_table().select(chosen or file.schema_arrow.names).to_pandas()]
            frames = (batch.to_pandas() for batch in file.iter_batches(batch_size=_at_least_one(rows), columns=chosen))
            yield from _pieces(frames if file.metadata.num_rows else empty, rows)

    def _checked(self, columns: Columns) -> list[str] | None:
        if columns is not None:
            _present(columns, pq.ParquetFile(self.path).schema_arrow.names, str(self.path))
        return None if columns is None else list(columns)


Source = Frame | Csv | Parquet | Sql


def open_source(value: Any, where: str = "the data", *, base: Path | None = None) -> Source:
    """A source from a DataFrame, a path by its suffix, or a table as under [data] in a site file.

    Relative paths start at `base`, the folder of the file that names them. A file that is not there is an
    error now, before anything is approved or reserved; one without records is fine.
    """
    if isinstance(value, Frame | Csv | Parquet | Sql):
        return value
    if isinstance(value, pd.DataFrame):
        return Frame(value, where)
    if isinstance(value, str | Path):
        return _file(Path(value), None, where, base)
    if isinstance(value, Mapping):
        return _from_table(value, where, base)
    raise DataError(
        f"{where}: expected a DataFrame, a path or a table with source = ..., found "
        f"{type(value).__name__}; give one of these."
    )


def _from_table(table: Mapping[str, Any], where: str, base: Path | None) -> Source:
    kinds = ("parquet", "csv", "sql")
    kind = table.get("source")
    if kind is None and "path" in table and "query" not in table:
        kind = Path(str(table["path"])).suffix.lstrip(".")
    if kind not in kinds:
        raise StudyError(f"{where}: source: unknown source {kind!r}{did_you_mean(str(kind), kinds)}", key="source")
    known = ("source", "path", "query", "url") if kind == "sql" else ("source", "path")
    for key, entry in table.items():
        if key not in known:
            raise StudyError(f"{where}: {key}: unknown key {key!r}{did_you_mean(key, known)}", key=key)
        if not isinstance(entry, str | Path) or not str(entry).strip():
            raise StudyError(f"{where}: {key}: expected text, found {entry!r}; write it in quotes.", key=key)
    needed = "query" if kind == "sql" else "path"
    if needed not in table:
        raise StudyError(f'{where}: {needed}: expected a value, found none; add {needed} = "...".', key=needed)
    if kind != "sql":
        return _file(Path(table["path"]), str(kind), where, base)
    if "url" in table and "path" in table:
        raise StudyError(f"{where}: url: expected url or path, found both; remove one.", key="url")
    path = _existing(Path(table["path"]), where, base) if "path" in table else None
    return Sql(str(table["query"]), url=table.get("url"), path=path, folder=base, where=where)


def _file(path: Path, kind: str | None, where: str, base: Path | None) -> Csv | Parquet:
    kind = kind or path.suffix.lower().lstrip(".")
    if kind not in ("csv", "parquet"):
        raise DataError(
            f"{where}: {path} is not recognised by its suffix; expected .csv or .parquet. Convert it, or "
            'give a table with source = "csv", "parquet" or "sql".'
        )
    found = _existing(path, where, base)
    return Csv(found) if kind == "csv" else Parquet(found)


def _existing(path: Path, where: str, base: Path | None) -> Path:
    full = path if base is None else base / path
    if not full.is_file():
        beside = [entry.name for entry in full.parent.iterdir()] if full.parent.is_dir() else []
        close = nearest(full.name, beside)
        hint = f"beside it is {close!r}" if close and close != full.name else "check the path"
        raise DataError(f"{where}: {full} can't be opened: there is no such file; {hint}.", key="path")
    return full


class _opening:
    """Turns what a file library raises into one sentence about the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError | pa.ArrowException | UnicodeDecodeError):
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise DataError(
                f"{self._path} can't be read ({first}); check that the file is complete, readable, and of "
                "the kind that its suffix says (CSV in UTF-8 with a header line).",
                key="path",
            ) from error


def _select(frame: pd.DataFrame, columns: Columns, where: str) -> pd.DataFrame:
    if columns is None:
        return frame
    _present(columns, [str(name) for name in frame.columns], where)
    return frame[list(columns)]


def _present(columns: Iterable[str], present: Sequence[str], where: str) -> None:
    for name in columns:
        if name not in present:
            raise DataError(
                f"{where}: column {name!r} is missing{did_you_mean(name, present)}",
                code="missing-column",
                key=name,
            )


def _pieces(frames: Iterable[pd.DataFrame], rows: int) -> Iterator[pd.DataFrame]:
    """Frames of at most `rows` records; at least one frame, also without records, so that columns can be
    checked.
    """
    size = _at_least_one(rows)
    for frame in frames:
        for start in range(0, max(len(frame), 1), size):
            yield frame.iloc[start : start + size].reset_index(drop=True)


def _at_least_one(rows: int) -> int:
    if rows < 1:
        raise ValueError(f"a batch has at least one row, found {rows}")
    return rows

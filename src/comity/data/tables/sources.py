"""Where an owner's records are: a table in memory, a CSV or Parquet file, or an SQL query.

A source only reads: `read` gives all records, `batches` frames of so many, `pieces` the same made for encoding (Arrow
batches where there are any), `rows_at_most` a bound on their number where one is known without reading them. Its errors
are for the owner's own terminal and never show a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comity.data.nearest import did_you_mean, nearest
from comity.data.schemas.conforming import missing_column
from comity.data.tables.arrow_frames import Batch
from comity.data.tables.csv_dialect import Dialect
from comity.data.tables.sql import Sql, check_reads, check_url, file_of
from comity.errors import ComityError, DataError, StudyError
from comity.untrusted.file_names import has_control_characters, is_inside

if TYPE_CHECKING:
    import pandas as pd

    from comity.data.tables.arrow_frames import Table

Columns = Sequence[str] | None

# Rows of the pieces that `pieces` gives for encoding.
PIECE = 1 << 16


@dataclass(frozen=True, eq=False)
class Frame:
    """A pandas DataFrame in memory."""

    frame: pd.DataFrame
    where: str = "the data"

    def read(self, columns: Columns = None) -> pd.DataFrame:
        return _select(self.frame, columns, self.where)

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        yield from _pieces([self.read(columns)], rows)

    def pieces(self, columns: Columns = None, rows: int = PIECE) -> Iterator[Table]:
        return self.batches(columns, rows)

    def rows_at_most(self, columns: int) -> int:
        return len(self.frame)


@dataclass(frozen=True)
class Csv:
    """A CSV file with a header line, in UTF-8 with commas and decimal points unless said otherwise. Numbers are
    recognised only where nothing is lost by it: 007 stays text. A file without a byte is one without records.
    """

    path: Path
    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        # Wrong options are found when a source is named, not when it is read.
        _ = self.dialect

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.separator, self.decimal, self.encoding)

    def read(self, columns: Columns = None) -> pd.DataFrame:
        from comity.data.tables.csv_file import csv_table

        with _opening(self.path):
            table = csv_table(self.path, self.dialect)
        return _select(table, columns, str(self.path))

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        from comity.data.tables.csv_file import csv_batches

        with _opening(self.path):
            for piece in _pieces(csv_batches(self.path, self.dialect), rows):
                yield _select(piece, columns, str(self.path))

    def pieces(self, columns: Columns = None, rows: int = PIECE) -> Iterator[Table]:
        return self.batches(columns, rows)

    def rows_at_most(self, columns: int) -> int:
        # A field takes no byte, but what ends it takes one.
        with _opening(self.path):
            return self.path.stat().st_size // max(1, columns)


@dataclass(frozen=True)
class Parquet:
    """A Parquet file, or a folder of them: one table, in the order of the files' paths."""

    path: Path

    def read(self, columns: Columns = None) -> pd.DataFrame:
        from comity.data.tables.parquet_file import parquet_table

        with _opening(self.path, foreign=Exception):
            return parquet_table(self.path, columns)

    def batches(self, columns: Columns = None, rows: int = 100_000) -> Iterator[pd.DataFrame]:
        from comity.data.tables.parquet_file import parquet_batches

        rows = _at_least_one(rows)
        with _opening(self.path, foreign=Exception):
            frames = (batch.to_pandas() for batch in parquet_batches(self.path, columns, rows))
            yield from _pieces(frames, rows)

    def pieces(self, columns: Columns = None, rows: int = PIECE) -> Iterator[Table]:
        from comity.data.tables.parquet_file import parquet_batches

        rows = _at_least_one(rows)
        with _opening(self.path, foreign=Exception):
            for batch in parquet_batches(self.path, columns, rows):
                yield Batch(batch)

    def rows_at_most(self, columns: int) -> int:
        from comity.data.tables.parquet_file import parquet_rows

        with _opening(self.path, foreign=Exception):
            return parquet_rows(self.path)


Source = Frame | Csv | Parquet | Sql

KINDS = ("parquet", "csv", "sql")
KEYS = {
    "csv": ("source", "path", "separator", "decimal", "encoding"),
    "parquet": ("source", "path"),
    "sql": ("source", "path", "url", "query", "table", "password_file"),
}


def open_source(value: Any, where: str = "the data", *, base: Path | None = None, confined: bool = False) -> Source:
    """A source from a DataFrame, a path by its suffix, or a table as under [data] in a site file.

    Relative paths start at `base`, the folder of the file that names them, and do not leave it where they are
    `confined`. A file that is not there is an error now, before anything is approved or reserved; one without records
    is fine.
    """
    if isinstance(value, Frame | Csv | Parquet | Sql):
        return value
    if not isinstance(value, str | Path | Mapping):
        import pandas as pd

        if isinstance(value, pd.DataFrame):
            return Frame(value, where)
    if isinstance(value, str | Path):
        value = {"source": _kind_of(Path(value), where, base), "path": value}
    if not isinstance(value, Mapping):
        raise DataError(
            f"{where}: expected a DataFrame, a path or a table with source = ..., found "
            f"{type(value).__name__}; give one of these."
        )
    kind = check_table(value, where)
    place = _Place(where, base, confined)
    if kind == "sql":
        return _sql(value, place)
    path = place.existing(Path(value["path"]), "path", folders=kind == "parquet")
    if kind == "parquet":
        return Parquet(path)
    try:
        return Csv(path, **{key: value[key] for key in ("separator", "decimal", "encoding") if key in value})
    except StudyError as error:
        raise StudyError(f"{where}: {error}", key=error.key) from None


def check_table(table: Mapping[str, Any], where: str) -> str:
    """The kind of source that a table names. Keys are checked and no file is looked for; no value is shown, since one
    may be a password in a wrong place."""
    kind = table.get("source")
    if kind is None and isinstance(table.get("path"), str | Path) and not {"query", "table", "url"} & set(table):
        kind = Path(table["path"]).suffix.lower().lstrip(".")
    if not isinstance(kind, str) or kind not in KINDS:
        raise StudyError(f"{where}: source: unknown source {kind!r}{did_you_mean(str(kind), KINDS)}", key="source")
    known = KEYS[kind]
    for key, entry in table.items():
        if key not in known:
            raise StudyError(f"{where}: {key}: unknown key {key!r}{did_you_mean(str(key), known)}", key=str(key))
        # A tab is blank and a separator all the same.
        if not isinstance(entry, str | Path) or not (str(entry).strip() or key == "separator"):
            raise StudyError(
                f"{where}: {key}: expected text, found {_form(entry)}; write it in quotes.",
                key=key,
            )
    if kind == "sql":
        _check_sql(table, where)
    else:
        _needed(table, "path", where)
    return kind


def _check_sql(table: Mapping[str, Any], where: str) -> None:
    """A query or a table, of a file or of a server at a URL."""
    _one_of(table, "query", "table", where)
    if "path" in table:
        _one_of(table, "path", "url", where)
    if "url" in table:
        check_url(str(table["url"]), where)
    elif "password_file" in table:
        raise StudyError(
            f"{where}: password_file: expected url beside it, found none; a file needs no password.",
            key="password_file",
        )
    if "query" in table:
        check_reads(str(table["query"]), where)
    elif "path" not in table:
        _needed(table, "url", where)


def _form(entry: Any) -> str:
    return "a blank one" if isinstance(entry, str) else type(entry).__name__


def _needed(table: Mapping[str, Any], key: str, where: str) -> None:
    if key not in table:
        raise StudyError(f'{where}: {key}: expected a value, found none; add {key} = "...".', key=key)


def _one_of(table: Mapping[str, Any], first: str, second: str, where: str) -> None:
    if first in table and second in table:
        raise StudyError(f"{where}: {second}: expected {first} or {second}, found both; remove one.", key=second)
    if second not in table:
        _needed(table, first, where)


def _sql(table: Mapping[str, Any], place: _Place) -> Sql:
    url = None if "url" not in table else str(table["url"])
    file = table.get("path") if url is None else file_of(url, place.where)
    secret = table.get("password_file")
    if place.confined and file is None and url is None:
        raise StudyError(
            f"{place.where}: path: expected path or url beside query, found neither; a study's query reads the file "
            "that path names, which it knows as data.",
            key="path",
        )
    return Sql(
        query=None if "query" not in table else str(table["query"]),
        table=None if "table" not in table else str(table["table"]),
        url=url if file is None else None,
        path=None if file is None else place.existing(Path(file), "path" if url is None else "url"),
        folder=place.base,
        password_file=None if secret is None else place.existing(Path(secret), "password_file"),
        confined=place.confined,
        where=place.where,
    )


def _kind_of(path: Path, where: str, base: Path | None) -> str:
    # A path folds the two slashes of a URL into one.
    if re.match(r"[A-Za-z][A-Za-z0-9+_]+:/", str(path)):
        # Not shown: somebody may have written a password into it.
        raise StudyError(
            f'{where}: expected a file, found a URL; give a table {{source = "sql", url = "...", table = "..."}}.',
            key="url",
        )
    kind = path.suffix.lower().lstrip(".")
    if not kind and (path if base is None else base / path).is_dir():
        return "parquet"
    if kind not in ("csv", "parquet"):
        raise DataError(
            f"{where}: {path} is not recognised by its suffix; expected .csv or .parquet. Convert it, or "
            'give a table with source = "csv", "parquet" or "sql".'
        )
    return kind


@dataclass(frozen=True)
class _Place:
    """Where paths start, who names them, and whether they may lead elsewhere."""

    where: str
    base: Path | None
    confined: bool

    def existing(self, path: Path, key: str, *, folders: bool = False) -> Path:
        full = path if self.base is None else self.base / path
        if has_control_characters(str(path)):
            raise StudyError(
                f"{self.where}: {key}: {str(path)!r} has a control or invisible character; rename the file.", key=key
            )
        if self.confined and self.base is not None and not is_inside(self.base, full):
            raise StudyError(
                f"{self.where}: {key}: expected a path inside {self.base}, found {path}; a study comes from somebody "
                "else and reads files of its own folder alone. Put the file there.",
                key=key,
            )
        if folders and full.is_dir():
            return self._of_parquet(full, key)
        if not full.is_file():
            beside = [entry.name for entry in full.parent.iterdir()] if full.parent.is_dir() else []
            close = nearest(full.name, beside)
            hint = f"beside it is {close!r}" if close and close != full.name else "check the path"
            raise DataError(f"{self.where}: {full} can't be opened: there is no such file; {hint}.", key=key)
        return full

    def _of_parquet(self, folder: Path, key: str) -> Path:
        from comity.data.tables.parquet_file import files_of

        files = files_of(folder)
        if not files:
            raise DataError(
                f"{self.where}: {folder} is a folder without a .parquet file; name the files' folder.", key=key
            )
        inside = folder if self.base is None else self.base
        if self.confined and not all(is_inside(inside, file) for file in files):
            raise StudyError(
                f"{self.where}: {key}: expected files inside {self.base}, found a link in {folder} that leads out of "
                "it; put the files there.",
                key=key,
            )
        return folder


class _opening:
    """Turns what a file library raises into one sentence about the file.

    `foreign` are further errors that come from the library. Of Parquet these are all: what pandas once noted in a file
    about its columns is read without checks, and damage to it can raise anything.
    """

    def __init__(self, path: Path, *, foreign: type[Exception] | tuple[type[Exception], ...] = ()) -> None:
        self._path = path
        self._foreign = foreign

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, ComityError):
            return
        import pyarrow as pa

        known = (OSError, pa.ArrowException, UnicodeDecodeError)
        if isinstance(error, known) or (isinstance(error, self._foreign) and not isinstance(error, MemoryError)):
            reason = (
                error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged, or of another kind"
            )
            raise DataError(
                f"{self._path} can't be read ({reason}); check that the file is complete, readable, and of the kind "
                "that its suffix says.",
                key="path",
            ) from None


def _select(frame: pd.DataFrame, columns: Columns, where: str) -> pd.DataFrame:
    if columns is None:
        return frame
    if frame.shape == (0, 0):
        import pandas as pd

        return pd.DataFrame(columns=list(columns), dtype=object)
    _present(columns, [str(name) for name in frame.columns], where)
    return frame[list(columns)]


def _present(columns: Iterable[str], present: Sequence[str], where: str) -> None:
    for name in columns:
        if name not in present:
            raise missing_column(where, name, present)


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
